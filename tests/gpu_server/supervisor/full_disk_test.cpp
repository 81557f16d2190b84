// A ledger whose disk is full for a while: what happened meanwhile is in it afterwards, once.
#include "gpu_server/supervisor/limits.hpp"
#include "paper_world.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

TEST_CASE("ends and wipes that a full disk did not take are noted when there is room", "[full-disk]") {
    EventLoop::Clock::time_point now{};
    EventLoop loop{[&now] { return now; }};
    PaperLedger ledger;
    Books books{loop, ledger, "node"};
    auto id = books.begin({});
    REQUIRE(id);
    ledger.full = true;
    books.end(*id, "its last process has ended");
    books.wiped(*id, {1 << 20, 1 << 20, 5});
    auto pass = [&] {
        for (const auto until = now + 3 * alive_interval; now < until; loop.run_once(std::chrono::milliseconds(0)))
            now = std::min(until, std::max(now, loop.next_due().value_or(until)));
    };
    pass();
    CHECK(ledger.open.size() == 1);
    CHECK(ledger.wiped.empty());
    ledger.full = false;
    pass();
    CHECK(ledger.open.empty());
    CHECK(ledger.wiped == std::set<int64_t>{*id});
    CHECK(ledger.wrong.empty());
    CHECK_FALSE(loop.next_due());  // nothing is left to be done
}

TEST_CASE("a wipe alone that was not taken is noted, too", "[full-disk]") {
    EventLoop::Clock::time_point now{};
    EventLoop loop{[&now] { return now; }};
    PaperLedger ledger;
    Books books{loop, ledger, "node"};
    ledger.full = true;
    books.wiped(7, {1 << 20, 1 << 20, 5});
    ledger.full = false;
    REQUIRE(loop.next_due());
    now = *loop.next_due();
    loop.run_once(std::chrono::milliseconds(0));
    CHECK(ledger.wiped == std::set<int64_t>{7});
}
