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

TEST_CASE("whoever opens a pool hears of its silence, and of one that was to be short its user does", "[cli][pool]") {
    DeafPool deaf;
    std::vector<bool> heard;
    auto pool =
        cli::connect_pool({deaf.address, {}}, {.answers = [&](bool answers) { heard.push_back(answers); }}, 50ms);
    REQUIRE(pool);
    auto types = (*pool)->types();
    REQUIRE_FALSE(types);
    CHECK(types.error().hint.find("it was silent a moment ago, too") != std::string::npos);
    CHECK(heard == std::vector<bool>{false});
    // One that refuses is not waited for: there is nothing to remember.
    auto refusing = cli::connect_pool({"tcp://127.0.0.1:1", {}}, {.answers = [&](bool) { heard.push_back(true); }});
    REQUIRE(refusing);
    CHECK((*refusing)->types().error().what == "cannot connect to the pool at tcp://127.0.0.1:1");
    CHECK(heard.size() == 1);
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
