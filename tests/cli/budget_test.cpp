// `tnr budget`, and what `tnr start` makes of one.
#include "cli/money/budget.hpp"

#include "cli/ui/time.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("a budget is an amount, perhaps a currency, and a period", "[cli][budget]") {
    struct {
        const char* text;
        double amount;
        const char *currency, *period;
    } good[] = {{"50/month", 50, "", "month"},
                {"20EUR/month", 20, "EUR", "month"},
                {"0.5 eur/day", 0.5, "EUR", "day"},
                {"$2/day", 2, "USD", "day"},
                {"0/month", 0, "", "month"}};
    for (const auto& each : good) {
        auto budget = cli::parse_budget(each.text);
        REQUIRE(budget);
        CHECK(budget->amount == each.amount);
        CHECK(budget->currency == each.currency);
        CHECK(budget->period == each.period);
    }
    for (const char* text : {"", "50", "/month", "50/year", "-1/month", "nan/month", "inf/day", "50euros/month",
                             "$5EUR/day", "$", "/", "5E1R/day"})
        CHECK_FALSE(cli::parse_budget(text));
}

TEST_CASE("start warns at 80 %, refuses at 100 %, and obeys --over-budget", "[cli][budget]") {
    test::FakeSession fake;
    auto now = [&](const char* time) { fake.session.now = [time] { return time; }; };
    REQUIRE(fake.tnr({"budget", "set", "1/month"}) == 0);
    CHECK(fake.out.str() == "all together: 0 of 1 this month (0 %)\n");
    fake.start_demo();  // $0.25 an hour
    now("2026-01-02T06:34:05Z");
    REQUIRE(fake.tnr({"start", "second", "--gpu", "h100"}) == 0);
    CHECK(fake.err.str().find("warning: the budget is nearly used up, or more: all together: $0.88 of $1.00 this month "
                              "(87 %)") != std::string::npos);
    now("2026-01-02T07:04:05Z");
    CHECK(fake.tnr({"start", "third", "--gpu", "h100"}) == 2);
    CHECK(fake.err.str().find("the budget is used up: ") != std::string::npos);
    CHECK(fake.err.str().find("`--over-budget`") != std::string::npos);
    CHECK(fake.world.created == 2);
    CHECK(fake.world.enrolled.count("third") == 0);
    CHECK(fake.tnr({"start", "second"}) == 0);  // it runs and costs that already
    REQUIRE(fake.tnr({"stop", "second"}) == 0);
    CHECK(fake.tnr({"start", "second"}) == 2);
    CHECK(fake.tnr({"start", "second", "--over-budget"}) == 0);
    CHECK(fake.document({"billing"})["budgets"][0]["share"] > 1.0);
    now("2026-02-01T00:00:00Z");
    CHECK(fake.tnr({"start", "third", "--gpu", "h100"}) == 0);  // a new month
}

namespace {

bool machine_knows(const test::FakeSession& fake, const std::string& from, const std::string& until) {
    auto has = [&](const char* name, const std::string& time) {
        const int64_t seconds = time.empty() ? 0 : *ui::seconds_of(time);
        return fake.world.timers.find(name + std::to_string(seconds) + "\n") != std::string::npos;
    };
    return has("\nbudget_from=", from) && has("\nbudget_until=", until);
}

}  // namespace

TEST_CASE("a machine is told when its budget will be used up, and goes off then when it idles", "[cli][budget]") {
    test::FakeSession fake;
    REQUIRE(fake.tnr({"budget", "set", "1/month"}) == 0);
    REQUIRE(fake.tnr({"start", "demo", "--gpu", "h100"}) == 0);  // $0.25 an hour
    CHECK(machine_knows(fake, "2026-01-02T07:04:05Z", "2026-02-01T00:00:00Z"));
    CHECK(fake.out.str().find("switches itself off when nobody has used it for 15 min once its budget is used up, on "
                              "2026-01-02T07:04:05Z as it looks") != std::string::npos);
    CHECK(fake.document({"status"})["machines"][0]["budget_ends"] == "2026-01-02T07:04:05Z");
    CHECK(fake.world.told.empty());
    REQUIRE(fake.tnr({"start", "second", "--gpu", "h100", "--idle-stop", "5m"}) == 0);
    CHECK(machine_knows(fake, "2026-01-02T05:04:05Z", "2026-02-01T00:00:00Z"));  // both together
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.world.told == std::vector<std::string>{"demo"});
    CHECK(fake.err.str().find("warning") == std::string::npos);
    fake.session.now = [] { return "2026-01-02T06:04:05Z"; };
    REQUIRE(fake.tnr({"status"}) == 0);  // they know already
    CHECK(fake.world.told.size() == 1);
    CHECK(fake.err.str().find("warning: the budget is used up: all together: $1.50 of $1.00 this month (150 %)\n"
                              "warning: 'demo' switches itself off when nobody has used it for 15 min\n"
                              "warning: 'second' switches itself off when nobody has used it for 5 min\n") !=
          std::string::npos);
    REQUIRE(fake.tnr({"budget", "set", "1000/month"}) == 0);
    CHECK(fake.world.told == std::vector<std::string>{"demo", "demo", "second"});
    CHECK(machine_knows(fake, "", ""));  // not within this month
    CHECK(fake.document({"status"})["machines"][0]["budget_ends"].is_null());
}

TEST_CASE("a machine without timers hears of a budget that is set afterwards, and of its end", "[cli][budget]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.session.now = [] { return "2026-01-02T05:04:05Z"; };
    fake.world.fails_at = "change_timers";
    REQUIRE(fake.tnr({"budget", "set", "$0.5/day"}) == 0);
    CHECK(fake.err.str().find("'demo' could not be told that its budget is used up: the fake fails") !=
          std::string::npos);
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(machine_knows(fake, "2026-01-02T05:04:05Z", "2026-01-03T00:00:00Z"));
    {
        auto lock = fake.session.records().lock("demo");  // another tnr is at work on it
        REQUIRE(fake.tnr({"budget", "remove"}) == 0);
        CHECK(fake.world.told.size() == 1);
    }
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(machine_knows(fake, "", ""));
    REQUIRE(fake.tnr({"budget", "set", "0/month", "--provider", "tcp://127.0.0.1:14900"}) == 0);
    CHECK(machine_knows(fake, "2026-01-02T05:04:05Z", "2026-02-01T00:00:00Z"));
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    const auto told = fake.world.told.size();
    REQUIRE(fake.tnr({"budget", "remove", "--provider", "tcp://127.0.0.1:14900"}) == 0);
    CHECK(fake.world.told.size() == told);  // it is off: the next start tells it
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    CHECK(machine_knows(fake, "", ""));
}

TEST_CASE("a machine that was started with --over-budget is left to idle, until it is started without",
          "[cli][budget]") {
    test::FakeSession fake;
    REQUIRE(fake.tnr({"budget", "set", "0/month"}) == 0);
    REQUIRE(fake.tnr({"start", "demo", "--gpu", "h100", "--over-budget"}) == 0);
    CHECK(fake.world.timers.empty());
    REQUIRE(fake.tnr({"start", "demo"}) == 0);  // it runs: nothing is decided anew
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.err.str().find("'demo' switches itself off") == std::string::npos);
    CHECK(fake.world.told.empty());
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    REQUIRE(fake.tnr({"budget", "set", "1/day"}) == 0);
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    CHECK(machine_knows(fake, "2026-01-02T07:04:05Z", "2026-01-03T00:00:00Z"));
}

TEST_CASE("a budget counts what the pools' GPUs have cost, also at a pool alone", "[cli][budget]") {
    test::FakeSession fake;
    const std::string pool = "tcp://127.0.0.1:14900";
    fake.session.now = [] { return "2026-01-02T04:00:00Z"; };
    const int64_t hour_ms = 3'600'000, begin_ms = 1'767'312'000'000;  // midnight
    fake.world.books.uses = {{1, "demo", "h100", 2, begin_ms, begin_ms + hour_ms},
                             {2, "demo", "h100", 1, begin_ms - 48 * hour_ms, begin_ms - 47 * hour_ms}};  // in December
    fake.world.books.prices = {{"h100", 0, "USD", 2.0}};
    REQUIRE(fake.tnr({"budget", "set", "4.50/month"}) == 0);
    CHECK(fake.out.str() == "all together: $4.00 of $4.50 this month (88 %)\n");
    REQUIRE(fake.tnr({"budget", "set", "$3/day", "--provider", pool}) == 0);
    REQUIRE(fake.tnr({"budget", "set", "1/month", "--provider", "local"}) == 0);
    auto budgets = fake.document({"billing", "--since", "1h"})["budgets"];  // asks for more than the bill is about
    REQUIRE(budgets.size() == 3);
    CHECK(budgets[0]["spent"] == 4.0);
    CHECK(budgets[1]["spent"] == 4.0);
    CHECK(budgets[2]["spent"] == 0.0);
    CHECK(fake.tnr({"start", "demo", "--gpu", "h100"}) == 2);
    CHECK(fake.err.str().find("the budget is used up: " + pool + ": $4.00 of $3.00 today (133 %)") !=
          std::string::npos);
    CHECK(fake.tnr({"run", "--gpu", "h100", "--", "no-such-program"}) == 2);
    CHECK(fake.err.str().find("the budget is used up: " + pool) != std::string::npos);
    CHECK(fake.tnr({"run", "--gpu", "h100", "--over-budget", "--", "no-such-program"}) == 127);
    CHECK(fake.err.str().find("warning: the budget is nearly used up, or more: " + pool) != std::string::npos);
    for (const char* name : {"TNR_CONFIG", "TNR_POOL", "TNR_GPU"}) ::unsetenv(name);
    CHECK(fake.tnr({"run", "--gpu", "h100", "--dry-run", "--", "no-such-program"}) == 0);
    CHECK(fake.err.str().find("warning: the budget is nearly used up, or more: " + pool) != std::string::npos);
    REQUIRE(fake.tnr({"budget", "remove", "--provider", pool}) == 0);
    CHECK(fake.tnr({"start", "demo", "--gpu", "h100", "--dry-run"}) == 0);
    CHECK(fake.err.str().find("nearly used up, or more: all together: $4.00 of $4.50") != std::string::npos);
    CHECK(fake.tnr({"budget", "set", "1/day", "--provider", "tcp://127.0.0.1:14901"}) == 2);
    CHECK(fake.err.str().find("did you mean '" + pool + "'?") != std::string::npos);
}

TEST_CASE("what a budget cannot know is said to be unknown", "[cli][budget]") {
    test::FakeSession fake;
    fake.world.books.uses = {{1, "demo", "h100", 1, 1'767'312'000'000, 1'767'312'060'000}};  // without a price
    REQUIRE(fake.tnr({"budget", "set", "$10/month"}) == 0);
    CHECK(fake.out.str() == "all together: $0.00 + unknown of $10.00 this month (0 %)\n");
    fake.world.books.uses.clear();
    fake.world.books.silent = {"gpu2"};
    CHECK(fake.document({"budget", "show"})["budgets"][0]["partial"] == true);
    CHECK(fake.tnr({"start", "demo", "--gpu", "h100"}) == 0);
    CHECK(fake.err.str().find("warning: how much of the budget is used is not wholly known: all together: $0.00 + "
                              "unknown of $10.00") != std::string::npos);
    REQUIRE(fake.tnr({"budget", "set", "$10/month", "--provider", "local"}) == 0);
    REQUIRE(fake.tnr({"budget", "remove"}) == 0);
    CHECK(fake.document({"budget", "show"})["budgets"][0]["partial"] == false);  // no pool's matter
}

TEST_CASE("a budget may be for one provider and one currency", "[cli][budget]") {
    test::FakeSession fake;
    fake.session.provider_names = {"local", "hetzner"};
    REQUIRE(fake.tnr({"budget", "set", "0.1EUR/day"}) == 0);
    REQUIRE(fake.tnr({"budget", "set", "$0.1/day", "--provider", "hetzner"}) == 0);
    fake.start_demo();
    fake.session.now = [] { return "2026-01-02T23:00:00Z"; };
    CHECK(fake.tnr({"start", "second", "--gpu", "h100"}) == 0);  // dollars, at another provider
    CHECK(fake.tnr({"budget", "set", "1/day", "--provider", "hetzer"}) == 2);
    CHECK(fake.err.str().find("did you mean 'hetzner'?") != std::string::npos);
    auto budgets = fake.document({"budget", "show"})["budgets"];
    REQUIRE(budgets.size() == 2);
    CHECK(budgets[0]["currency"] == "EUR");
    CHECK(budgets[0]["spent"] == 0.0);
    CHECK(budgets[1]["currency"] == "USD");
    CHECK(budgets[1]["spent"] == 0.0);  // the dollars were spent at local
    REQUIRE(fake.tnr({"budget", "remove"}) == 0);
    CHECK(fake.document({"budget", "remove", "--provider", "hetzner"})["budgets"].empty());
    CHECK(fake.tnr({"budget", "remove"}) == 1);
    CHECK(fake.document({"budget", "set", "1/day"})["budgets"].size() == 1);
}
