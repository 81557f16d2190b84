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
    CHECK(spent.fake.out.str().find("2026-01-02  20 h 55 min  -            $5.23  ██████████████████████████████\n") !=
          std::string::npos);
    CHECK(spent.fake.out.str().find("\ntotal  ") != std::string::npos);
    REQUIRE(spent.fake.tnr({"billing"}) == 0);
    INFO(spent.fake.out.str());
    CHECK(spent.fake.out.str() ==
          "NAME   RUNNING  STOPPED      COST\n"
          "demo   30 h     38 h 56 min  $7.50\n"
          "other  1 h      -            $0.25\n"
          "total  31 h     38 h 56 min  $7.75\n");
    CHECK(spent.fake.err.str().find("this computer's history begins") != std::string::npos);
    CHECK(cli::bar(1.0 / 16, 2) == "▏");
    CHECK(cli::bar(0.5, 4) == "██");
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
}
