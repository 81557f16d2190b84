// What machines have cost: what is written down, and what it comes to.
#include "cli/money/history.hpp"

#include <filesystem>
#include <thread>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "cli/money/costs.hpp"
#include "cli/ui/time.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using cli::Sighting;

namespace {

const Price two_an_hour{.currency = "EUR", .machine = 1.5, .disk = 0.25, .address = 0.25};

Sighting seen(const std::string& at, MachineState state, const Price& price = two_an_hour) {
    return {"2026-01-02T" + at + ":00Z", "hetzner", "17", "demo", state, price};
}

int64_t at(const std::string& time) {
    return *ui::seconds_of("2026-01-02T" + time + ":00Z");
}

}  // namespace

TEST_CASE("the history has a line for each change, and what is on it comes back", "[cli][history]") {
    test::TemporaryFolder folder;
    cli::History history(folder / "state/history.jsonl");
    CHECK(history.all()->sightings.empty());
    auto first = seen("10:00", MachineState::running);
    first.tags = {{"project", "x"}};
    first.gpu = "h100";
    first.gpu_count = 2;
    first.price.disk.reset();
    REQUIRE(history.note({first}));
    REQUIRE(history.note({seen("10:05", MachineState::stopped), first}));
    auto later = first;
    later.at = "2026-01-02T11:00:00Z";
    REQUIRE(history.note({later}));
    auto all = history.all()->sightings;
    REQUIRE(all.size() == 3);  // the last one changed nothing but the time
    CHECK(all[0].tags == first.tags);
    CHECK(all[0].gpu_count == 2);
    CHECK(all[0].price.machine == 1.5);
    CHECK_FALSE(all[0].price.disk);
    CHECK(all[1].state == MachineState::stopped);
    CHECK(std::filesystem::status(folder / "state/history.jsonl").permissions() ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
}

TEST_CASE("nothing to write down is no trouble, also where the history cannot be read", "[cli][history]") {
    test::TemporaryFolder folder;
    std::filesystem::create_directory(folder / "history.jsonl");
    cli::History history(folder / "history.jsonl");
    CHECK_FALSE(history.all());
    CHECK(history.note({}));
    CHECK_FALSE(history.note({seen("10:00", MachineState::running)}));
}

TEST_CASE("a history of years is read and goes on", "[cli][history]") {
    test::TemporaryFolder folder;
    cli::History history(folder / "history.jsonl");
    REQUIRE(history.note({seen("10:00", MachineState::running)}));
    const std::string line = test::read_text(folder / "history.jsonl");
    std::string text;
    while (text.size() <= small_file_bytes_max) text += line;
    test::write_text(folder / "history.jsonl", text);
    REQUIRE(history.note({seen("10:05", MachineState::stopped)}));
    auto all = history.all();
    REQUIRE(all);
    CHECK(all->sightings.size() == text.size() / line.size() + 1);
    CHECK(all->sightings.back().state == MachineState::stopped);
}

TEST_CASE("a line that was cut off costs no other line", "[cli][history]") {
    test::TemporaryFolder folder;
    cli::History history(folder / "history.jsonl");
    REQUIRE(history.note({seen("10:00", MachineState::running)}));
    std::string text = test::read_text(folder / "history.jsonl");
    test::write_text(folder / "history.jsonl", text + text.substr(0, text.size() / 2));
    REQUIRE(history.note({seen("10:05", MachineState::stopped)}));
    auto all = *history.all();
    CHECK(all.damaged == 1);
    REQUIRE(all.sightings.size() == 2);
    CHECK(all.sightings[1].at == "2026-01-02T10:05:00Z");
}

TEST_CASE("a clock that was wrong for a moment makes a machine neither free nor a fortune", "[cli][history]") {
    test::TemporaryFolder folder;
    cli::History history(folder / "history.jsonl");
    auto unset = seen("10:00", MachineState::running), ahead = unset;
    unset.at = "1970-01-01T00:00:07Z";
    ahead.at = "2999-01-01T00:00:00Z";
    auto refused = history.note({unset});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what == "this computer's clock is wrong: it says 1970-01-01T00:00:07Z");
    REQUIRE(history.note({ahead}));
    REQUIRE(history.note({seen("10:00", MachineState::running)}));
    REQUIRE(history.note({seen("11:00", MachineState::running)}));
    auto cost = cli::cost_of(history.all()->sightings, "hetzner", "17", at("12:00"));
    CHECK(cost.hours_running == 2);
    // What older versions of tnr have written down.
    const std::string text = test::read_text(folder / "history.jsonl");
    std::string old = text.substr(0, text.find('\n') + 1);
    test::write_text(folder / "history.jsonl", old.replace(old.find("2999"), 4, "1970") + text);
    auto all = *history.all();
    CHECK(all.damaged == 1);
    CHECK(cli::cost_of(all.sightings, "hetzner", "17", at("12:00")).hours_running == 2);
}

TEST_CASE("what is on the history already needs neither its lock nor room, and Ctrl-C ends the waiting for both",
          "[cli][history]") {
    const test::TemporaryFolder folder;
    cli::History history(folder / "history.jsonl");
    REQUIRE(history.note({seen("10:00", MachineState::running)}));
    const auto held = lock_file(folder / "history.jsonl");
    REQUIRE(held);
    interrupt::raise_for_test();
    const auto known = history.note({seen("10:05", MachineState::running)});
    const auto fresh = history.note({seen("10:05", MachineState::stopped)});
    interrupt::clear_for_test();
    CHECK(known);
    REQUIRE_FALSE(fresh);
    CHECK(fresh.error().what == "interrupted");
}

TEST_CASE("several at once write down a change once", "[cli][history]") {
    test::TemporaryFolder folder;
    std::vector<std::thread> writers;
    for (int i = 0; i < 8; ++i)
        writers.emplace_back([&] {
            for (const char* minute : {"10:00", "10:01", "10:02"})
                (void)cli::History(folder / "history.jsonl").note({seen(minute, MachineState::running)});
        });
    for (auto& writer : writers) writer.join();
    CHECK(cli::History(folder / "history.jsonl").all()->sightings.size() == 1);
}

TEST_CASE("a cost is the time in each state at the price of then", "[cli][history]") {
    auto dearer = two_an_hour;
    dearer.machine = 3.5;
    std::vector<Sighting> all = {seen("10:00", MachineState::starting), seen("10:30", MachineState::running),
                                 seen("12:00", MachineState::stopped), seen("14:00", MachineState::running, dearer),
                                 seen("15:00", MachineState::gone)};
    auto cost = cli::cost_of(all, "hetzner", "17", at("23:00"));
    CHECK(cost.hours_running == 3);
    CHECK(cost.hours_stopped == 2);
    CHECK(cost.in("EUR") == 2 * 2.0 + 2 * 0.5 + 4.0);
    CHECK(cli::money_text(cost) == "9.00 EUR");
    // What is before and after is left out, and what goes on counts to the end.
    cli::Cost part;
    for (const auto& span : cli::spans_of(all, at("11:00"), at("12:30"))) part.add(span);
    CHECK(part.in("EUR") == 2.0 + 0.25);
    all.pop_back();
    CHECK(cli::cost_of(all, "hetzner", "17", at("16:00")).in("EUR") == 5.0 + 8.0);
    CHECK(cli::cost_of(all, "hetzner", "18", at("16:00")).hours_running == 0);
}

TEST_CASE("an unknown price is unknown and not zero, and currencies stay apart", "[cli][history]") {
    Price unknown = two_an_hour;
    unknown.machine.reset();
    Price dollars = two_an_hour;
    dollars.currency = "USD";
    auto cost = cli::cost_of({seen("10:00", MachineState::running), seen("11:00", MachineState::running, dollars),
                              seen("12:00", MachineState::running, unknown)},
                             "hetzner", "17", at("14:00"));
    CHECK(cost.hours_unknown == 2);
    CHECK(cli::money_text(cost) == "2.00 EUR + $2.00 + unknown");
    auto free = cli::cost_of({seen("10:00", MachineState::running, free_of_charge())}, "hetzner", "17", at("14:00"));
    CHECK(cli::money_text(free) == "free");
    CHECK(cli::money_text("USD", 0.0012) == "$0.0012");
    CHECK(cli::money_text("USD", -1.5) == "-$1.50");
}

TEST_CASE("durations are told in two units", "[cli][history]") {
    CHECK(ui::duration_text(59) == "59 s");
    CHECK(ui::duration_text(3599) == "59 min");
    CHECK(ui::duration_text(3600) == "1 h");
    CHECK(ui::duration_text(5 * 3600 + 12 * 60) == "5 h 12 min");
    CHECK(ui::duration_text(76 * 3600) == "3 d 4 h");
    CHECK(ui::utc_text(*ui::seconds_of("2026-01-02T03:04:05Z")) == "2026-01-02T03:04:05Z");
}
