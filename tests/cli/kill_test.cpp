// tnr that is killed or interrupted at any moment of `start` and `delete`: what is at the cloud then is known here by its
// name, and the next `tnr start` or `tnr delete` ends it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <optional>
#include <random>
#include <thread>

#include "cli/clouds.hpp"
#include "cli/ssh/keys.hpp"
#include "cli/ui/time.hpp"
#include "tests/api_client/clouds/aws_world.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

// What happens on a machine is not what this is about.
class SilentAccess : public cli::MachineAccess {
public:
    Result<> get_in(const Machine&, const cli::Record&, const cli::Waiting&) override { return Ok{}; }
    Result<std::vector<std::string>> install(const GpuConfig&, const cli::Say&) override {
        return std::vector<std::string>{};
    }
    Result<> configure(const std::string&) override { return Ok{}; }
    Result<cli::Proof> prove() override { return cli::Proof{{{"NVIDIA H100", uint64_t{80} << 30}}}; }
    Result<std::string> meet(const Machine&, const cli::Record&, const cli::Waiting&) override {
        static const std::string key = ssh::public_line(*ssh::generate_key(), "");
        return key;
    }
    Result<cli::Proof> prove_own() override { return prove(); }
};

// A cloud as its mock is started, and the GPU to ask for there.
struct Place {
    const char *cloud, *variable, *path, *gpu;
    int starts = 20, deletes = 10;  // to be killed
};
constexpr Place hetzner = {"hetzner", "HCLOUD_ENDPOINT", "/v1", "h100", 130, 70};

struct KillWorld {
    test::FakeSession fake;
    test::MockCloud cloud;

    explicit KillWorld(const Place& place = hetzner)
        : cloud(place.cloud, std::string(place.cloud) + "_mock.py", place.variable, place.path),
          start({"start", "demo", "--gpu", place.gpu, "--provider", place.cloud}) {
        auto& session = fake.session;
        cloud.world.http.pause = [](int) { return !interrupt::interrupted(); };
        cloud.world.http.explain = {};
        cloud.now = ui::utc_text(std::time(nullptr));  // what clouds check signatures with
        std::string url = cloud.variables[place.variable];
        url.resize(url.size() - std::strlen(place.path));
        const json client = cloud.ask("client", {{"url", url}, {"folder", cloud.folder.string()}});
        for (const auto& [name, value] : client.items()) cloud.variables[name] = value;
        session.world = cloud.world;
        session.provider_names = {place.cloud};
        session.provider = [&session](const std::string& name) { return cli::open_provider(session, name); };
        session.access = [] { return std::make_unique<SilentAccess>(); };
        auto server = wire::make_key_pair(), own = wire::make_key_pair();
        REQUIRE(session.logins().save({"tcp://gpu.example:14900", {server.public_key, own}}));
    }

    const std::vector<std::string> start;
    const std::vector<std::string> remove = {"delete", "demo", "--yes"};

    // A process of its own for this command line, as tnr has one. What it said on stderr is in the file `said`.
    pid_t begin(const std::vector<std::string>& words) {
        // A signal that comes before the child listens waits: Catch's handler would take it for a failure of the test.
        std::optional<interrupt::SignalsBlocked> blocked(std::in_place);
        pid_t child = ::fork();
        if (child != 0) return child;
        interrupt::install();
        blocked.reset();
        int code = fake.tnr(words);
        (void)write_file(fake.folder / "said", fake.err.str());
        ::_exit(code);
    }
    // How long it takes when nobody ends it.
    std::chrono::microseconds duration(const std::vector<std::string>& words) {
        auto begun = std::chrono::steady_clock::now();
        int status = 0;
        ::waitpid(begin(words), &status, 0);
        REQUIRE(WIFEXITED(status));
        REQUIRE(WEXITSTATUS(status) == 0);
        return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begun);
    }
    // Ends it after that time; true: it had not ended by itself.
    bool end_after(const std::vector<std::string>& words, std::chrono::microseconds delay, int signal) {
        (void)remove_file(fake.folder / "said");
        pid_t child = begin(words);
        std::this_thread::sleep_for(delay);
        ::kill(child, signal);
        int status = 0;
        ::waitpid(child, &status, 0);
        settle();
        return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
    }
    // What it had sent is done now, and not while the next one looks.
    void settle() {
        for (int i = 0; cloud.ask("settled") != true; ++i) {
            REQUIRE(i < 10000);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    json left() { return cloud.ask("left"); }
    bool has_record() { return fake.session.records().exists("demo"); }

    // Whatever there is has a name here, and a `tnr` of either kind ends it.
    void finish(bool by_start) {
        INFO("left at the cloud: " << left().dump());
        if (left() != json::array()) REQUIRE(has_record());
        if (by_start) {
            int code = fake.tnr(start);
            INFO(fake.err.str());
            REQUIRE(code == 0);
            auto machines = fake.document({"status"})["machines"];
            REQUIRE(machines.size() == 1);
            CHECK(machines[0]["name"] == "demo");
            CHECK(machines[0]["ready"] == true);
        }
        bool known = has_record();
        int code = fake.tnr(remove);
        INFO(fake.err.str());
        CHECK(code == (known ? 0 : 1));
        CHECK(left() == json::array());
        CHECK_FALSE(has_record());
    }
};

constexpr int seed = 20261122;  // the moments are random, and the same in each run

void kill_many(KillWorld& world, int starts, int deletes) {
    std::mt19937 random(seed);
    auto moment_in = [&](std::chrono::microseconds whole) {
        return std::chrono::microseconds(std::uniform_int_distribution<long>(0, whole.count())(random));
    };
    (void)world.duration(world.start);  // which asks for what is kept for a day
    (void)world.duration(world.remove);
    auto starting = world.duration(world.start), deleting = world.duration(world.remove);
    REQUIRE(world.left() == json::array());
    int cut = 0;
    for (int i = 0; i < starts; ++i) {
        cut += world.end_after(world.start, moment_in(starting), SIGKILL);
        world.finish(i % 2 == 0);
    }
    for (int i = 0; i < deletes; ++i) {
        REQUIRE(world.fake.tnr(world.start) == 0);
        cut += world.end_after(world.remove, moment_in(deleting), SIGKILL);
        world.finish(i % 2 == 0);
    }
    CHECK(cut > (starts + deletes) / 3);  // they were cut off in the middle, most of them where nothing else is at work
}

}  // namespace

TEST_CASE("200 tnr that are killed leave nothing at a cloud that has no name here", "[cli][kill]") {
    KillWorld world;
    kill_many(world, hetzner.starts, hetzner.deletes);
}

TEST_CASE("nor do they at the other clouds", "[cli][kill]") {
    for (const Place& place :
         {Place{"digitalocean", "DIGITALOCEAN_API_URL", "", "h100"}, Place{"thunder", "TNR_API_URL", "/v1", "a100xl"},
          Place{"gcp", "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "/compute/v1/", "h100"},
          Place{"azure", "AZURE_RESOURCE_MANAGER_HOST", "", "h100"},
          Place{"aws", "AWS_ENDPOINT_URL", "", "h100", 8, 4}}) {
        INFO(place.cloud);
        if (std::string(place.cloud) == "aws" && !test::AwsMock::is_there()) continue;
        KillWorld world(place);
        kill_many(world, place.starts, place.deletes);
    }
}

TEST_CASE("a start that hears Ctrl-C says what exists, and how to go on", "[cli][kill]") {
    KillWorld world;
    std::mt19937 random(seed);
    auto starting = world.duration(world.start);
    REQUIRE(world.fake.tnr(world.remove) == 0);
    int cut = 0, told = 0;
    for (int i = 0; i < 40; ++i) {
        auto delay = std::chrono::microseconds(std::uniform_int_distribution<long>(0, starting.count())(random));
        bool interrupted = world.end_after(world.start, delay, SIGINT);
        cut += interrupted;
        auto said = read_file(world.fake.folder / "said");
        if (interrupted && said && world.left() != json::array()) {
            INFO(*said);
            CHECK(said->find("`tnr start demo` continues, `tnr delete demo` removes it") != std::string::npos);
            ++told;
        }
        world.finish(i % 2 == 0);
    }
    CHECK(cut > 10);
    CHECK(told > 3);
}
