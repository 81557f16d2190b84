// See worker_messages.hpp.
#include "gpu_server/supervisor/worker_messages.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/exchange_records.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

namespace {

// The parser below throws it, and catches it with what json throws.
json::other_error nonsense(const char* why) {
    return json::other_error::create(501, why, nullptr);
}

// json would make a number of any other: of -1 the largest one.
uint64_t number(const json& value) {
    if (!value.is_number_unsigned()) throw nonsense("no whole number");
    return value.get<uint64_t>();
}

int64_t use(const json& value) {
    return static_cast<int64_t>(std::min<uint64_t>(number(value), claim_use_max));
}

std::string thing_name(const json& value) {
    auto name = value.get<std::string>();
    auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    if (name.size() == 2 * sizeof(wire::ThingName) && std::all_of(name.begin(), name.end(), is_digit)) return name;
    throw nonsense("no name of a thing");
}

ThingKind thing_kind(const json& value) {
    if (value == "memory") return ThingKind::memory;
    if (value == "multicast") return ThingKind::multicast;
    if (value == "event") return ThingKind::event;
    throw nonsense("no kind of thing");
}

wire::ImageHash hash_in(const json& value) {
    auto hash = wire::image_hash_from_hex(value.at("hash").get_ref<const std::string&>());
    if (!hash) throw nonsense("no hash");
    return *hash;
}

WorkerReady ready(const json& message) {
    WorkerReady ready;
    for (auto& value : message.at("devices")) {
        auto device = device_from_json(value);
        if (!device) throw nonsense("no device");
        ready.devices.push_back(std::move(*device));
    }
    return ready;
}

WorkerMessage exchange(const json& value) {
    if (auto lent = value.find("lend"); lent != value.end()) {
        Lend lend{thing_name(*lent), thing_kind(value.at("kind")), 0, 0, number(value.at("ticket"))};
        if (lend.kind != ThingKind::event)
            lend.device = number(value.at("device")), lend.bytes = number(value.at("bytes"));
        return ExchangeMessage(std::move(lend));
    }
    if (auto wanted = value.find("borrow"); wanted != value.end())
        return ExchangeMessage(Borrow{thing_name(*wanted), thing_kind(value.at("kind")), number(value.at("ticket"))});
    return ExchangeMessage(Withdraw{thing_name(value.at("withdraw")), number(value.at("ticket"))});
}

// The one thing that a message is about is the first of these that it has.
WorkerMessage understand(const json& message) {
    auto has = [&](const char* key) { return message.contains(key); };
    if (has("ready")) return ready(message);
    if (has("connected")) return ClientConnected{};
    if (has("away")) return ClientAway{message["away"].get<bool>()};
    if (has("moved")) {
        auto& moved = message["moved"];
        auto busy = moved.find("busy_ms");
        return WorkerUse{use(moved.at("up")), use(moved.at("down")), busy == moved.end() ? 0 : use(*busy)};
    }
    if (has("grant")) {
        auto& wish = message["grant"];
        auto ticket = wish.find("ticket");
        return MemoryWish{number(wish.at("device")), number(wish.at("bytes")),
                          ticket == wish.end() ? 0 : number(*ticket), wish.value("exactly", false)};
    }
    if (has("memory_back")) {
        auto& back = message["memory_back"];
        return MemoryBack{number(back.at("device")), number(back.at("bytes"))};
    }
    if (has("ended") || has("failed"))
        return LastWord{printable(message[has("ended") ? "ended" : "failed"].get_ref<const std::string&>())};
    if (has("exchange")) return exchange(message["exchange"]);
    if (has("return")) return ExchangeMessage(Return{thing_name(message["return"].at("name"))});
    if (has("find_image")) {
        auto& wanted = message["find_image"];
        return ImageMessage(FindImage{hash_in(wanted), number(wanted.at("bytes")), number(wanted.at("ticket"))});
    }
    if (has("keep_image")) {
        auto& brought = message["keep_image"];
        return ImageMessage(KeepImage{hash_in(brought), number(brought.at("bytes"))});
    }
    if (has("damaged_image")) return ImageMessage(DamagedImage{hash_in(message["damaged_image"])});
    throw nonsense("nothing that a worker says");
}

}  // namespace

std::optional<WorkerMessage> parse_worker_message(std::string_view text) try {
    auto parsed = control::parse(text.data(), text.size());
    if (!parsed) return std::nullopt;
    return understand(*parsed);
} catch (const json::exception&) {
    return std::nullopt;
}

}  // namespace tnr::server
