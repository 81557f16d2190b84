// `tnr snapshot` and `tnr start --image SNAPSHOT`.
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

class MeetingProvider : public test::FakeProvider {
public:
    MeetingProvider(test::FakeWorld& world, std::string name, test::Meeting& meeting)
        : FakeProvider(world), name_(std::move(name)), meeting_(meeting) {}
    Result<std::vector<Snapshot>> snapshots() override {
        if (auto met = meeting_.wait_for_all(); !met) return met.error();
        if (name_ == "broken") return Error{Error::Kind::network, "it broke"};
        return std::vector<Snapshot>{{.id = "s-" + name_, .name = name_, .ready = true}};
    }

private:
    const std::string name_;
    test::Meeting& meeting_;
};

}  // namespace

TEST_CASE("a snapshot is made, listed, used by its name, and deleted", "[cli][snapshot]") {
    test::FakeSession fake;
    fake.start_demo();
    auto made = fake.document({"snapshot", "demo", "--name", "trained"});
    REQUIRE(made["snapshots"].size() == 1);
    CHECK(made["snapshots"][0]["ready"] == true);
    std::string id = made["snapshots"][0]["id"];
    CHECK(fake.tnr({"snapshot", "demo", "--name", "trained"}) == 2);
    CHECK(fake.err.str().find("there is a snapshot 'trained' already") != std::string::npos);
    CHECK(fake.document({"snapshot", "demo", "--no-wait"})["snapshots"][0]["name"] == "demo-20260102-0304");
    REQUIRE(fake.tnr({"snapshot", "--list"}) == 0);
    CHECK(fake.out.str().find("trained") != std::string::npos);
    CHECK(fake.out.str().find("$0.1/month") != std::string::npos);
    REQUIRE(fake.tnr({"start", "twin", "--gpu", "h100", "--image", "trained"}) == 0);
    CHECK(fake.world.last_order.image == id);
    CHECK(fake.world.timers.find("idle_stop_s=0") != std::string::npos);  // its disk may have brought some
    CHECK(fake.tnr({"snapshot", "--delete", "trained"}) == 2);            // nobody to ask
    CHECK(fake.tnr({"snapshot", "--delete", "traind", "--yes"}) == 1);
    CHECK(fake.err.str().find("did you mean 'trained'?") != std::string::npos);
    CHECK(fake.document({"snapshot", "--delete", "trained", "--yes"})["deleted"] == "trained");
    CHECK(fake.document({"snapshot", "--list"})["snapshots"].size() == 1);
}

TEST_CASE("snapshots of one name are told apart, and nonsense is refused", "[cli][snapshot]") {
    test::FakeSession fake;
    fake.start_demo();
    for (const char* id : {"s-8", "s-9"}) fake.world.snapshots.push_back({.id = id, .name = "same", .ready = true});
    CHECK(fake.tnr({"snapshot", "--delete", "same", "--yes"}) == 2);
    CHECK(fake.tnr({"start", "twin", "--gpu", "h100", "--image", "same"}) == 2);
    CHECK(fake.err.str().find("s-8 or s-9") != std::string::npos);
    CHECK(fake.tnr({"snapshot", "--delete", "s-9", "--yes"}) == 0);
    REQUIRE(fake.world.snapshots.size() == 1);
    CHECK(fake.world.snapshots[0].id == "s-8");
    CHECK(fake.tnr({"snapshot"}) == 2);
    CHECK(fake.tnr({"snapshot", "demo", "--list"}) == 2);
    CHECK(fake.tnr({"snapshot", "nobody"}) == 1);
}

TEST_CASE("all clouds are asked for their snapshots at once, and shown in their order", "[cli][snapshot]") {
    test::FakeSession fake;
    test::Meeting meeting(3);
    fake.session.provider_names = {"one", "broken", "nobody", "two"};
    fake.session.provider = [&](const std::string& name) -> Result<std::unique_ptr<Provider>> {
        CHECK(fake.session.world.limits.total_ms <= 15'000);  // nobody waits longer than that for the slowest
        if (name == "nobody") return Error{Error::Kind::auth, "not signed in"};
        return std::unique_ptr<Provider>(std::make_unique<MeetingProvider>(fake.world, name, meeting));
    };
    auto document = fake.document({"snapshot", "--list"});
    REQUIRE(document["snapshots"].size() == 2);
    CHECK(document["snapshots"][0]["provider"] == "one");
    CHECK(document["snapshots"][1]["name"] == "two");
    REQUIRE(document["errors"].size() == 1);
    CHECK(document["errors"][0]["about"] == "broken");
}
