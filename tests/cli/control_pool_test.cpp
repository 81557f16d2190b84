// The pool over its control messages, while signals come.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <thread>

#include "api_client/base/interrupt.hpp"
#include "cli/pool.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

// A pool that accepts and never says a word.
struct DeafPool {
    UniqueFd socket{::socket(AF_INET, SOCK_STREAM, 0)};
    std::string address;
    DeafPool() {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof name;
        REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), length) == 0);
        REQUIRE(::listen(socket.get(), 4) == 0);
        REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0);
        address = "tcp://127.0.0.1:" + std::to_string(ntohs(name.sin_port));
    }
    // What types() says when something happens meanwhile, and after how long.
    std::pair<Error, ssh::Clock::duration> asked(const std::function<void()>& meanwhile) const {
        auto pool = cli::connect_pool({address, {}});
        REQUIRE(pool);
        auto begun = ssh::Clock::now();
        UniqueFd connection;
        std::thread other([&] {
            connection = UniqueFd{::accept(socket.get(), nullptr, nullptr)};  // it is being asked now
            meanwhile();
        });
        auto types = (*pool)->types();
        other.join();
        REQUIRE_FALSE(types);
        return {types.error(), ssh::Clock::now() - begun};
    }
};

}  // namespace

TEST_CASE("Ctrl-C ends the waiting for a pool at once, and is told as that", "[cli][pool]") {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    interrupt::install();
    DeafPool pool;
    auto [error, took] = pool.asked([] { ::kill(::getpid(), SIGINT); });
    CHECK(error.what == "interrupted");
    CHECK(interrupt::exit_code() == 130);
    CHECK(took < 4s);
    interrupt::clear_for_test();
}

TEST_CASE("a signal that is none of ours is not noticed while a pool is asked", "[cli][pool]") {
    struct sigaction heard {
    }, before{};
    heard.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &heard, &before);
    DeafPool pool;
    auto [error, took] = pool.asked([] { ::kill(::getpid(), SIGUSR1); });
    ::sigaction(SIGUSR1, &before, nullptr);
    CHECK(error.kind == Error::Kind::network);
    CHECK(error.what.find("no answer from the pool at " + pool.address) == 0);
}
