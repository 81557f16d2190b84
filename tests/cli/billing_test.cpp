// `tnr billing`.
#include "cli/money/bill.hpp"
#include "cli/ui/time.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

// Two machines of January: 'demo' ran from the 2nd 03:04:05 for 30 h and was stopped; 'other' ran one hour and is deleted.
struct Spent {
    test::FakeSession fake;
    void at(const std::string& time) {
        fake.session.now = [time] { return "2026-01-" + time + ":05Z"; };
    }
    Spent() {
        REQUIRE(fake.tnr({"start", "demo", "--gpu", "h100:2", "--tag", "project=x", "--tag", "who=me"}) == 0);
        at("03T08:04");
        REQUIRE(fake.tnr({"start", "other", "--gpu", "a100"}) == 0);
        at("03T09:04");
        REQUIRE(fake.tnr({"stop", "demo"}) == 0);
        REQUIRE(fake.tnr({"delete", "other", "--yes"}) == 0);
        at("05T00:00");
    }
    std::map<std::string, double> bill(std::vector<std::string> words) {
        words.insert(words.begin(), "billing");
        const auto document = fake.document(words);
        std::map<std::string, double> amounts;
        for (const auto& line : document["lines"])
            amounts[line["name"]] =
                line["cost"]["amounts"].empty() ? 0 : line["cost"]["amounts"][0]["amount"].get<double>();
        return amounts;
    }
};

using Amounts = std::map<std::string, double>;

}  // namespace

TEST_CASE("billing sums up by machine, GPU, provider, tag and day, deleted machines too", "[cli][billing]") {
    Spent spent;
    CHECK(spent.fake.document({"billing"})["total"]["amounts"] == json{{{"currency", "USD"}, {"amount", 7.75}}});
    CHECK(spent.bill({}) == Amounts{{"demo", 7.5}, {"other", 0.25}});
    CHECK(spent.bill({"--by", "gpu"}) == Amounts{{"h100:2", 7.5}, {"a100", 0.25}});
    CHECK(spent.bill({"--by", "provider"}) == Amounts{{"local", 7.75}});
    CHECK(spent.bill({"--by", "tag"}) == Amounts{{"project=x", 7.5}, {"who=me", 7.5}, {"no tag", 0.25}});
    auto days = spent.bill({"--by", "day"});
    CHECK(days.size() == 5);  // the 5th has begun
    CHECK(days["2026-01-01"] == 0);
    CHECK(std::abs(days["2026-01-02"] + days["2026-01-03"] - 7.75) < 1e-9);
    CHECK(spent.bill({"--since", "2026-01-03"})["demo"] == Approx(0.25 * (9 + 4 / 60.0 + 5 / 3600.0)));
    CHECK(spent.bill({"--until", "2026-01-03T03:04:05Z"}) == Amounts{{"demo", 6.0}});
    CHECK(spent.bill({"--since", "24h"})["demo"] == 0);
}

TEST_CASE("billing as people read it has a bar for each day, and says where its history begins", "[cli][billing]") {
    Spent spent;
    REQUIRE(spent.fake.tnr({"billing", "--by", "day", "--since", "2026-01-02"}) == 0);
    INFO(spent.fake.out.str());
    CHECK(spent.fake.out.str().find(
              "2026-01-02  20 h 55 min  -            -    $5.23  ██████████████████████████████\n") !=
          std::string::npos);
    CHECK(spent.fake.out.str().find("\ntotal  ") != std::string::npos);
    REQUIRE(spent.fake.tnr({"billing"}) == 0);
    INFO(spent.fake.out.str());
    CHECK(spent.fake.out.str() ==
          "NAME   RUNNING  STOPPED      GPU  COST\n"
          "demo   30 h     38 h 56 min  -    $7.50\n"
          "other  1 h      -            -    $0.25\n"
          "total  31 h     38 h 56 min  -    $7.75\n");
    CHECK(spent.fake.err.str().find("this computer's history begins") != std::string::npos);
    test::FakeSession without_machines;
    REQUIRE(without_machines.tnr({"billing"}) == 0);
    CHECK(without_machines.err.str().find("this computer has seen no machine yet") != std::string::npos);
    CHECK(cli::bar(1.0 / 16, 2) == "▏");
    CHECK(cli::bar(0.5, 4) == "██");
}

namespace {

int64_t january_ms(const std::string& time) {
    return *ui::seconds_of("2026-01-" + time + ":00Z") * 1000;
}

// GPU time in the same days: 2 x h100 by 'demo' for 3 h across midnight of the 3rd, at $2 until 23:00, then at $3; an a100,
// which never had a price, by two `tnr run`; and a claim of December.
void use_gpus(test::FakeWorld& world) {
    world.books.prices = {{"h100", january_ms("01T00:00"), "USD", 2.0},
                          {"t4", january_ms("01T00:00"), "USD", 9.0},
                          {"h100", january_ms("02T23:00"), "USD", 3.0},
                          {"h100", january_ms("04T00:00"), "USD", {}}};
    world.books.uses = {{1, "demo", "h100", 2, january_ms("02T22:00"), january_ms("03T01:00"), true, 500, 50},
                        {2, "run-laptop-12", "a100", 1, january_ms("03T10:00"), january_ms("03T11:00"), true, 7, 1},
                        {3, "run-laptop-13", "a100", 1, january_ms("03T12:00"), january_ms("03T13:00"), true},
                        {4, "old", "h100", 1, january_ms("01T00:00") - 7'200'000, january_ms("01T00:00"), true}};
}

}  // namespace

TEST_CASE("GPU time of the pool's ledger is in the bill, at the price as it was then", "[cli][billing]") {
    Spent spent;
    use_gpus(spent.fake.world);
    auto document = spent.fake.document({"billing"});
    // 2 GPUs: 1 h at $2, 2 h at $3; beside the machines' $7.75.
    CHECK(document["total"]["amounts"] == json{{{"currency", "USD"}, {"amount", 23.75}}});
    CHECK(document["total"]["hours_gpu"] == 8.0);
    CHECK(document["total"]["hours_unknown"] == 2.0);
    REQUIRE(document["pools"].size() == 1);
    CHECK(document["pools"][0]["claims"] == 3);
    CHECK(document["pools"][0]["cost"]["amounts"][0]["amount"] == 16.0);
    CHECK(document["pools"][0]["bytes_up"] == 507);
    CHECK(spent.bill({}) == Amounts{{"demo", 23.5}, {"other", 0.25}, {"tnr run on laptop", 0}});
    CHECK(spent.bill({"--by", "gpu"}) == Amounts{{"h100:2", 23.5}, {"a100", 0.25}});
    CHECK(spent.bill({"--by", "provider"}) == Amounts{{"local", 7.75}, {"tcp://127.0.0.1:14900", 16}});
    CHECK(spent.bill({"--by", "tag"}) == Amounts{{"project=x", 23.5}, {"who=me", 23.5}, {"no tag", 0.25}});
    auto days = spent.bill({"--by", "day"});
    CHECK(std::abs(days["2026-01-02"] + days["2026-01-03"] - 23.75) < 1e-9);
    CHECK(spent.bill({"--by", "day", "--since", "2026-01-03"})["2026-01-03"] ==
          Approx(6 + 0.25 + 0.25 * (9 + 4 / 60.0 + 5 / 3600.0)));
    CHECK(spent.bill({"--until", "2026-01-02T22:30:00Z"})["demo"] == Approx(2 + 0.25 * (19 + 25 / 60.0 + 55 / 3600.0)));
    CHECK(spent.bill({"--since", "2025-12-31T23:00:00Z"})["old"] == 0);  // there was no price yet
    CHECK(spent.bill({"--since", "0001-01-01"}) == spent.bill({"--since", "1970-01-01"}));
    CHECK(spent.bill({"--since", "0001-01-01"})["demo"] == 23.5);
    CHECK(spent.bill({"--until", "1960-01-01"}).empty());
    REQUIRE(spent.fake.tnr({"billing"}) == 0);
    INFO(spent.fake.out.str());
    CHECK(spent.fake.out.str().find("\ntnr run on laptop  -        -            2 h  unknown\n") != std::string::npos);
}

TEST_CASE("a pool that does not tell is named, and hides nothing else", "[cli][billing]") {
    Spent spent;
    use_gpus(spent.fake.world);
    spent.fake.world.old_pool = true;
    CHECK(spent.bill({}) == Amounts{{"demo", 7.5}, {"other", 0.25}});
    CHECK(spent.fake.err.str().find("the pool at tcp://127.0.0.1:14900 does not tell") != std::string::npos);
    spent.fake.world.old_pool = false;
    spent.fake.world.pool_reachable = false;
    CHECK(spent.bill({}) == Amounts{{"demo", 7.5}, {"other", 0.25}});
    CHECK(spent.fake.document({"billing"})["errors"][0]["about"] == "tcp://127.0.0.1:14900");
    // Nor is what it would have told taken for nothing.
    for (const char* by : {"machine", "day", "gpu", "tag"}) {
        auto document = spent.fake.document({"billing", "--by", by});
        CHECK(document["total"]["partial"] == true);
        for (const auto& line : document["lines"]) CHECK(line["cost"]["partial"] == true);
        REQUIRE(spent.fake.tnr({"billing", "--by", by}) == 1);
        CHECK(spent.fake.out.str().find("$7.75 + unknown") != std::string::npos);
    }
    auto providers = spent.fake.document({"billing", "--by", "provider"})["lines"];
    REQUIRE(providers.size() == 2);
    for (const auto& line : providers) CHECK(line["cost"]["partial"] == (line["name"] != "local"));
    REQUIRE(spent.fake.tnr({"billing", "--until", "1960-01-01"}) == 1);
    CHECK(spent.fake.out.str().find("Unknown: a pool does not tell") == 0);
    spent.fake.world.pool_reachable = true;
    CHECK(spent.fake.document({"billing"})["total"]["partial"] == false);
}

TEST_CASE("an operator sees what everyone used, by user, and which node's part is missing", "[cli][billing]") {
    Spent spent;
    use_gpus(spent.fake.world);
    for (auto& use : spent.fake.world.books.uses) use.user = use.id == 1 ? "alice" : "bob";
    CHECK(spent.bill({}) == Amounts{{"demo", 7.5}, {"other", 0.25}});
    CHECK(spent.fake.document({"billing", "--everyone"})["errors"][0]["kind"] == "auth");
    REQUIRE(spent.fake.tnr({"billing", "--everyone"}) == 4);
    CHECK(spent.fake.out.str() == "Unknown: you may not ask a pool for this\n");
    CHECK(spent.fake.err.str().find("only an operator may ask") != std::string::npos);
    spent.fake.world.pool_operator = true;
    spent.fake.world.books.silent = {"gpu-2"};
    CHECK(spent.bill({"--everyone"}) == Amounts{{"alice", 16}, {"bob", 0}});
    CHECK(spent.fake.document({"billing", "--everyone"})["pools"][0]["silent"] == json{"gpu-2"});
    REQUIRE(spent.fake.tnr({"billing", "--everyone"}) == 0);
    CHECK(spent.fake.err.str().find("node 'gpu-2' of the pool at tcp://127.0.0.1:14900 does not answer") !=
          std::string::npos);
}

TEST_CASE("the cloud's own figure stands beside ours, with the difference", "[cli][billing]") {
    Spent spent;
    spent.fake.world.costs = Costs{"USD", 9.0, 12.5, "invoices", "2026-01-04T00:00:00Z"};
    auto cloud = spent.fake.document({"billing"})["clouds"][0];
    CHECK(cloud["ours_this_month"] == 7.75);
    CHECK(cloud["theirs_this_month"] == 9.0);
    CHECK(cloud["difference"] == 1.25);
    REQUIRE(spent.fake.tnr({"billing"}) == 0);
    CHECK(spent.fake.out.str().find("local       $7.75  $9.00       $1.25       $12.50   2026-01-04\n") !=
          std::string::npos);
    spent.fake.world.costs = Costs{"EUR", 9.0, {}, "", ""};  // nothing of ours is in euros
    CHECK(spent.fake.document({"billing"})["clouds"][0]["ours_this_month"] == 0);
}

TEST_CASE("a bill by day has each day of its time, also the last one where that began later in the day",
          "[cli][billing]") {
    Spent spent;
    std::vector<std::string> days;
    for (const auto& [day, amount] :
         spent.bill({"--by", "day", "--since", "2026-01-02T12:00", "--until", "2026-01-04T06:00"}))
        days.push_back(day);
    CHECK(days == std::vector<std::string>{"2026-01-02", "2026-01-03", "2026-01-04"});
}

TEST_CASE("billing refuses times and groups that are none", "[cli][billing]") {
    test::FakeSession fake;
    for (std::vector<std::string> words :
         std::vector<std::vector<std::string>>{{"--by", "hour"},
                                               {"--since", "yesterday"},
                                               {"--until", "2026-13-01"},
                                               {"--since", "7w"},
                                               {"--since", "2026-01-02", "--until", "2026-01-01"}}) {
        words.insert(words.begin(), "billing");
        CHECK(fake.tnr(words) == 2);
    }
    CHECK(fake.tnr({"billing"}) == 0);
    CHECK(fake.out.str() == "Nothing was spent, as far as this computer knows\n");
    CHECK(*cli::parse_when("", "2d", 200'000) == 200'000 - 2 * 86'400);
    CHECK(*cli::parse_when("", "90m", 200'000) == 200'000 - 90 * 60);
    REQUIRE(fake.tnr({"billing", "--since", "2026-01-03"}) == 2);  // it is the 2nd
    CHECK(fake.err.str().find("--since is in the future") != std::string::npos);
}

TEST_CASE("times are what is written, and none that there are not", "[cli][billing]") {
    auto when = [](const std::string& text) {
        auto time = cli::parse_when("--since", text, 0);
        return time ? ui::utc_text(*time) : time.error().what;
    };
    auto none = [&](const std::string& text) { return when(text) == "--since is no time: '" + text + "'"; };
    CHECK(when("2026-11-01") == "2026-11-01T00:00:00Z");
    CHECK(when("2026-11-01T09:30") == "2026-11-01T09:30:00Z");
    CHECK(when("2026-11-01 09:30:15Z") == "2026-11-01T09:30:15Z");
    CHECK(when("2026-11-01T01:30:00+05:30") == "2026-10-31T20:00:00Z");
    CHECK(when("2026-11-01T01:30-0800") == "2026-11-01T09:30:00Z");
    CHECK(when("2026-11-01T01:30+02") == "2026-10-31T23:30:00Z");
    CHECK(when("2028-02-29") == "2028-02-29T00:00:00Z");
    // An hour that New York does not have that day, and one that it has twice.
    for (const char* zone : {"America/New_York", "Pacific/Kiritimati", ":nonsense", "X-25:99"}) {
        setenv("TZ", zone, 1);
        tzset();
        CHECK(when("2026-03-08T02:30") == "2026-03-08T02:30:00Z");
        CHECK(when("2026-11-01T01:30") == "2026-11-01T01:30:00Z");
    }
    unsetenv("TZ");
    tzset();
    for (const char* text : {"2026-02-29",
                             "2026-02-31",
                             "2026-04-31T10:00:00Z",
                             "2100-02-29",
                             "2026-00-10",
                             "2026-1-2",
                             "2026-11-01T24:00",
                             "2026-11-01T10:60",
                             "2026-11-01T10",
                             "2026-11-01T10:00:61",
                             "2026-11-01T10:00+15:00",
                             "2026-11-01T10:00+5",
                             "2026-11-01T10:00ZZ",
                             "2026-11-01Z",
                             " 2026-11-01",
                             "-026-11-01",
                             "2026-11-01T-1:00",
                             "26-11-01",
                             "",
                             "d",
                             "-1d",
                             "1.5d",
                             "99999999999d",
                             "+3h"}) {
        INFO(text);
        CHECK(none(text));
    }
}
