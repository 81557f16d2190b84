// Machines at Thunder, whose GPUs are Thunder's own: the real driver at a mock of the cloud, and a real SSH server that
// stands in for the machine. Nobody can plant its host key, so the first one that it shows is pinned.
#include "cli/own_gpu.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "cli/clouds.hpp"
#include "tests/api_client/clouds/mock_world.hpp"
#include "tests/cli/fakes.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

// Thunder's login user, and its driver, of which only nvidia-smi is asked.
struct Instance {
    test::TemporaryFolder files;
    test::Sshd sshd;

    Instance()
        : sshd("SetEnv PATH=" + (files / "bin") + ":/usr/bin:/bin",
               "cp /etc/passwd " + (files / "passwd") + "; echo ubuntu:x:0:0::" + (files / "home") + ":/bin/sh >>" +
                   (files / "passwd") + "; mount --bind " + (files / "passwd") + " /etc/passwd") {
        REQUIRE(::chmod(files.path().c_str(), 0755) == 0);
        for (const char* folder : {"bin", "home"}) REQUIRE(::mkdir((files / folder).c_str(), 0755) == 0);
        shows("81559, NVIDIA H100 80GB HBM3\\n");
    }
    void shows(const std::string& gpus) {
        test::write_text(files / "bin/nvidia-smi", "#!/bin/sh\nprintf '" + gpus + "'\n");
        REQUIRE(::chmod((files / "bin/nvidia-smi").c_str(), 0755) == 0);
    }
};

struct ThunderSession {
    test::FakeSession fake;
    test::MockCloud cloud{"thunder", "thunder_mock.py", "TNR_API_URL", "/v1"};
    Instance instance;

    ThunderSession() {
        auto& session = fake.session;
        session.world = cloud.world;
        session.provider_names = {"thunder"};
        session.provider = [this](const std::string& name) { return cli::open_provider(fake.session, name); };
        session.access = [this] { return cli::ssh_access(fake.session.config_folder); };
        session.pool = [](const cli::PoolLogin&) -> Result<std::unique_ptr<cli::Pool>> {
            return Error{Error::Kind::internal, "a pool was asked about a GPU of Thunder's own"};
        };
        REQUIRE(session.logins().remove("tcp://127.0.0.1:14900"));
        cloud.variables["TNR_API_TOKEN"] = test::MockCloud::token;
        const auto target = instance.sshd.target();
        REQUIRE(write_file(session.config_folder + "/keys/demo", ssh::private_file(target.key, "")));
        machine_is_at(instance.sshd);
    }
    void machine_is_at(const test::Sshd& sshd) {
        const auto target = sshd.target();
        cloud.ask("knobs", {{"ssh", {{"ip", target.host}, {"port", target.port}}}});
    }
    std::string refused(const std::vector<std::string>& words, int code) {
        INFO(fake.err.str());
        CHECK(fake.tnr(words) == code);
        return fake.err.str();
    }
    json machine() { return fake.document({"status", "demo"})["machines"][0]; }
};

bool contains(const std::string& text, const std::string& part) {
    INFO(text);
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a machine at Thunder, from start to a command on it and to delete", "[cli][clouds][thunder]") {
    if (::geteuid() != 0) return;  // the stand-in's user is made by root
    ThunderSession world;
    auto& fake = world.fake;
    REQUIRE(fake.tnr({"start", "demo", "--provider", "thunder", "--gpu", "A100XL", "--dry-run"}) == 0);
    CHECK(contains(fake.out.str(), "a100xl_x1_prototyping, $0.78/h, $569.4 a month), with 1 x a100xl of its own"));
    CHECK(world.cloud.ask("left") == json::array());

    const int started = fake.tnr({"start", "demo", "--provider", "thunder", "--gpu", "a100xl"});
    INFO(fake.err.str());
    REQUIRE(started == 0);
    const auto host_key = world.instance.sshd.target().host_key;
    const auto blob = ssh::blob_of_line(host_key);
    CHECK(contains(fake.err.str(), "is trusted: " + ssh::fingerprint(*blob) + "; from now on no other is accepted"));
    CHECK(*ssh::blob_of_line((*fake.session.records().find("demo"))->host_key) == *blob);
    CHECK(contains(fake.err.str(), "NVIDIA H100 80GB HBM3, 79.6 GiB"));
    auto machine = world.machine();
    CHECK(machine["ready"] == true);
    CHECK(machine["gpu"] == json({{"type", "a100xl"}, {"count", 1}}));
    CHECK(machine["pool"].is_null());

    // Again: known, nothing is made, and nothing is trusted anew.
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    CHECK(contains(fake.out.str(), "'demo' was already running; checked"));
    CHECK_FALSE(contains(fake.err.str(), "trusted"));
    CHECK(fake.tnr({"connect", "demo", "--", "test", "-x", "/bin/sh"}) == 0);
    CHECK(fake.tnr({"connect", "demo", "--", "exit", "7"}) == 7);
    test::write_text(fake.folder / "file", "bytes");
    CHECK(fake.tnr({"sync", fake.folder / "file", "demo:"}) == 0);
    CHECK(test::read_text(world.instance.files / "home/file") == "bytes");

    CHECK(fake.tnr({"ports", "demo", "open", "8888"}) == 0);
    CHECK(fake.tnr({"status", "demo"}) == 0);  // what is under way at the mock goes on when somebody looks
    CHECK(fake.tnr({"resize", "demo", "--size", "h100_x2_production"}) == 0);
    CHECK(contains(fake.out.str(), "'demo' is h100_x2_production now (machine: $4.98/h)"));
    CHECK(world.machine()["gpu"] == json({{"type", "h100"}, {"count", 2}}));
    CHECK(fake.tnr({"snapshot", "demo", "--name", "kept"}) == 0);
    CHECK(contains(world.refused({"stop", "demo"}, 2), "Thunder cannot stop a machine"));
    CHECK(contains(world.refused({"attach", "demo", "h100"}, 2), "`tnr resize demo --size SIZE`"));
    CHECK(contains(world.refused({"detach", "demo"}, 2), "thunder's own"));
    CHECK(fake.tnr({"delete", "demo", "--yes"}) == 0);
    CHECK(fake.err.str().find("pool") == std::string::npos);
    CHECK(world.cloud.ask("left") == json({"kept"}));
}

TEST_CASE("at Thunder another host key than the one that was pinned is refused", "[cli][clouds][thunder]") {
    if (::geteuid() != 0) return;
    ThunderSession world;
    REQUIRE(world.fake.tnr({"start", "demo", "--provider", "thunder", "--gpu", "a100xl"}) == 0);
    test::Sshd other;
    world.machine_is_at(other);
    REQUIRE(world.fake.tnr({"status"}) == 0);  // the mock's next look shows it
    CHECK(contains(world.refused({"connect", "demo", "--", "true"}, 1), "is not 'demo': it shows host key"));
    CHECK(contains(world.refused({"start", "demo"}, 1), "is not 'demo': it shows host key"));
}

TEST_CASE("what start says of machines with GPUs of their own, before it orders one", "[cli][clouds][thunder]") {
    ThunderSession world;
    auto start = [](std::vector<std::string> more) {
        more.insert(more.begin(), {"start", "demo", "--provider", "thunder"});
        return more;
    };
    CHECK(contains(world.refused(start({}), 2), "a100xl, a6000, h100, h100:2"));
    CHECK(contains(world.refused(start({"--gpu", "a600"}), 2), "did you mean 'a6000'?"));
    CHECK(contains(world.refused(start({"--gpu", "h100:3"}), 2), "it has: a100xl, a6000, h100, h100:2"));
    CHECK(contains(world.refused(start({"--size", "tiny"}), 2), "no size 'tiny'"));
    CHECK(contains(world.refused(start({"--gpu", "h100", "--idle-stop", "30m"}), 2), "none may switch itself off"));
    CHECK(contains(world.refused(start({"--gpu", "h100", "--pool", "tcp://gpu:1"}), 2), "take none from a pool"));
    CHECK(contains(world.refused(start({"--gpu", "h100", "--max-price", "1"}), 1), "no machine like that"));
    CHECK(world.cloud.ask("left") == json::array());
    REQUIRE(world.fake.tnr(start({"--gpu", "h100", "--cheapest", "--dry-run"})) == 0);
    CHECK(contains(world.fake.out.str(), "h100_x1_prototyping, $1.38/h"));
    REQUIRE(world.fake.tnr(start({"--size", "h100_x1_production", "--dry-run"})) == 0);
    CHECK(contains(world.fake.out.str(), "h100_x1_production, $2.49/h"));
}

TEST_CASE("a start at Thunder that was cut off goes on, and trusts no key before", "[cli][clouds][thunder]") {
    if (::geteuid() != 0) return;
    ThunderSession world;
    auto& fake = world.fake;
    REQUIRE(fake.tnr({"start", "demo", "--provider", "thunder", "--gpu", "a100xl", "--no-wait"}) == 0);
    for (int looks = 0; looks < 3; ++looks) REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(contains(world.refused({"connect", "demo", "--", "true"}, 1), "its host key is not known"));
    CHECK(contains(world.refused({"ssh-config"}, 1), "its host key is not known"));
    world.instance.shows("");
    CHECK(contains(world.refused({"start", "demo"}, 1), "nvidia-smi on 'demo' shows no GPU"));
    CHECK(contains(fake.err.str(), "`tnr delete demo` removes it"));
    CHECK(world.machine()["ready"] == false);
    world.instance.shows("48685, NVIDIA RTX A6000\\n");
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    CHECK(world.machine()["ready"] == true);
    // Of a lost record the cloud still knows the GPU.
    REQUIRE(fake.session.records().remove("demo"));
    CHECK(world.machine()["gpu"]["type"] == "a100xl");
    CHECK(
        contains(world.refused({"start", "demo", "--provider", "thunder", "--gpu", "h100"}, 2), "exists at provider"));
    CHECK(fake.tnr({"delete", "demo", "--yes"}) == 0);
    CHECK(world.cloud.ask("left") == json::array());
}

TEST_CASE("a machine of the original tnr is shown, taken over, used and removed by its number",
          "[cli][clouds][thunder]") {
    if (::geteuid() != 0) return;
    ThunderSession world;
    auto& fake = world.fake;
    const std::string number = std::to_string(world.cloud.ask("foreign").get<int>()), name = "thunder-" + number;
    // The key that takes it over is the one that its stand-in lets in.
    REQUIRE(write_file(fake.session.config_folder + "/keys/" + name,
                       ssh::private_file(world.instance.sshd.target().key, "")));
    for (int looks = 0; looks < 3; ++looks) REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(contains(fake.out.str(), name));
    CHECK(contains(fake.err.str(), "which thunder's own tool has made: `tnr start " + number +
                                       "` takes it over, `tnr "
                                       "delete " +
                                       number + "` removes it"));
    CHECK(contains(world.refused({"connect", number, "--", "true"}, 1), "`tnr start " + number + "` does so"));
    CHECK(contains(world.refused({"delete", number}, 2), "(made by its cloud's own tool)"));
    CHECK(contains(world.refused({"start", number, "--dry-run"}, 2), "would take it over"));
    CHECK(contains(world.refused({"start", "987654321"}, 1), "Thunder has no instance 987654321"));
    CHECK_FALSE(fake.session.records().exists(name));
    CHECK(contains(world.refused({"start", number, "--provider", "hetzner"}, 4), "not signed in to hetzner"));

    const int started = fake.tnr({"start", number});
    INFO(fake.err.str());
    REQUIRE(started == 0);
    CHECK(contains(fake.err.str(), "is '" + name + "' here; it lets in a new key"));
    CHECK(contains(fake.err.str(), "from now on no other is accepted"));
    CHECK(fake.tnr({"connect", number, "--", "exit", "7"}) == 7);
    CHECK(fake.document({"status", number})["machines"][0]["ready"] == true);
    REQUIRE(fake.tnr({"snapshot", number, "kept"}) == 0);
    CHECK(fake.tnr({"delete", number, "--yes"}) == 0);
    CHECK(world.cloud.ask("left") == json({"kept"}));
    CHECK(fake.document({"status"})["machines"].empty());
    CHECK_FALSE(file_exists(fake.session.config_folder + "/keys/" + name));
}

TEST_CASE("create takes the words of the original tnr", "[cli][clouds][thunder]") {
    if (::geteuid() != 0) return;
    ThunderSession world;
    auto& fake = world.fake;
    REQUIRE(write_file(fake.session.config_folder + "/keys/a100xl",
                       ssh::private_file(world.instance.sshd.target().key, "")));
    const int made = fake.tnr({"create", "--mode", "prototyping", "--gpu", "A100", "--num-gpus", "1", "--vcpus", "4",
                               "--template", "base", "--disk-size-gb", "100"});
    INFO(fake.err.str());
    REQUIRE(made == 0);
    auto machine = fake.document({"status", "a100xl"})["machines"][0];
    CHECK(machine["provider"] == "thunder");
    CHECK(machine["size"] == "a100xl_x1_prototyping");
    REQUIRE(fake.tnr({"create", "--mode", "production", "--gpu", "h100", "--num-gpus", "2", "--dry-run"}) == 0);
    CHECK(contains(fake.out.str(), "Would create 'h100' at provider thunder (machine: h100_x2_production, $4.98/h"));
    REQUIRE(fake.tnr({"create", "--mode", "prototyping", "--gpu", "a100", "--vcpus", "8", "--dry-run"}) == 0);
    CHECK(contains(fake.out.str(), "a100xl_x1_prototyping_8cpus, $0.94/h"));  // four more at 0.04
    CHECK(contains(world.refused({"create", "--mode", "production", "--gpu", "h100", "--vcpus", "64"}, 1),
                   "no machine like that"));
    CHECK(contains(world.refused({"create", "--mode", "prototyping"}, 2), "need a --gpu"));
    CHECK(contains(world.refused({"create", "--mode", "lazy", "--gpu", "h100"}, 2), "h100_x1_lazy"));
    CHECK(contains(world.refused({"create", "x", "--provider", "thunder", "--gpu", "h100", "--num-gpus", "many"}, 2),
                   "h100:many"));
}
