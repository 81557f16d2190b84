// The client's side of control messages, and their parsing.
#include "gpu_client/protocol/control.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <zmq.hpp>

#include "cuda_calls.hpp"  // generated
#include "gpu_client/protocol/limits.hpp"

namespace tnr::control {

using nlohmann::json;

// Deeper nesting than any message of ours; the parser recurses, and the stack is the limit it would hit.
static constexpr int nesting_max = 16;

Result<json> parse(const void* data, size_t size) try {
    Error refused{Error::Kind::remote, "not a control message"};
    if (size > wire::control_bytes_max) return refused;
    auto* text = static_cast<const char*>(data);
    bool too_deep = false;
    auto check = [&](int depth, json::parse_event_t, json&) {
        too_deep |= depth > nesting_max;
        return !too_deep;
    };
    auto value = json::parse(text, text + size, check, /*allow_exceptions=*/false);
    if (too_deep || !value.is_object()) return refused;
    return value;
} catch (const json::exception& error) {
    return Error{Error::Kind::remote, std::string("not a control message: ") + error.what()};
}

static constexpr const char* kind_names[] = {"usage", "auth", "not_found", "network", "remote", "internal"};

json to_json(const Error& error) {
    return {{"kind", kind_names[static_cast<int>(error.kind)]}, {"what", error.what}, {"hint", error.hint}};
}

Error error_from_json(const json& error) {
    Error result{Error::Kind::remote, "the pool refused the request"};
    if (!error.is_object()) return result;
    auto text = [&](const char* key) {
        auto found = error.find(key);
        return found != error.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    if (auto what = text("what"); !what.empty()) result.what = what;
    result.hint = text("hint");
    for (int kind = 0; kind < 6; ++kind)
        if (text("kind") == kind_names[kind]) result.kind = static_cast<Error::Kind>(kind);
    return result;
}

std::string worker_endpoint(const std::string& told, const std::string& pool) {
    constexpr std::string_view anywhere = "tcp://*:";
    if (!told.starts_with(anywhere)) return told;
    return pool.substr(0, pool.rfind(':') + 1) + told.substr(anywhere.size());
}

std::string table_hash() {
    return wire::calls_table_hash;
}
std::string version() {
    return TNR_VERSION;
}

namespace {

class SocketClient : public Client {
public:
    SocketClient(std::string endpoint, const wire::ClientKeys& keys)
        : endpoint_(std::move(endpoint)), context_(std::make_unique<zmq::context_t>(1)) {
        socket_ = std::make_unique<zmq::socket_t>(*context_, ZMQ_DEALER);
        socket_->set(zmq::sockopt::linger, 0);
        // Sending waits for a connection: an address where nobody is, or that does not know our key, is told from a
        // pool that takes its time.
        socket_->set(zmq::sockopt::immediate, 1);
        socket_->set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(wire::control_bytes_max));
        socket_->set(zmq::sockopt::heartbeat_ivl, static_cast<int>(wire::heartbeat_interval.count()));
        if (!keys.plain()) {
            socket_->set(zmq::sockopt::curve_serverkey, keys.server_public);
            socket_->set(zmq::sockopt::curve_publickey, keys.own.public_key);
            socket_->set(zmq::sockopt::curve_secretkey, keys.own.secret_key);
        }
        socket_->connect(endpoint_);
    }

    Result<json> request(json request, std::chrono::milliseconds timeout) override try {
        auto id = ++last_id_;
        request["id"] = id;
        request["protocol"] = wire::protocol_version;
        request["table"] = table_hash();
        request["version"] = version();
        auto deadline = std::chrono::steady_clock::now() + timeout;
        auto connect_timeout = std::min(timeout, default_timeout);
        socket_->set(zmq::sockopt::sndtimeo, static_cast<int>(connect_timeout.count()));
        if (!socket_->send(zmq::buffer(request.dump()), zmq::send_flags::none)) return unreachable(connect_timeout);
        while (true) {
            auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
            if (left.count() <= 0) return unreachable(timeout);
            socket_->set(zmq::sockopt::rcvtimeo, static_cast<int>(left.count()));
            zmq::message_t message;
            if (!socket_->recv(message)) return unreachable(timeout);
            auto answer = parse(message.data(), message.size());
            if (!answer) return answer.error();
            if (answer->value("id", uint64_t{0}) != id) continue;  // the late answer to a request we gave up on
            if (answer->contains("error")) return error_from_json((*answer)["error"]);
            return answer;
        }
    } catch (const zmq::error_t& error) {
        return Error{Error::Kind::network, "talking to the pool at " + endpoint_ + " failed: " + error.what()};
    } catch (const json::exception& error) {
        return Error{Error::Kind::remote, "the pool at " + endpoint_ + " answered nonsense: " + error.what()};
    }

    void abandon() override {
        (void)socket_.release();
        (void)context_.release();
    }

private:
    Error unreachable(std::chrono::milliseconds timeout) const {
        return {Error::Kind::network,
                "no answer from the pool at " + endpoint_ + " within " + std::to_string(timeout.count()) + " ms",
                "check that tnr-gpu-server runs there, that the port is open, and that this machine's key is enrolled "
                "(unknown keys are not answered)"};
    }

    std::string endpoint_;
    std::unique_ptr<zmq::context_t> context_;
    std::unique_ptr<zmq::socket_t> socket_;
    uint64_t last_id_ = 0;
};

}  // namespace

Result<std::unique_ptr<Client>> Client::open(const std::string& endpoint, const wire::ClientKeys& keys) try {
    return std::unique_ptr<Client>(std::make_unique<SocketClient>(endpoint, keys));
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::usage, "'" + endpoint + "' is no pool address: " + error.what(),
                 "it looks like tcp://host:14900"};
}

}  // namespace tnr::control
