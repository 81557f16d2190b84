// A server of pages for reading: one thread, every connection in one poll(), one request each. What anybody can make it hold
// is in limits.hpp. It knows nothing of what it serves.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"
#include "gpu_server/watch/http_request.hpp"

namespace tnr::watch {

struct HttpAnswer {
    int status = 200;
    const char* type = "text/plain; charset=utf-8";
    std::shared_ptr<const std::string> body;  // connections share it
};

class HttpServer {
public:
    // Called on the server's thread; while it runs, nobody else is served.
    using Answering = std::function<HttpAnswer(const HttpRequest&)>;

    // `listeners`: sockets that listen. Make it when signals are blocked.
    static Result<std::unique_ptr<HttpServer>> start(std::vector<UniqueFd> listeners, Answering answering);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

private:
    using Clock = std::chrono::steady_clock;
    struct Connection {
        enum class State { reading, answering, leaving };
        State state = State::reading;
        UniqueFd socket;
        std::string source;  // the address that it comes from
        Clock::time_point deadline;
        std::string received;
        std::string head = {};
        std::shared_ptr<const std::string> body = {};  // null: only the head
        size_t sent = 0;
        bool over = false;
    };

    HttpServer(std::vector<UniqueFd> listeners, Answering answering, UniqueFd wake)
        : listeners_(std::move(listeners)), answering_(std::move(answering)), wake_(std::move(wake)) {}
    void run();
    bool run_once();
    void accept_some(int listener);
    void make_room();
    void react(Connection& connection);
    void read(Connection& connection);
    void answer(Connection& connection, const HttpAnswer& answer, bool with_body);
    void write(Connection& connection);
    void leave(Connection& connection);

    std::vector<UniqueFd> listeners_;
    Answering answering_;
    UniqueFd wake_;
    std::list<Connection> connections_;  // those that came first are at the front
    Clock::time_point accepts_again_{};
    std::thread thread_;
};

}  // namespace tnr::watch
