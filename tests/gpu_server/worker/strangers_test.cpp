// Whoever reaches a worker's port: what strangers make it hold, and that the client comes in all the same.
#include "gpu_server/worker/strangers.hpp"

#include <poll.h>

#include "gpu_server/pool/zap.hpp"
#include "gpu_server/worker/limits.hpp"
#include "tests/gpu_client/protocol/ends.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;
using worker::Strangers, worker::strangers_max;

namespace {

UniqueFd connect_from(uint32_t host, uint16_t port) {
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(host);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
    REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    return socket;
}

// Those that have not been ended within a moment: ZeroMQ greets each, and says no more.
size_t open_ones(const std::vector<UniqueFd>& sockets) {
    size_t open = 0;
    for (auto& socket : sockets) {
        char bytes[256];
        ssize_t size = 1;
        for (pollfd item{socket.get(), POLLIN, 0}; size > 0 && poll(&item, 1, 20) == 1;)
            size = recv(socket.get(), bytes, sizeof bytes, 0);
        open += size > 0;
    }
    return open;
}

class Worker {
public:
    Worker() {
        auto welcome = [this](const server::Knock& knock) -> std::optional<std::string> {
            if (knock.public_key != own_.public_key) return std::nullopt;
            strangers_.proven(knock.connection);
            return "client";
        };
        zap_ = std::move(*server::Zap::start(context_, welcome));
        auto served = wire::Channel::serve(context_, listening(port), keys_, "session", 0, strangers_.hooks());
        REQUIRE(served);
        link_ = std::make_unique<wire::Link>(std::move(*served));
    }
    wire::ClientKeys client() const { return {keys_.public_key, own_}; }
    bool hears_of_the_client() { return next_event(*link_) == wire::Link::Event::connected; }
    uint16_t port = 0;

private:
    wire::KeyPair keys_ = wire::make_key_pair(), own_ = wire::make_key_pair();
    Strangers strangers_{keys_.secret_key};  // before the context, whose threads call it to the end
    zmq::context_t context_{1};
    std::unique_ptr<server::Zap> zap_;
    std::unique_ptr<wire::Link> link_;
};

}  // namespace

TEST_CASE("only so many strangers are at a worker's port, and the client is let in beside them", "[strangers]") {
    Worker worker;
    std::vector<UniqueFd> crowd;
    for (size_t i = 0; i < 3 * strangers_max; ++i) crowd.push_back(connect_from(INADDR_LOOPBACK + 1, worker.port));
    zmq::context_t context(1);
    auto client = dialled(context, worker.port, worker.client());
    CHECK(worker.hears_of_the_client());
    CHECK(open_ones(crowd) <= strangers_max);
}

// As ZeroMQ tells of connections, which here are pairs of sockets.
TEST_CASE("of strangers from several addresses those go whose address has most", "[strangers]") {
    Strangers strangers({});
    auto& hooks = *strangers.hooks();
    std::vector<UniqueFd> ours, theirs;
    auto come = [&](const char* address) {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        ours.emplace_back(ends[0]);
        theirs.emplace_back(ends[1]);
        CHECK(hooks.accepted(hooks.hint, ends[0], address) == 1);
        return theirs.size() - 1;
    };
    auto is_open = [&](size_t number) {
        char byte = 0;
        return recv(theirs[number].get(), &byte, 1, MSG_DONTWAIT) < 0;
    };
    auto one = come("10.0.0.1"), client = come("10.0.0.1"), first = come("10.0.0.2");
    strangers.proven(ours[client].get());
    for (size_t i = 0; i < 2 * strangers_max; ++i) come("10.0.0.2");
    auto last = come("10.0.0.2");
    CHECK(is_open(one));
    CHECK(is_open(client));
    CHECK_FALSE(is_open(first));
    CHECK(is_open(last));
    size_t open = 0;
    for (size_t i = first; i <= last; ++i) open += is_open(i);
    CHECK(open == strangers_max - 1);
    hooks.closed(hooks.hint, ours[one].get());  // leaves room for another
    come("10.0.0.3");
    CHECK(is_open(last - open + 1));
}
