// The client's side of control messages, and their parsing.
#include "gpu_client/protocol/control.hpp"

#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <zmq.hpp>

#include "api_client/base/text.hpp"
#include "cuda_calls.hpp"  // generated
#include "gpu_client/protocol/ipv6.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_client/protocol/monitor.hpp"
#include "gpu_client/protocol/process_room.hpp"
#include "gpu_client/protocol/socket_in.hpp"
#include "gpu_client/protocol/uninterrupted.hpp"

namespace tnr::control {

using nlohmann::json;

// Deeper nesting than any message of ours; the parser recurses, and the stack is the limit it would hit.
static constexpr int nesting_max = 16;

// How long a key that was refused is tried again, and when first; then after twice as long each time.
static constexpr std::chrono::milliseconds key_known_within{3'000}, refused_pause_min{100};

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
    // Programs' libraries write it to their terminals.
    if (auto what = text("what"); !what.empty()) result.what = harmless(what);
    result.hint = harmless(text("hint"));
    for (int kind = 0; kind < 6; ++kind)
        if (text("kind") == kind_names[kind]) result.kind = static_cast<Error::Kind>(kind);
    return result;
}

std::string worker_endpoint(const std::string& told, const std::string& pool) {
    constexpr std::string_view anywhere = "tcp://*:";
    if (!told.starts_with(anywhere)) return told;
    return pool.substr(0, pool.rfind(':') + 1) + told.substr(anywhere.size());
}

std::string host_of_run(const std::string& machine) {
    const std::string_view run = "run-";
    const size_t last = machine.rfind('-');
    if (!machine.starts_with(run) || last <= run.size() || last + 1 == machine.size()) return "";
    const bool process = machine.find_first_not_of("0123456789", last + 1) == std::string::npos;
    return process ? machine.substr(run.size(), last - run.size()) : "";
}

std::string any_run_of_host(const std::string& machine) {
    const auto host = host_of_run(machine);
    return host.empty() ? machine : "run-" + host + "-0";
}

std::string table_hash() {
    return wire::calls_table_hash;
}
std::string version() {
    return TNR_VERSION;
}

namespace {

constexpr std::chrono::milliseconds enough_asked_every{50};

// What a ZeroMQ context, a socket and its monitor have, and the connection itself.
constexpr size_t connection_threads = 2, connection_descriptors = 12;

class SocketClient : public Client {
    using Clock = std::chrono::steady_clock;
    using milliseconds = std::chrono::milliseconds;

public:
    SocketClient(std::string endpoint, const wire::ClientKeys& keys, Refused refused)
        : endpoint_(std::move(endpoint)),
          keys_(keys),
          says_so_(refused == Refused::say_so),
          context_(std::make_unique<zmq::context_t>(1)) {
        dial();
    }

    const std::string& address() const override { return endpoint_; }

    Result<json> request(json request, milliseconds timeout) override try {
        auto id = ++last_id_;
        request["id"] = id;
        request["protocol"] = wire::protocol_version;
        request["table"] = table_hash();
        request["version"] = version();
        if (!keys_.plain()) request["pool_key"] = keys_.server_public;
        auto text = request.dump();
        auto deadline = Clock::now() + timeout;
        if (!connected()) dial();
        // A request or an answer that is lost with its connection is asked for again over a new one.
        for (auto left = timeout; left.count() > 0; left = left_until(deadline), dial()) {
            auto connect_timeout = std::min(left, connect_timeout_);
            if (!send(text, connect_timeout))
                return no_way_ ? no_way() : refused_ ? refused() : unreachable(connect_timeout);
            while (true) {
                bool open = connected();  // before the look: what arrived until then counts
                if (auto answer = take_answer(id)) return *answer;
                if (!open) break;
                left = left_until(deadline);
                if (left.count() <= 0) return unreachable(timeout);
                wait_for_news(left);
            }
        }
        return unreachable(timeout);
    } catch (const zmq::error_t& error) {
        return Error{Error::Kind::network, "talking to the pool at " + endpoint_ + " failed: " + error.what()};
    } catch (const json::exception& error) {
        return Error{Error::Kind::remote, "the pool at " + endpoint_ + " answered nonsense: " + error.what()};
    }

    void wait_for_connection(milliseconds at_most, std::function<bool()> enough) override {
        connect_timeout_ = at_most;
        enough_ = std::move(enough);
    }

    std::optional<std::string> newer_pool_key() const override { return newer_pool_key_; }

    void abandon() override {
        (void)socket_.release();
        (void)monitor_.release();
        (void)context_.release();
    }

private:
    // Each connection gets a socket of its own: with one for all, ZeroMQ would not tell over which a message went.
    void dial() {
        auto socket = std::make_unique<zmq::socket_t>(wire::socket_in(*context_, ZMQ_DEALER));
        socket->set(zmq::sockopt::linger, 0);
        // Sending waits for a connection: so an address where nobody listens, or that does not know our key, can be
        // told from a pool that takes its time.
        socket->set(zmq::sockopt::immediate, 1);
        socket->set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(wire::control_bytes_max));
        socket->set(zmq::sockopt::heartbeat_ivl, static_cast<int>(wire::heartbeat_interval.count()));
        // ZeroMQ's default is the interval: a pool that is busy for half a second would be taken for gone.
        socket->set(zmq::sockopt::heartbeat_timeout, static_cast<int>(wire::heartbeat_timeout.count()));
        // One attempt, of which we hear. ZeroMQ would tell of each further one, also while nobody listens to our monitor.
        if (says_so_) socket->set(zmq::sockopt::reconnect_ivl, -1);
        if (!keys_.plain()) {
            socket->set(zmq::sockopt::curve_serverkey, keys_.server_public);
            socket->set(zmq::sockopt::curve_publickey, keys_.own.public_key);
            socket->set(zmq::sockopt::curve_secretkey, keys_.own.secret_key);
        }
        // Of the old socket ZeroMQ may just have connected anew. Its thread would wait for somebody to hear that, and our
        // new connection for its thread.
        if (socket_) wire::Monitor::stop(*socket_);
        monitor_ = std::make_unique<wire::Monitor>(*context_, *socket,
                                                   ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                                                       ZMQ_EVENT_DISCONNECTED | (says_so_ ? ZMQ_EVENT_CLOSED : 0));
        socket_ = std::move(socket);
        ended_ = no_way_ = false;
        wire::allow_ipv6(*socket_, endpoint_);
        wire::uninterrupted([&] { socket_->connect(endpoint_); });
    }

    // False: there was a connection, or an attempt at one, and it has ended. While send() waits ZeroMQ makes further
    // attempts (or send() does, where we say so), so the last word counts.
    bool connected() {
        while (auto news = monitor_->next()) {
            ended_ = news->what != ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
            no_way_ = news->what == ZMQ_EVENT_CLOSED;  // no connection came of the attempt
            if (news->what != ZMQ_EVENT_DISCONNECTED && !no_way_)
                refused_ = news->what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
        }
        return !ended_;
    }

    static milliseconds left_until(Clock::time_point deadline) {
        return std::chrono::ceil<milliseconds>(deadline - Clock::now());
    }

    // False: no connection within that time, or one that does not know our key (`refused_`). A key may be so new that this node
    // of the pool has not heard of it yet; and ZeroMQ makes no further attempt with one that was refused.
    bool send(const std::string& text, milliseconds timeout) {
        const auto deadline = Clock::now() + timeout, known_by = Clock::now() + key_known_within;
        auto pause = refused_pause_min;
        auto try_to = [&] { return socket_->send(zmq::buffer(text), zmq::send_flags::dontwait); };
        while (!wire::uninterrupted(try_to)) {
            const auto left = std::min(left_until(deadline), enough_ ? enough_asked_every : milliseconds::max());
            if (left_until(deadline).count() <= 0 || (enough_ && enough_())) return false;
            if (connected() || (!refused_ && !says_so_)) {
                wait_for_news(left);
                continue;
            }
            if (no_way_ || (refused_ && left_until(known_by).count() <= 0)) return false;
            std::this_thread::sleep_for(std::min(pause, left));
            pause *= 2;
            dial();
        }
        return true;
    }

    // Without waiting; null when it is not there yet.
    std::optional<Result<json>> take_answer(uint64_t id) {
        zmq::message_t message;
        auto take = [&] { return socket_->recv(message, zmq::recv_flags::dontwait); };
        while (wire::uninterrupted(take)) {
            auto answer = parse(message.data(), message.size());
            if (!answer) return answer;
            if (answer->value("id", uint64_t{0}) != id) continue;  // the late answer to a request we gave up on
            if (answer->contains("error")) return error_from_json((*answer)["error"]);
            learn_pool_key(*answer);
            return answer;
        }
        return std::nullopt;
    }

    // It came over a connection that only the key we know could open.
    void learn_pool_key(const json& answer) {
        auto told = answer.find("pool_key");
        if (keys_.plain() || told == answer.end() || !told->is_string()) return;
        auto key = told->get<std::string>();
        if (key == keys_.server_public || !wire::looks_like_key(key)) return;
        keys_.server_public = key;
        newer_pool_key_ = key;
    }

    // Both descriptors signal only changes since the last look, so look at both before.
    void wait_for_news(milliseconds limit) {
        pollfd fds[] = {{socket_->get(zmq::sockopt::fd), POLLIN, 0}, {monitor_->fd(), POLLIN, 0}};
        ::poll(fds, 2, static_cast<int>(limit.count()));
    }

    Error unreachable(milliseconds timeout) const {
        return {Error::Kind::network,
                "no answer from the pool at " + endpoint_ + " within " + std::to_string(timeout.count()) + " ms",
                "check that tnr-gpu-server runs there, that the port is open, and that the key that this "
                "computer has for it is enrolled"};
    }
    Error no_way() const {
        return {
            Error::Kind::network, "cannot connect to the pool at " + endpoint_,
            "its host refuses, or cannot be reached from here: check the address, and that tnr-gpu-server runs there"};
    }
    Error refused() const {
        return {
            Error::Kind::auth, "the pool at " + endpoint_ + " does not let in the key that this computer has for it",
            "it may have been removed, or replaced by a newer one: sign in again with a new token, `tnr login pool`; "
            "the pool's operator sees why in its audit log"};
    }

    std::string endpoint_;
    wire::ClientKeys keys_;
    const bool says_so_;                              // Refused
    milliseconds connect_timeout_ = default_timeout;  // and what ends it earlier
    std::function<bool()> enough_;
    std::unique_ptr<zmq::context_t> context_;
    std::unique_ptr<zmq::socket_t> socket_;
    std::unique_ptr<wire::Monitor> monitor_;
    std::optional<std::string> newer_pool_key_;
    // As far as the monitor told: our connection; that there is none to be had; our key, when last it was tried.
    bool ended_ = false, no_way_ = false, refused_ = false;
    uint64_t last_id_ = 0;
};

// Follows from node to node.
class PoolClient : public Client {
public:
    PoolClient(std::string endpoint, const wire::ClientKeys& keys, Refused refused)
        : keys_(keys), refused_(refused), home_(std::make_unique<SocketClient>(std::move(endpoint), keys, refused)) {}

    const std::string& address() const override { return current().address(); }

    Result<json> request(json request, std::chrono::milliseconds timeout) override try {
        std::optional<Error> trouble;
        for (int hops = 0, failed = 0; hops <= hops_max && failed < 2;) {
            if (follows(request)) request["hops"] = hops;
            auto answer = current().request(request, timeout);
            const bool lost =
                !answer && (answer.error().kind == Error::Kind::network || answer.error().kind == Error::Kind::auth);
            if (lost && away_) {
                trouble = answer.error();  // that node may be gone, or not know us; the first one knows
                away_ = nullptr;
                ++failed;
                continue;
            }
            if (!answer || !answer->contains("redirect")) return answer;
            ++hops;
            auto& node = answer->at("redirect");
            wire::ClientKeys keys{node.at("server_key").get<std::string>(), keys_.own};
            // Only pools without keys have nodes without: a secret must not be lost to a node that says so.
            if (keys.plain() != keys_.plain())
                return Error{Error::Kind::remote, "the pool sends us to a node that has no key"};
            trouble = Error{Error::Kind::remote, "the pool's nodes send us from one to the other", "try again"};
            if (auto room = wire::room_for(connection_threads, connection_descriptors); !room) return room.error();
            away_ = std::make_unique<SocketClient>(node.at("address").get<std::string>(), keys, refused_);
        }
        return *trouble;
    } catch (const zmq::error_t& error) {
        return Error{Error::Kind::remote,
                     std::string("the pool sends us to a node that has no address: ") + error.what()};
    } catch (const json::exception& error) {
        return Error{Error::Kind::remote, std::string("the pool answered nonsense: ") + error.what()};
    }

    void wait_for_connection(std::chrono::milliseconds at_most, std::function<bool()> enough) override {
        home_->wait_for_connection(at_most, std::move(enough));
    }

    // Other nodes' keys come with the redirect.
    std::optional<std::string> newer_pool_key() const override { return home_->newer_pool_key(); }

    void abandon() override {
        home_->abandon();
        if (away_) away_->abandon();
    }

private:
    static constexpr int hops_max = 6;  // more than a server sends a request on
    static bool follows(const json& request) {
        auto op = request.value("op", "");
        return op == "describe" || op == "session" || op == "nvml" || op == "release";
    }
    Client& current() const { return away_ ? *away_ : *home_; }

    wire::ClientKeys keys_;
    const Refused refused_;
    std::unique_ptr<SocketClient> home_, away_;
};

}  // namespace

Result<std::unique_ptr<Client>> Client::open(const std::string& endpoint, const wire::ClientKeys& keys,
                                             Refused refused) try {
    if (auto room = wire::room_for(connection_threads, connection_descriptors); !room) return room.error();
    return std::unique_ptr<Client>(std::make_unique<PoolClient>(endpoint, keys, refused));
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::usage, "'" + endpoint + "' is no pool address: " + error.what(),
                 "it looks like tcp://host:14900"};
}

}  // namespace tnr::control
