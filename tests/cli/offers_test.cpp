// `tnr offers`, and `tnr start` where it has to choose among them.
#include "api_client/base/interrupt.hpp"
#include "cli/commands/start.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

class Shop : public test::FakeProvider {
public:
    Shop(test::FakeWorld& world, std::string name, std::vector<Offer> offers, bool own_gpus = false)
        : FakeProvider(world), name_(std::move(name)), offers_(std::move(offers)), own_gpus_(own_gpus) {}
    std::string name() const override { return name_; }
    std::string pool_host() const override { return "10.0.2.2"; }
    bool brings_gpus() const override { return own_gpus_; }
    Result<std::vector<Offer>> offers() override {
        if (offers_.empty()) return Error{Error::Kind::network, "no reply from api.example"};
        return offers_;
    }

private:
    std::string name_;
    std::vector<Offer> offers_;
    bool own_gpus_;
};

Offer offer(const std::string& name, const std::string& region, int cpus, int gib, std::optional<double> price,
            const std::string& currency = "EUR") {
    Offer offer{.name = name, .region = region, .cpus = cpus, .memory_mib = gib * 1024, .disk_gib = 40};
    offer.price = {.currency = currency, .machine = price, .disk = 0, .address = 0};
    return offer;
}

struct Market {
    test::FakeSession fake;
    std::map<std::string, std::vector<Offer>> shops = {
        {"local", {offer("small", "", 2, 4, 0, ""), offer("large", "", 8, 16, 0, "")}},
        {"red", {offer("r2", "east", 2, 4, 0.02), offer("r4", "east", 4, 16, 0.05), offer("r1", "east", 1, 1, 0.005)}},
        {"blue", {offer("b4", "west", 4, 16, 0.04), offer("b8", "west", 8, 32, {})}}};

    Market() {
        for (const auto& [name, offers] : shops) fake.session.provider_names.push_back(name);
        fake.session.provider_names = {"local", "red", "blue", "strange"};
        fake.session.provider = [this](const std::string& name) -> Result<std::unique_ptr<Provider>> {
            if (!shops.count(name)) return Error{Error::Kind::auth, "you are not signed in to " + name};
            return std::unique_ptr<Provider>(std::make_unique<Shop>(fake.world, name, shops[name], name == "own"));
        };
    }
    std::vector<std::string> names(std::vector<std::string> words) {
        words.insert(words.begin(), "offers");
        std::vector<std::string> found;
        const auto document = fake.document(words);
        for (const auto& each : document["offers"]) found.push_back(each["name"]);
        return found;
    }
    json order(std::vector<std::string> words) {
        words.insert(words.begin(), {"start", "demo", "--gpu", "h100"});
        (void)fake.tnr(words);
        INFO(fake.err.str());
        auto record = *fake.session.records().find("demo");
        REQUIRE(record);
        return {record->provider, record->size, record->region};
    }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("offers of all clouds stand cheapest first, and what has no price last", "[cli][offers]") {
    Market market;
    CHECK(market.names({}) == Names{"small", "large", "r1", "r2", "b4", "r4", "b8"});
    REQUIRE(market.fake.tnr({"offers", "--cpus", "4", "--region", "west"}) == 0);
    CHECK(market.fake.out.str() ==
          "NAME  PROVIDER  REGION  CPUS  MEMORY    DISK    GPU  PRICE          A MONTH\n"
          "b4    blue      west    4     16.0 GiB  40 GiB  -    0.04 EUR/h     29.2 EUR\n"
          "b8    blue      west    8     32.0 GiB  40 GiB  -    price unknown  price unknown\n");
}

TEST_CASE("offers are filtered, and an amount that is none is named", "[cli][offers]") {
    Market market;
    CHECK(market.names({"--provider", "red"}) == Names{"r1", "r2", "r4"});
    CHECK(market.names({"--region", "west"}) == Names{"b4", "b8"});
    CHECK(market.names({"--cpus", "2", "--memory", "8GiB"}) == Names{"large", "b4", "r4", "b8"});
    CHECK(market.names({"--disk", "41"}) == Names{});
    CHECK(market.names({"--max-price", "0.02"}) == Names{"small", "large", "r1", "r2"});
    CHECK(market.names({"--max-price", "$1"}) == Names{"small", "large"});
    CHECK(market.names({"--max-price", "0.04 eur"}) == Names{"small", "large", "r1", "r2", "b4"});
    for (const char* option : {"--cpus", "--memory", "--disk", "--max-price"}) {
        CHECK(market.fake.tnr({"offers", option, "much"}) == 2);
        CHECK(market.fake.err.str().find(std::string(option) + " ") != std::string::npos);
    }
    CHECK(market.fake.tnr({"offers", "--provider", "strange"}) == 4);
    CHECK(market.fake.document({"offers"})["errors"].empty());  // not signed in there: nothing to say
}

TEST_CASE("currencies are not compared, and a cloud that does not answer is named", "[cli][offers]") {
    Market market;
    market.shops["red"] = {offer("r9", "east", 2, 4, 0.01, "USD"), offer("r8", "east", 2, 4, 0.005, "USD")};
    CHECK(market.names({}) == Names{"small", "large", "b4", "r8", "r9", "b8"});
    CHECK(market.fake.tnr({"start", "demo", "--gpu", "h100", "--cheapest"}) == 2);
    CHECK(market.fake.err.str().find("currencies are not converted") != std::string::npos);
    market.shops["blue"].clear();
    auto document = market.fake.document({"offers"});
    CHECK(document["offers"].size() == 4);
    CHECK(document["errors"][0]["about"] == "blue");
    CHECK(market.fake.tnr({"offers"}) == 1);
}

TEST_CASE("the cheapest is not said to be that where a cloud did not answer", "[cli][offers][start]") {
    Market market;
    market.shops["blue"].clear();
    const std::vector<std::string> words = {"start", "demo", "--gpu", "h100", "--cheapest", "--dry-run"};
    CHECK(market.fake.tnr(words) == 0);
    CHECK(market.fake.err.str().find("note: blue did not tell its offers, and may have cheaper ones: no reply from "
                                     "api.example\nCheapest: red r2") != std::string::npos);
    CHECK(market.fake.document(words)["silent"] == json{"blue"});
    market.shops["blue"] = {offer("b4", "west", 4, 16, 0.04)};
    CHECK(market.fake.document(words)["silent"] == json::array());
}

TEST_CASE("start takes the cheapest machine that has what was asked for", "[cli][offers][start]") {
    Market market;
    SECTION("at all clouds") {
        CHECK(market.order({"--cheapest"}) == json{"red", "r2", "east"});  // r1 has no room for a program
        CHECK(market.fake.err.str().find("Cheapest: red r2 in east: 2 CPUs, 4.0 GiB, 40 GiB disk, 0.02 EUR/h") !=
              std::string::npos);
    }
    SECTION("with more memory") {
        CHECK(market.order({"--cheapest", "--memory", "8"}) == json{"blue", "b4", "west"});
    }
    SECTION("less than usual, when it is said") {
        CHECK(market.order({"--cheapest", "--cpus", "1", "--memory", "1"}) == json{"red", "r1", "east"});
        CHECK(market.fake.err.str().find("r1 in east: 1 CPU, ") != std::string::npos);
    }
    SECTION("none is no size") {
        for (const char* option : {"--cpus", "--memory", "--disk"}) {
            CHECK(market.fake.tnr({"start", "demo", "--gpu", "h100", "--cheapest", option, "0"}) == 2);
            CHECK(market.fake.err.str().find(option + std::string(" needs a number above 0")) != std::string::npos);
            CHECK(market.fake.tnr({"offers", option, "0"}) == 2);
        }
        CHECK(market.fake.tnr({"offers", "--cpus", "8GiB"}) == 2);
        CHECK(market.fake.tnr({"offers", "--memory", "nan"}) == 2);
        CHECK(market.fake.world.created == 0);
    }
    SECTION("at one") {
        CHECK(market.order({"--provider", "red", "--cpus", "4"}) == json{"red", "r4", "east"});
    }
    SECTION("on this computer, where no cloud is named") {
        CHECK(market.order({"--memory", "2"}) == json{"local", "small", ""});
    }
    SECTION("not where machines have GPUs of their own") {
        market.shops["own"] = {offer("o1", "", 4, 16, 0.001)};
        market.fake.session.provider_names.push_back("own");
        CHECK(market.order({"--cheapest"}) == json{"red", "r2", "east"});
    }
    SECTION("none at that price") {
        CHECK(market.fake.tnr({"start", "demo", "--gpu", "h100", "--cheapest", "--max-price", "0.01EUR"}) == 1);
        CHECK(market.fake.world.created == 0);
    }
    SECTION("a size by its name is refused when it costs more") {
        auto start = [&](const char* price) {
            return market.fake.tnr(
                {"start", "demo", "--gpu", "h100", "--provider", "red", "--size", "r4", "--max-price", price});
        };
        CHECK(start("0.04") == 1);
        CHECK(market.fake.world.created == 0);
        CHECK(start("0.05") == 0);
    }
}

TEST_CASE("a start that is repeated keeps the machine that it chose", "[cli][offers][start]") {
    Market market;
    CHECK(market.order({"--cheapest", "--tag", "project=x", "--tag", "owner=me"}) == json{"red", "r2", "east"});
    market.shops["red"] = {offer("r0", "east", 2, 4, 0.001)};
    CHECK(market.order({"--cheapest"}) == json{"red", "r2", "east"});
    CHECK(market.fake.err.str().find("'demo' exists and keeps its size") != std::string::npos);
    CHECK(market.fake.world.created == 1);
    CHECK(market.fake.document({"stop", "demo"})["machines"][0]["tags"] ==
          json{{{"key", "owner"}, {"value", "me"}}, {{"key", "project"}, {"value", "x"}}});
    CHECK(market.fake.tnr({"start", "other", "--gpu", "h100", "--tag", "nothing"}) == 2);
}

TEST_CASE("without options start asks on a terminal, a price beside each choice, and never in a script",
          "[cli][offers][start]") {
    Market market;
    auto& fake = market.fake;
    CHECK(fake.tnr({"start"}) == 2);
    CHECK(fake.err.str().find("`tnr start` needs NAME") != std::string::npos);
    CHECK(fake.tnr({"start", "demo"}) == 2);
    CHECK(fake.err.str().find("--gpu") != std::string::npos);
    fake.session.in_is_terminal = true;
    fake.in.str("\nDemo!\ndemo\n2\nx\n9\n5\n");
    REQUIRE(fake.tnr({"start"}) == 0);
    // What was wrong with an answer is said, and it is asked for again.
    CHECK(fake.err.str().find("called? a name has up to 31 small letters") != std::string::npos);
    CHECK(fake.err.str().find("]: a number from 1 to 2 chooses, Enter alone takes the first\n") == std::string::npos);
    CHECK(fake.err.str().find(" chooses, Enter alone takes the first\n1-7 [1]: a number from 1 to 7 ") !=
          std::string::npos);
    CHECK(fake.err.str().find("  2) a100, 37.3 GiB, 1 of 1 free, price unknown\n") != std::string::npos);
    CHECK(fake.err.str().find("  5) blue b4 in west: 4 CPUs, 16.0 GiB, 40 GiB disk, 0.04 EUR/h\n") !=
          std::string::npos);
    auto record = **fake.session.records().find("demo");
    CHECK(record.gpu == "a100");
    CHECK(record.provider == "blue");
    // Enter takes the first; the end of the input takes nothing.
    fake.in.clear();
    fake.in.str("\n\n");
    REQUIRE(fake.tnr({"start", "second"}) == 0);
    CHECK((*fake.session.records().find("second"))->provider == "local");
    fake.in.clear();
    fake.in.str("1\n");
    CHECK(fake.tnr({"start", "third"}) == 2);
    CHECK(fake.err.str().find("]: \ntnr: nothing was chosen\n") != std::string::npos);
    interrupt::raise_for_test();  // Ctrl-C
    CHECK(fake.tnr({"start"}) == 130);
    interrupt::clear_for_test();
    CHECK(fake.err.str().find("called? \ntnr: interrupted\n") != std::string::npos);
    CHECK(fake.world.created == 2);
    // --yes asks nothing, and an option is answer enough.
    CHECK(fake.tnr({"start", "third", "--yes"}) == 2);
    CHECK(fake.err.str().find("--gpu") != std::string::npos);
    CHECK(fake.tnr({"start", "third", "--gpu", "h100"}) == 0);
}
