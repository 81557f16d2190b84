// The driver of AWS against moto, which checks each signature and policy; what moto lacks is in aws_mock.py.
#include <algorithm>
#include <thread>

#include "aws_world.hpp"
#include "life.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

Order aws_order(const std::string& name = "demo") {
    return {.name = name, .user_data = "#cloud-config\nssh_keys: PRIVATE\n", .user = "tnr"};
}

Error error_of(Provider& provider, const Order& order) {
    auto made = provider.create(order);
    REQUIRE_FALSE(made);
    return made.error();
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("aws: offers are x86 without accelerators, with AWS's prices, the default first", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    auto provider = cloud.as("tester");
    CHECK(*provider->whoami() == "arn:aws:iam::123456789012:user/tester in account 123456789012, region us-east-1");
    auto offers = provider->offers();
    REQUIRE(offers);
    CHECK(cloud.count("POST", "/ec2/us-east-1/DescribeInstanceTypes") > 1);  // they come in pages
    CHECK(cloud.count("POST", "/pricing/us-east-1/GetProducts") > 3);
    const Offer& first = offers->front();
    CHECK(first.name == "t3.medium");
    CHECK(first.region == "us-east-1");
    CHECK(first.cpus == 2);
    CHECK(first.memory_mib == 4096);
    CHECK(first.disk_gib == 40);
    CHECK(first.price.currency == "USD");
    CHECK(*first.price.machine == Approx(0.0416 + 0.005));
    CHECK(*first.price.disk == Approx(40 * 0.08 / 730));
    CHECK(*first.price.stopped() == Approx(40 * 0.08 / 730));  // AWS takes the address back
    CHECK(first.price.date == "2026-01-02T03:04:05Z");
    for (const auto& offer : *offers) {
        const std::string family = offer.name.substr(0, offer.name.find('.'));
        CHECK((family == "t3" || family == "m5" || family == "m7i" ||
               family == "c6i"));  // neither Arm, nor GPUs, nor what came before Nitro
        CHECK_FALSE(has(offer.name, "metal"));
    }
    auto unpriced =
        std::find_if(offers->begin(), offers->end(), [](auto& offer) { return offer.name == "m7i.24xlarge"; });
    REQUIRE(unpriced != offers->end());
    CHECK_FALSE(unpriced->price.machine);
    CHECK_FALSE(unpriced->price.running());

    SECTION("types and prices are asked for once a day") {
        const int asked = cloud.count("POST", "/pricing/us-east-1/GetProducts"),
                  pages = cloud.count("POST", "/ec2/us-east-1/DescribeInstanceTypes");
        REQUIRE(cloud.as("tester")->offers());
        CHECK(cloud.count("POST", "/ec2/us-east-1/DescribeInstanceTypes") == pages);
        CHECK(cloud.count("POST", "/pricing/us-east-1/GetProducts") == asked);
        cloud.now = "2026-01-03T00:00:00Z";
        CHECK(cloud.as("tester")->offers()->front().price.date == cloud.now);
        CHECK(cloud.count("POST", "/pricing/us-east-1/GetProducts") == 2 * asked);
    }
    SECTION("another region has other prices and other sizes") {
        auto there = provider->offers_in("eu-central-1");
        REQUIRE(there);
        CHECK(there->front().region == "eu-central-1");
        CHECK(*there->front().price.machine == Approx(0.0416 * 1.15 + 0.005));
        CHECK(provider->offers_in("mars-1").error().hint == "regions: eu-central-1, us-east-1, us-west-2");
    }
    SECTION("who may not ask for prices is told why they are unknown, and can order all the same") {
        cloud.now = "2026-01-04T00:00:00Z";
        cloud.fail_next({{"path", "/pricing/"},
                         {"status", 400},
                         {"times", 99},
                         {"body", {{"__type", "AccessDeniedException"}, {"Message", "may not pricing:GetProducts"}}}});
        auto blind = cloud.as("tester")->offers();
        REQUIRE(blind);
        CHECK_FALSE(blind->front().price.running());
        CHECK(has(blind->front().price.source, "unknown: AWS: may not pricing:GetProducts"));
        CHECK(blind->front().memory_mib >= 4000);
    }
}

TEST_CASE("aws: a machine lives its whole life and leaves nothing", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    auto provider = cloud.as("tester");
    std::string id;
    live(cloud, *provider,
         {.order = aws_order(),
          .larger = "m7i.large",
          .left_while_it_runs = {"group tnr-demo", "instance demo", "interface", "volume demo"},
          .left_of_copy = {"image before", "snapshot"},
          .running =
              [&](const Machine& machine) {
                  id = machine.id;
                  CHECK(id.compare(0, 12, "us-east-1/i-") == 0);
                  CHECK(machine.offer == "t3.medium");
                  CHECK(*machine.price.running() == Approx(0.0416 + 0.005 + 40 * 0.08 / 730));
                  CHECK(has(cloud.explained, "UserData=hidden"));
                  // As boto3 sees it.
                  const json seen = cloud.ask("seen")[0];
                  CHECK(seen["tags"] == json({{"tnr", "demo"}, {"Name", "demo"}}));
                  CHECK(seen["image"] == "ami-debian-new");  // the newest that is Debian's own, whole, and x86
                  CHECK(seen["user_data"] == "I2Nsb3VkLWNvbmZpZwpzc2hfa2V5czogUFJJVkFURQo=");
                  CHECK(seen["tokens"] == "required");
                  CHECK(seen["groups"][0]["tags"]["tnr"] == "demo");
                  CHECK(seen["groups"][0]["vpc"] == true);
                  CHECK(seen["groups"][0]["open"] == json::parse(R"([[22, 22, ["0.0.0.0/0"], ["::/0"]]])"));
                  CHECK(
                      seen["volumes"] ==
                      json::parse(
                          R"([{"size": 40, "type": "gp3", "tags": {"tnr": "demo", "Name": "demo"}, "ends": [true]}])"));
                  REQUIRE(provider->resize(id, "m7i.large").error().hint ==
                          "only a stopped machine can change its size: `tnr stop` it first");
              },
          .resized = [](const Machine& machine) { CHECK(*machine.price.machine == Approx(0.1008 + 0.005)); },
          .open =
              [&](const Machine&) {
                  REQUIRE(provider->open_ports(id, {8888, 6006}));
                  CHECK(cloud.ask("seen")[0]["groups"][0]["open"].size() == 3);
                  REQUIRE(provider->open_ports(id, {6006}));
                  CHECK(cloud.ask("seen")[0]["groups"][0]["open"] ==
                        json::parse(R"([[22, 22, ["0.0.0.0/0"], ["::/0"]], [6006, 6006, ["0.0.0.0/0"], ["::/0"]]])"));
              },
          .copied =
              [&](const Snapshot& copy) {
                  CHECK_FALSE(copy.per_month);
                  CHECK(provider->snapshot(id, "before").error().kind == Error::Kind::usage);
              }});
}

TEST_CASE("aws: machines are found in all regions, and named by them", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    auto provider = cloud.as("tester");
    Order order = aws_order("far");
    order.region = "eu-central-1";
    auto far = provider->create(order), near = provider->create(aws_order("near"));
    REQUIRE((far && near));
    CHECK(far->id.compare(0, 15, "eu-central-1/i-") == 0);
    auto all = provider->machines();
    REQUIRE(all);
    CHECK(all->size() == 2);
    CHECK(error_of(*provider, aws_order("far")).kind == Error::Kind::usage);  // taken, in whatever region

    SECTION("a region that a policy closes has none of ours") {
        cloud.ask("knobs", {{"closed_regions", {"us-west-2"}}});
        CHECK(provider->machines()->size() == 2);
        cloud.ask("knobs", {{"closed_regions", json::array()}});
    }
    SECTION("a region that does not answer is no empty one") {
        cloud.fail_next({{"path", "/ec2/us-west-2/DescribeInstances"}, {"kind", "reset"}, {"times", 99}});
        CHECK(provider->machines().error().kind == Error::Kind::network);
        cloud.ask("knobs", {{"no_faults", true}});
    }
    REQUIRE(provider->destroy(near->id));
    SECTION("a snapshot stays where it is") {
        REQUIRE(provider->snapshot(far->id, "there"));
        Order elsewhere = aws_order("restored");
        elsewhere.image = provider->snapshots()->front().id;
        elsewhere.region = "us-east-1";
        CHECK(error_of(*provider, elsewhere).hint == "a machine made from it must be in eu-central-1");
        CHECK(provider->check(elsewhere).error().kind == Error::Kind::usage);
        elsewhere.region = "";
        auto restored = provider->create(elsewhere);
        REQUIRE(restored);
        CHECK(restored->region == "eu-central-1");
        REQUIRE(provider->destroy(restored->id));
        REQUIRE(provider->delete_snapshot(elsewhere.image));
    }
    REQUIRE(provider->destroy(far->id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("aws: a subnet can be named, and what its zone lacks counts as sold out", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    const json subnets = cloud.ask("subnets");
    cloud.variables["TNR_AWS_SUBNET"] = subnets["us-east-1e"];
    auto provider = cloud.as("tester");
    Order order = aws_order();
    order.offer = "c6i.large";
    auto missing = error_of(*provider, order);
    CHECK(has(missing.what, "'c6i.large' is sold out in us-east-1, in the zone of subnet-"));
    CHECK(has(missing.hint, "another subnet in TNR_AWS_SUBNET"));
    cloud.variables["TNR_AWS_SUBNET"] = subnets["us-east-1b"];
    auto made = cloud.as("tester")->create(order);
    REQUIRE(made);
    CHECK(cloud.ask("seen")[0]["zone"] == "us-east-1b");
    REQUIRE(provider->destroy(made->id));
    cloud.variables["TNR_AWS_SUBNET"] = "subnet-0123";
    CHECK(has(error_of(*cloud.as("tester"), order).hint, "TNR_AWS_SUBNET"));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("aws: what it refuses is told so that one can act on it, and leaves nothing behind", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    auto provider = cloud.as("tester");
    SECTION("a wrong secret, a wrong key") {
        auto wrong = cloud.with(cloud.keys["tester"]["id"], "wrong-wrong-wrong-wrong-wrong")->machines();
        REQUIRE_FALSE(wrong);
        CHECK(wrong.error().kind == Error::Kind::auth);
        CHECK(has(wrong.error().hint, "the keys came from the test; `tnr login aws` takes new ones"));
        CHECK(cloud.with("AKIAWRONG", "wrong-wrong-wrong")->whoami().error().kind == Error::Kind::auth);
    }
    SECTION("keys without permission") {
        auto refused = cloud.as("nobody")->machines();
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind == Error::Kind::auth);
        CHECK(has(refused.error().hint, "policy"));
        CHECK(cloud.as("nobody")->whoami());
    }
    SECTION("keys that have expired") {
        cloud.fail_next(
            {{"path", "/sts/"},
             {"status", 403},
             {"body", {{"__type", "ExpiredTokenException"}, {"message", "The security token is expired"}}}});
        auto expired = provider->whoami();
        REQUIRE_FALSE(expired);
        CHECK(expired.error().kind == Error::Kind::auth);
        CHECK(has(expired.error().hint, "have expired"));
    }
    SECTION("a clock that is wrong, in either direction") {
        for (const auto& [ahead, as_wrong_keys] :
             {std::pair{-7300, false}, {7300, false}, {-7300, true}, {7300, true}}) {
            cloud.ask("knobs", {{"clock_ahead_s", ahead}});
            if (as_wrong_keys)  // as some services tell it
                cloud.fail_next({{"path", "/sts/"},
                                 {"status", 403},
                                 {"body", {{"__type", "SignatureDoesNotMatch"}, {"message", "not yet current"}}}});
            auto skewed = provider->whoami();
            REQUIRE_FALSE(skewed);
            CHECK(skewed.error().kind == Error::Kind::remote);  // signing in again would not help
            CHECK(has(skewed.error().what, "this computer's clock is wrong"));
            CHECK(has(skewed.error().what, ahead < 0 ? "2 hours ahead of AWS's" : "2 hours behind AWS's"));
        }
        cloud.ask("knobs", {{"clock_ahead_s", 0}});
    }
    SECTION("sold out, found out by ordering") {
        cloud.ask("knobs", {{"sold_out", {"t3.medium"}}});
        auto error = error_of(*provider, aws_order());
        CHECK(has(error.what, "'t3.medium' is sold out in us-east-1 (AWS: We currently do not have"));
        CHECK(error.hint == "nearest: t3.large in us-east-1 (2 CPUs, 8 GiB)");
        CHECK(cloud.count("POST", "/ec2/us-east-1/RunInstances") == 1);  // though its status is 500
    }
    SECTION("no such size, no such region, a region without it, no such image") {
        Order order = aws_order();
        order.offer = "c7i.silly";
        CHECK(error_of(*provider, order).what == "region us-east-1 does not have size 'c7i.silly'");
        CHECK(provider->check(order).error().kind == Error::Kind::usage);
        order.offer = "";
        order.region = "mars-1";
        CHECK(error_of(*provider, order).hint == "regions: eu-central-1, us-east-1, us-west-2");
        CHECK(provider->check(order).error().kind == Error::Kind::usage);
        order.region = "";
        order.image = "windows-95";
        CHECK(has(error_of(*provider, order).hint, "images: debian-12, "));
        order.image = "ami-0123456789";
        CHECK(provider->check(order).error().kind == Error::Kind::usage);
        order.image = "ubuntu-24.04";
        CHECK(provider->check(order));
    }
    SECTION("quota") {
        cloud.ask("knobs", {{"quota", true}});
        auto error = error_of(*provider, aws_order());
        CHECK(error.kind == Error::Kind::remote);
        CHECK(has(error.what, "vCPU limit of 32"));
        CHECK(has(error.hint, "servicequotas"));
    }
    SECTION("XML that is cut off, a page of a proxy's, a reply of another shape") {
        cloud.fail_next({{"path", "/DescribeInstanceTypes$"}, {"kind", "malformed"}});
        CHECK(has(error_of(*provider, aws_order()).what, "AWS's reply to DescribeInstanceTypes is no XML"));
        cloud.fail_next({{"path", "/DescribeVpcs$"}, {"status", 200}, {"body", json::object()}});
        CHECK(has(error_of(*provider, aws_order()).what, "is no XML"));
        cloud.fail_next({{"path", "/DescribeImages$"},
                         {"kind", "xml"},
                         {"text", "<DescribeImagesResponse><imagesSet><item/></imagesSet></DescribeImagesResponse>"}});
        CHECK(has(error_of(*provider, aws_order()).what, "AWS's reply makes no sense: there is no imageId"));
        cloud.fail_next({{"path", "/DescribeImages$"}, {"kind", "xml"}, {"text", "<html><body>Sign in</body></html>"}});
        CHECK(has(error_of(*provider, aws_order()).what, "AWS's reply to DescribeImages makes no sense"));
    }
    SECTION("a reply that never ends") {
        cloud.world.limits.reply_bytes_max = 1 << 20;
        cloud.fail_next({{"path", "/DescribeInstanceTypes$"}, {"kind", "endless"}});
        CHECK(has(error_of(*cloud.as("tester"), aws_order()).what, "larger than 1 MiB"));
    }
    SECTION("a fault of the server that stays") {
        cloud.fail_next({{"path", "/RunInstances"}, {"status", 500}, {"times", 99}, {"body", json::object()}});
        CHECK(has(error_of(*provider, aws_order()).hint, "cloud's side"));
        CHECK(cloud.count("POST", "/ec2/us-east-1/RunInstances") == 5);
    }
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("aws: passing trouble is got over", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    auto provider = cloud.as("tester");
    SECTION("throttled, as EC2 and as the other services say it") {
        cloud.fail_next({{"path", "/RunInstances$"},
                         {"status", 503},
                         {"kind", "xml"},
                         {"times", 2},
                         {"text",
                          "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Slow"
                          "</Message></Error></Errors><RequestID>r-1</RequestID></Response>"}});
        cloud.fail_next({{"path", "/pricing/"},
                         {"status", 400},
                         {"times", 2},
                         {"body", {{"__type", "com.amazonaws#ThrottlingException"}, {"message", "Rate exceeded"}}}});
    }
    SECTION("faults, and a connection that breaks in mid-body") {
        cloud.fail_next({{"path", "/DescribeInstanceTypes$"}, {"status", 500}, {"body", json::object()}});
        cloud.fail_next({{"path", "/DescribeImages$"}, {"kind", "half"}});
        cloud.fail_next({{"path", "/RunInstances$"}, {"kind", "reset"}});
    }
    SECTION("an order whose reply got lost is sent again, and makes one machine") {
        cloud.fail_next({{"path", "/RunInstances$"}, {"kind", "applied_reset"}});
    }
    auto made = provider->create(aws_order());
    REQUIRE(made);
    CHECK(*made->price.running() > 0);
    CHECK(cloud.ask("left") == json({"group tnr-demo", "instance demo", "interface", "volume demo"}));
    REQUIRE(provider->destroy(made->id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("aws: a name that is used again is another order, and makes another machine", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    auto provider = cloud.as("tester");
    auto first = provider->create(aws_order());
    REQUIRE(first);
    REQUIRE(provider->destroy(first->id));
    auto second = provider->create(aws_order());
    REQUIRE(second);
    CHECK(second->id != first->id);
    CHECK(cloud.ask("left") == json({"group tnr-demo", "instance demo", "interface", "volume demo"}));
    REQUIRE(provider->destroy(second->id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("aws: of two orders for one name at once, one makes the machine", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    std::vector<Result<Machine>> made(2, Error{Error::Kind::internal, "not yet"});
    std::vector<std::unique_ptr<Provider>> providers;
    cloud.world.http.explain = {};  // it is one for all
    for (int i = 0; i < 2; ++i) providers.push_back(cloud.as("tester"));
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&, i] {
            Order order = aws_order();
            order.user_data += "host key: " + std::to_string(i);
            made[i] = providers[i]->create(order);
        });
    for (auto& thread : threads) thread.join();
    CHECK(bool(made[0]) != bool(made[1]));
    const auto& lost = made[0] ? made[1] : made[0];
    const auto& won = made[0] ? made[0] : made[1];
    CHECK(lost.error().kind == Error::Kind::usage);
    CHECK(cloud.ask("left") == json({"group tnr-demo", "instance demo", "interface", "volume demo"}));
    REQUIRE(providers[0]->destroy(won->id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("aws: what a command that was cut off has left is used or removed by the next", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    auto provider = cloud.as("tester");
    cloud.world.http.pause = [](int) { return true; };
    cloud.fail_next({{"path", "/RunInstances$"}, {"kind", "reset"}, {"times", 99}});
    CHECK(error_of(*provider, aws_order()).kind == Error::Kind::network);
    CHECK(cloud.ask("left") == json({"group tnr-demo"}));  // there may be a machine, for all that is known
    cloud.ask("knobs", {{"no_faults", true}});
    SECTION("given up, what was made for it goes, and nobody else's does") {
        REQUIRE(provider->remove_leftovers("other"));
        CHECK(cloud.ask("left") == json({"group tnr-demo"}));
        const auto words = remove_what_is_left(*provider, "demo");
        REQUIRE(words.size() == 1);
        CHECK(words[0].find("security group sg-") == 0);
        CHECK(cloud.ask("left") == json::array());
    }
    auto made = provider->create(aws_order());
    REQUIRE(made);
    SECTION("deleted in the web console, it is gone, and destroying it removes its group") {
        cloud.ask("knobs", {{"console_delete", {made->id}}});
        const auto machines = provider->machines();
        for (const auto& machine : *machines) CHECK(machine.state == MachineState::gone);
    }
    REQUIRE(provider->destroy(made->id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("aws: a machine that EC2 has only just made is destroyed all the same", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    cloud.ask("knobs", {{"slow_to_tell", true}});
    auto provider = cloud.as("tester");
    cloud.world.http.pause = [](int milliseconds) { return milliseconds == 0; };  // Ctrl-C, while it waits to see it
    CHECK(error_of(*cloud.as("tester"), aws_order()).what == "interrupted");
    auto machines = provider->machines();
    REQUIRE(machines->size() == 1);
    REQUIRE(provider->destroy(machines->front().id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("aws: Cost Explorer is asked once a day, for it charges for that", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    cloud.ask("spent", {{"Amount", "12.3456"}, {"Unit", "USD"}});
    auto costs = cloud.as("tester")->costs();
    REQUIRE(costs);
    CHECK(*costs->this_month == Approx(12.3456));
    CHECK(costs->currency == "USD");
    CHECK(costs->date == cloud.now);
    REQUIRE(cloud.as("tester")->costs());
    CHECK(cloud.count("POST", "/ce/us-east-1/GetCostAndUsage") == 1);
}
