// See request.hpp.
#include "gpu_server/supervisor/request.hpp"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

namespace {

constexpr std::array<std::pair<std::string_view, Op>, 15> ops{{{"hello", Op::hello},
                                                               {"types", Op::types},
                                                               {"describe", Op::describe},
                                                               {"session", Op::session},
                                                               {"nvml", Op::nvml},
                                                               {"enroll_machine", Op::enroll_machine},
                                                               {"forget_machine", Op::forget_machine},
                                                               {"claims", Op::claims},
                                                               {"release", Op::release},
                                                               {"ledger", Op::ledger},
                                                               {"prices", Op::prices},
                                                               {"queue", Op::queue},
                                                               {"enroll_with_token", Op::redeem},
                                                               {"nodes", Op::nodes},
                                                               {"pool", Op::pool}}};

// Reads fields one by one; the first that is wrong is what the peer is told.
class Fields {
public:
    explicit Fields(const json& object) : object_(object) {}

    std::string text(const char* key, size_t bytes_max, bool required) {
        auto found = object_.find(key);
        if (found == object_.end() && !required) return {};
        if (found == object_.end() || !found->is_string()) return wrong(key, "should be a text"), "";
        auto value = found->get<std::string>();
        if (value.size() > bytes_max) return wrong(key, "may have at most " + std::to_string(bytes_max) + " bytes"), "";
        if (required && value.empty()) return wrong(key, "is empty"), "";
        return value;
    }
    int64_t number(const char* key, int64_t least, int64_t most, int64_t otherwise) {
        auto found = object_.find(key);
        if (found == object_.end()) return otherwise;
        bool fits = found->is_number_unsigned() ? found->get<uint64_t>() <= static_cast<uint64_t>(most)
                                                : found->is_number_integer();
        if (fits && found->get<int64_t>() >= least && found->get<int64_t>() <= most) return found->get<int64_t>();
        return wrong(key, "should be a number from " + std::to_string(least) + " to " + std::to_string(most)),
               otherwise;
    }
    bool flag(const char* key) {
        auto found = object_.find(key);
        if (found == object_.end()) return false;
        if (!found->is_boolean()) return wrong(key, "should be true or false"), false;
        return *found;
    }
    std::vector<int64_t> times(const char* key, size_t most) {
        auto found = object_.find(key);
        if (found == object_.end()) return {};
        const bool fits = found->is_array() && found->size() <= most;
        if (!fits)
            return wrong(key, "should be a list of up to " + std::to_string(most) + " numbers"), std::vector<int64_t>{};
        std::vector<int64_t> times;
        for (const auto& each : *found) {
            if (!each.is_number_integer()) return wrong(key, "should have numbers alone"), std::vector<int64_t>{};
            times.push_back(each.get<int64_t>());
        }
        return times;
    }
    std::string name(const char* key, bool required) {
        auto value = text(key, control::name_bytes_max, required);
        if (!value.empty() && !is_name(value)) wrong(key, "may have letters, digits, '-', '_' and '.' only");
        return value;
    }
    std::string key(const char* key) {
        auto value = text(key, 40, true);
        if (!wire::looks_like_key(value)) wrong(key, "is no key");
        return value;
    }
    const std::string& complaint() const { return complaint_; }

private:
    void wrong(const char* key, const std::string& why) {
        if (complaint_.empty()) complaint_ = std::string("the request's '") + key + "' " + why;
    }
    const json& object_;
    std::string complaint_;
};

Error usage(std::string what) {
    return {Error::Kind::usage, std::move(what)};
}

// Both ends must mean the same by every record that both know. The table's hash is for people: a client may know calls that
// we do not, and the other way round.
Result<> check_version(const json& object, Fields& fields) {
    auto protocol = fields.number("protocol", 0, std::numeric_limits<int32_t>::max(), -1);
    auto table = fields.text("table", 64, true);
    auto version = fields.text("version", 64, false);
    if (!object.contains("protocol")) return usage("the request does not say its protocol version");
    if (!fields.complaint().empty()) return usage(fields.complaint());
    if (protocol >= wire::oldest_protocol_version && protocol <= wire::protocol_version) return Ok{};
    bool newer = protocol > wire::protocol_version;
    auto side = [](const std::string& release, int64_t protocol) {
        return "version " + (release.empty() ? "?" : release) + " (protocol " + std::to_string(protocol) + ")";
    };
    return Error{Error::Kind::usage,
                 "this machine's tnr is " + side(version, protocol) + ", the pool's server is " +
                     side(control::version(), wire::protocol_version) + " and takes protocols " +
                     std::to_string(wire::oldest_protocol_version) + " to " + std::to_string(wire::protocol_version),
                 newer ? "update the pool's server, or install its version here" : "install the server's version here"};
}

void read_fields(Fields& fields, Request& request) {
    switch (request.op) {
        case Op::describe:
        case Op::session:
        case Op::nvml:
            request.gpu = fields.text("gpu", gpu_name_bytes_max, true);
            request.count = static_cast<int>(fields.number("count", 1, control::gpus_per_claim_max, 1));
            request.wait_s = fields.number("wait_s", 0, control::wait_s_max, 0);
            request.place = static_cast<int>(fields.number("place", 0, waiting_requests_max, 0));
            request.hops = static_cast<int>(fields.number("hops", 0, 1000, -1));
            request.pid = static_cast<int>(fields.number("pid", 0, std::numeric_limits<int32_t>::max(), 0));
            request.process = fields.text("process", process_name_bytes_max, false);
            request.nonce = fields.text("nonce", nonce_bytes_max, false);
            request.doors = fields.flag("doors");
            request.machine = fields.name("machine", false);
            break;
        case Op::ledger:
            request.everyone = fields.flag("everyone");
            request.since = fields.number("since", 0, std::numeric_limits<int64_t>::max(), 0);
            request.sums = fields.flag("sums");
            request.borders = fields.times("borders", control::ledger_borders_max);
            [[fallthrough]];
        case Op::prices:
            request.behind = fields.number("behind", 0, std::numeric_limits<int64_t>::max(), 0);
            break;
        case Op::release:
            request.hops = static_cast<int>(fields.number("hops", 0, 1000, -1));
            request.machine = fields.name("machine", false);
            break;
        case Op::redeem:
            request.public_key = fields.key("public_key");
            break;
        case Op::enroll_machine:
            request.public_key = fields.key("public_key");
            [[fallthrough]];
        case Op::forget_machine:
            request.name = fields.name("name", true);
            break;
        case Op::claims:
        case Op::queue:
            request.everyone = fields.flag("everyone");
            break;
        case Op::pool:
            request.day = fields.flag("day");
            break;
        case Op::hello:
        case Op::types:
        case Op::nodes:
            break;
    }
}

}  // namespace

std::string op_name(Op op) {
    for (auto& [name, known] : ops)
        if (known == op) return std::string(name);
    return "unknown";
}

bool is_name(const std::string& text) {
    auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
               c == '.';
    };
    if (text.empty() || text.size() > control::name_bytes_max) return false;
    for (char c : text)
        if (!allowed(c)) return false;
    return true;
}

Result<Request> parse_request(const void* data, size_t size, uint64_t& id) try {
    id = 0;
    if (size > request_bytes_max)
        return usage("the request has " + std::to_string(size) + " bytes; at most " +
                     std::to_string(request_bytes_max) + " are allowed");
    auto object = control::parse(data, size);
    if (!object) return usage("the request is no JSON object");
    if (auto found = object->find("id"); found != object->end() && found->is_number_unsigned()) id = *found;

    Fields fields(*object);
    if (auto same = check_version(*object, fields); !same) return same.error();
    auto name = fields.text("op", 32, true);
    if (!fields.complaint().empty()) return usage(fields.complaint());

    Request request;
    request.id = id;
    request.pool_key = fields.text("pool_key", 40, false);
    for (auto& [known, op] : ops) {
        if (known != name) continue;
        request.op = op;
        read_fields(fields, request);
        if (!fields.complaint().empty()) return usage(fields.complaint());
        return request;
    }
    return usage("there is no operation '" + json(name).dump(-1, ' ', true, json::error_handler_t::replace) + "'");
} catch (const json::exception& error) {
    return usage(std::string("the request cannot be read: ") + error.what());
}

static std::string dump(const json& value) {
    // What we repeat of foreign text may be no UTF-8: replaced, where dump() would throw.
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string answer_text(uint64_t id, json fields) {
    fields["id"] = id;
    return dump(fields);
}

std::string error_text(uint64_t id, const Error& error) {
    return dump({{"id", id}, {"error", control::to_json(error)}});
}

}  // namespace tnr::server
