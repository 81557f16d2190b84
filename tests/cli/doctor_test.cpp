// `tnr doctor`: all in order, and each thing that can be wrong with how to mend it.
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <thread>

#include "cli/ui/time.hpp"
#include "tests/api_client/clouds/mock_world.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

// What it finds of one thing.
struct DoctorFound {
    std::string finding, what, mend;
};

DoctorFound found(test::FakeSession& fake, const std::string& name) {
    auto document = fake.document({"doctor"});
    for (const auto& check : document["checks"])
        if (check["name"] == name)
            return {check["finding"], check["what"], check["mend"].is_null() ? "" : check["mend"].get<std::string>()};
    return {};
}

}  // namespace

TEST_CASE("a session in order has nothing to mend", "[cli][doctor]") {
    test::FakeSession fake;
    fake.start_demo();
    CHECK(fake.tnr({"doctor"}) == 0);
    CHECK(fake.out.str().find("BAD") == std::string::npos);
    CHECK(fake.out.str().find("All that is needed works\n") != std::string::npos);
    CHECK(found(fake, "ssh key").finding == "good");
    CHECK(found(fake, "pool tcp://127.0.0.1:14900").what == "answers; h100 2/2 free, a100 1/1 free");
    CHECK(found(fake, "local").what == "signed in: nobody");
}

TEST_CASE("each thing that is wrong is told with how to mend it, and ends with 1", "[cli][doctor]") {
    test::FakeSession fake;
    fake.start_demo();
    std::string key = fake.session.config_folder + "/keys/demo";
    auto bad = [&](const std::string& name, const std::string& what, const std::string& mend) {
        auto seen = found(fake, name);
        INFO(name << ": " << seen.what << " / " << seen.mend);
        CHECK(seen.finding == "bad");
        CHECK(seen.what.find(what) != std::string::npos);
        CHECK(seen.mend.find(mend) != std::string::npos);
        CHECK(fake.tnr({"doctor"}) == 1);
        CHECK(fake.out.str().find("to mend it: " + seen.mend) != std::string::npos);
    };
    SECTION("the pool is away") {
        fake.world.pool_reachable = false;
        bad("pool tcp://127.0.0.1:14900", "no answer from the pool", "check that it runs");
    }
    SECTION("the key is lost") {
        REQUIRE(remove_file(key));
        bad("ssh key", "is lost", "put that file back");
    }
    SECTION("the key is another") {
        REQUIRE(write_file(key, ssh::private_file(*ssh::generate_key(), "")));
        bad("ssh key", "is not the one that 'demo' was made with", "put the right file back");
    }
    SECTION("the key can be read by others") {
        REQUIRE(::chmod(key.c_str(), 0644) == 0);
        bad("ssh key", "can be read by others", "chmod 600");
    }
    SECTION("a record is damaged") {
        REQUIRE(write_file(fake.session.state_folder + "/machines/demo.json", "{"));
        bad("machines", "is damaged", "tnr delete demo");
    }
    SECTION("a setting is wrong") {
        REQUIRE(write_file(fake.session.config_folder + "/config.json", "{\"ttl\": \"soon\"}"));
        bad("config", "that is no time (from ", "examples: 30m");
    }
}

TEST_CASE("what is only doubtful is told and ends with 0", "[cli][doctor]") {
    test::FakeSession fake;
    fake.world.fails_at = "install";
    CHECK(fake.tnr({"start", "demo", "--gpu", "h100"}) == 1);
    REQUIRE(fake.tnr({"logout", "pool", "tcp://127.0.0.1:14900"}) == 0);
    CHECK(fake.tnr({"doctor"}) == 0);
    CHECK(found(fake, "machines").finding == "doubtful");
    CHECK(found(fake, "machines").mend.find("`tnr start demo` continues") == 0);
    CHECK(found(fake, "pool").finding == "doubtful");
}

TEST_CASE("KVM is in order when a kernel has run under it, not when its device can be opened", "[cli][doctor]") {
    test::FakeSession fake;
    fake.session.world.cache_folder = fake.session.cache_folder;
    std::string boot = *read_file("/proc/sys/kernel/random/boot_id");
    boot.pop_back();
    auto probed = [&](const std::string& answer) {
        REQUIRE(write_file(fake.session.cache_folder + "/kvm-probe", boot + " " + answer + "\n"));
        return found(fake, "kvm");
    };
    const bool ours = ::access("/dev/kvm", R_OK | W_OK) == 0;
    CHECK(probed("hangs").finding == "doubtful");
    CHECK(probed("works").finding == (ours ? "good" : "doubtful"));
    if (ours) CHECK(probed("hangs").what.find("a kernel did not run under it") != std::string::npos);
}

TEST_CASE("where there is no cloud, a pool's time tells a clock that is wrong", "[cli][doctor]") {
    test::FakeSession fake;
    auto now = *ui::seconds_of(fake.session.now());
    CHECK(found(fake, "clock").finding == "skipped");  // a server that does not tell
    fake.world.pool_time = now;
    CHECK(found(fake, "clock").what == "agrees with the pool's");
    fake.world.pool_time = now + 3600;
    auto clock = found(fake, "clock");
    CHECK(clock.finding == "bad");
    CHECK(clock.what.find("behind the pool's") != std::string::npos);
}

TEST_CASE("doctor asks all clouds at once: one that hangs holds up none of the others", "[cli][doctor]") {
    test::MockCloud hetzner("hetzner", "hetzner_mock.py", "HCLOUD_ENDPOINT", "/v1");
    test::MockCloud ocean("digitalocean", "digitalocean_mock.py", "DIGITALOCEAN_API_URL", "");
    test::FakeSession fake;
    fake.session.world = hetzner.world;
    hetzner.variables["HCLOUD_TOKEN"] = hetzner.variables["DIGITALOCEAN_TOKEN"] = test::MockCloud::token;
    hetzner.variables["DIGITALOCEAN_API_URL"] = ocean.variables["DIGITALOCEAN_API_URL"];
    fake.session.provider_names = {"hetzner", "digitalocean"};
    fake.session.provider = [&](const std::string& name) { return cli::open_provider(fake.session, name); };
    std::mutex mutex;
    std::set<std::thread::id> askers;
    fake.session.world.http.explain = {};
    fake.session.world.http.on_date = [&](const std::string&) {  // of each reply
        const std::lock_guard lock(mutex);
        askers.insert(std::this_thread::get_id());
    };
    auto document = fake.document({"doctor"});
    for (const auto& check : document["checks"])
        if (check["name"] == "hetzner" || check["name"] == "digitalocean") CHECK(check["finding"] == "good");
    CHECK(askers.size() == 2);
}

TEST_CASE("a cloud's own time tells a clock that is wrong", "[cli][doctor]") {
    test::FakeSession fake;
    test::MockCloud cloud("hetzner", "hetzner_mock.py", "HCLOUD_ENDPOINT", "/v1");
    fake.session.world = cloud.world;
    fake.session.provider_names = {"hetzner"};
    fake.session.provider = [&](const std::string& name) { return cli::open_provider(fake.session, name); };
    CHECK(found(fake, "hetzner").finding == "skipped");
    CHECK(found(fake, "clock").finding == "skipped");
    fake.in.str(std::string(cloud.token) + "\n");
    REQUIRE(fake.tnr({"login", "hetzner"}) == 0);
    auto now_is = [&](int64_t off) { fake.session.now = [off] { return ui::utc_text(std::time(nullptr) + off); }; };
    now_is(0);
    CHECK(found(fake, "hetzner").finding == "good");
    CHECK(found(fake, "clock").finding == "good");
    now_is(-100);
    CHECK(found(fake, "clock").finding == "doubtful");
    now_is(3600);
    auto clock = found(fake, "clock");
    CHECK(clock.finding == "bad");
    CHECK(clock.what.find("ahead of the clouds'") != std::string::npos);
    CHECK(clock.mend.find("timedatectl") != std::string::npos);
}
