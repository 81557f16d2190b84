// `tnr attach`: another GPU for programs started from now on.
#include "cli/commands/attach.hpp"

#include <cstdlib>

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

TEST_CASE("attach changes the machine's configuration and nothing else", "[cli][attach]") {
    test::FakeSession fake;
    fake.start_demo();
    int installs = fake.world.installs, proofs = fake.world.proofs;
    auto machine = fake.document({"attach", "demo", "H100:2"})["machine"];
    CHECK(machine["gpu"] == json{{"type", "h100"}, {"count", 2}});
    CHECK(machine["ready"] == true);
    auto config = json::parse(fake.world.installed);
    CHECK(config["gpu"] == "h100");
    CHECK(config["count"] == 2);
    CHECK(config["pool"] == "tcp://10.0.2.2:14900");
    CHECK(config["machine"]["public_key"] == fake.world.enrolled["demo"]);
    CHECK(fake.world.installs == installs);
    CHECK(fake.world.proofs == proofs);
    REQUIRE(fake.tnr({"attach", "demo", "a100"}) == 0);
    CHECK(fake.out.str() == "'demo' has 1 x a100 for programs started from now on\n");
    CHECK(fake.session.history().all()->sightings.back().gpu == "a100");
}

TEST_CASE("attach refuses what cannot be, and changes nothing then", "[cli][attach]") {
    test::FakeSession fake;
    CHECK(fake.tnr({"attach", "demo", "h100"}) == 1);
    fake.start_demo();
    auto before = fake.world.installed;
    CHECK(fake.tnr({"attach", "demo", "h200"}) == 2);
    CHECK(fake.err.str().find("did you mean 'h100'?") != std::string::npos);
    CHECK(fake.tnr({"attach", "demo", "a100:2"}) == 2);
    CHECK(fake.err.str().find("`tnr attach demo") != std::string::npos);
    CHECK(fake.tnr({"attach", "demo"}) == 2);
    auto lock = fake.session.records().lock("demo");
    CHECK(fake.tnr({"attach", "demo", "a100"}) == 1);
    CHECK(fake.world.installed == before);
}

TEST_CASE("an attach that was cut off is shown, and the next one ends it", "[cli][attach]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.world.fails_at = "configure";
    CHECK(fake.tnr({"attach", "demo", "a100"}) == 1);
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.err.str().find("'demo' still has h100: `tnr start demo` gives it a100") != std::string::npos);
    REQUIRE(fake.tnr({"attach", "demo", "a100"}) == 0);
    CHECK(fake.document({"status"})["machines"][0]["ready"] == true);
}

TEST_CASE("a stopped machine is started first", "[cli][attach]") {
    test::FakeSession fake;
    fake.start_demo();
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    CHECK(fake.tnr({"attach", "demo", "a100"}) == 1);
    CHECK(fake.err.str().find("`tnr start demo`") != std::string::npos);
}

TEST_CASE("over a real connection, the file is another one or gone, and half of one is never seen", "[cli][attach]") {
    if (std::system("unshare --mount --propagation private sh -ec 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w && "
                    "mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w /etc' 2>/dev/null") !=
        0) {
        WARN("not allowed to mount an overlay: a real file is not changed here");
        return;
    }
    test::TemporaryFolder etc_tnr;
    test::Sshd sshd("",
                    "mount -t tmpfs tmpfs /mnt; cd /mnt; mkdir etc etc.work\n"
                    "mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/etc,workdir=/mnt/etc.work /etc\n"
                    "mkdir -p /etc/tnr; mount --bind " +
                        etc_tnr.path() + " /etc/tnr\n");
    test::FakeSession fake;
    fake.start_demo();
    fake.put_demo_at(sshd);
    fake.session.access = [&] { return cli::ssh_access(fake.session.config_folder + "/ssh_key"); };
    auto begun = ssh::Clock::now();
    REQUIRE(fake.tnr({"attach", "demo", "a100"}) == 0);
    WARN("attach over SSH took " << std::chrono::duration<double>(ssh::Clock::now() - begun).count() << " s");
    CHECK(json::parse(test::read_text(etc_tnr / "gpu.json"))["gpu"] == "a100");
    CHECK_FALSE(file_exists(etc_tnr / "gpu.json.new"));
    REQUIRE(fake.tnr({"detach", "demo"}) == 0);
    CHECK_FALSE(file_exists(etc_tnr / "gpu.json"));
    REQUIRE(fake.tnr({"detach", "demo"}) == 0);
}
