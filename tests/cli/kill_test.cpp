// tnr that is killed or interrupted at each step of `start` and `delete`: what is at the cloud then is known here by its
// name, and the next `tnr start` or `tnr delete` ends it. Whatever costs money is also found by its tag, from a computer
// that knows nothing of it.
//
// A step is a request or a change of a file. The mock kills whoever sends its Nth request, before it does what it was
// asked ("unsent") or before it answers ("unread"); rename() and unlink() of this program kill it at the Nth file
// ("unchanged"). N is 1, 2, … until the command comes to its end.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <optional>
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
int changes_to_live = 0;  // of files; 0: any number

void before_a_change() {
    if (changes_to_live > 0 && --changes_to_live == 0) ::kill(::getpid(), SIGKILL);
}
}  // namespace

// The C library's, for all of this program.
extern "C" int rename(const char* from, const char* to) noexcept {
    before_a_change();
    return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}
extern "C" int unlink(const char* path) noexcept {
    before_a_change();
    return ::unlinkat(AT_FDCWD, path, 0);
}

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
    const char* of = "";  // the requests that count
};
constexpr Place hetzner = {"hetzner", "HCLOUD_ENDPOINT", "/v1", "h100"};

// How what is left is dealt with: here, or from a computer that has not heard of it.
enum class Finish { by_start, by_delete, elsewhere };

using Words = std::vector<std::string>;

struct KillWorld {
    test::FakeSession fake;
    test::MockCloud cloud;

    explicit KillWorld(const Place& place = hetzner)
        : cloud(place.cloud, std::string(place.cloud) + "_mock.py", place.variable, place.path),
          start({"start", "demo", "--gpu", place.gpu, "--provider", place.cloud}) {
        auto& session = fake.session;
        of = place.of;
        cloud.world.http.pause = [](int) { return !interrupt::interrupted(); };
        cloud.world.http.explain = {};
        cloud.now = ui::utc_text(std::time(nullptr));  // what clouds check signatures with
        std::string url = cloud.variables[place.variable];
        url.resize(url.size() - std::strlen(place.path));
        cloud.ask("knobs", {{"unchecked", true}});  // it is asked thousands of things that other tests ask as well
        const json client = cloud.ask("client", {{"url", url}, {"folder", cloud.folder.string()}});
        for (const auto& [name, value] : client.items()) cloud.variables[name] = value;
        session.world = cloud.world;
        session.provider_names = {place.cloud};
        session.now = [this] { return ui::utc_text(std::time(nullptr) + hours_passed * 3600); };
        session.provider = [&session](const std::string& name) { return cli::open_provider(session, name); };
        session.access = [] { return std::make_unique<SilentAccess>(); };
        auto server = wire::make_key_pair(), own = wire::make_key_pair();
        REQUIRE(session.logins().save({"tcp://gpu.example:14900", {server.public_key, own}}));
    }

    int64_t hours_passed = 0;
    std::string of;
    const Words start;
    const Words remove = {"delete", "demo", "--yes"};

    // A process of its own for this command line, as tnr has one. What it said on stderr is in the file `said`.
    pid_t begin(const Words& words, const std::string& when, int at, int signal) {
        // A signal that comes before the child listens waits: Catch's handler would take it for a failure of the test.
        std::optional<interrupt::SignalsBlocked> blocked(std::in_place);
        pid_t child = ::fork();
        if (child != 0) return child;
        interrupt::install();
        blocked.reset();
        if (when == "unchanged")
            changes_to_live = at;
        else
            cloud.ask("kill", {{"pid", ::getpid()}, {"at", at}, {"of", of}, {"when", when}, {"signal", signal}});
        int code = fake.tnr(words);
        (void)write_file(fake.folder / "said", fake.err.str());
        ::_exit(code);
    }
    // True: the signal came before its end.
    bool ended(const Words& words, const std::string& when, int at, int signal = SIGKILL) {
        (void)remove_file(fake.folder / "said");
        int status = 0;
        ::waitpid(begin(words, when, at, signal), &status, 0);
        cloud.ask("kill", json::object());
        settle();
        const bool by_itself = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (signal == SIGKILL) REQUIRE((by_itself || WIFSIGNALED(status)));
        return !by_itself;
    }
    // What it had sent is done now, and not while the next one looks.
    void settle() {
        for (int i = 0; cloud.ask("settled") != true; ++i) {
            REQUIRE(i < 10000);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    json left() { return cloud.ask("left"); }
    json costly() { return cloud.ask("costly"); }
    bool has_record() { return fake.session.records().exists("demo"); }
    void done(const Words& words) {
        INFO(words[0]);
        int code = fake.tnr(words);
        INFO(fake.err.str());
        REQUIRE(code == 0);
    }

    // Whatever there is has a name here, and a `tnr` of either kind ends it.
    void finish(Finish how) {
        if (how == Finish::elsewhere) return finish_elsewhere();
        const json there = left();
        INFO("left at the cloud: " << there.dump());
        if (there != json::array()) REQUIRE(has_record());
        if (how == Finish::by_start) {
            done(start);
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
    // Keys and firewalls cost nothing and belong to their machine's name: its next start takes them.
    void finish_elsewhere() {
        std::filesystem::remove_all(fake.session.state_folder);
        std::filesystem::remove_all(fake.session.config_folder + "/keys");
        if (costly() != json::array()) {
            auto machines = fake.document({"status"})["machines"];
            REQUIRE(machines.size() == 1);
            CHECK(machines[0]["name"] == "demo");
            ++hours_passed;
            CHECK(fake.document({"billing"})["lines"][0]["name"] == "demo");
        }
        (void)fake.tnr(remove);
        INFO(fake.err.str());
        CHECK(costly() == json::array());
        if (left() == json::array()) return;
        done(start);
        done(remove);
        CHECK(left() == json::array());
    }
};

constexpr int steps_max = 200;  // more than any command has

// Kills `words` at each step of that kind; what is before it is done anew each time. The ways to finish take turns, and
// `shift` has steps that lie beside each other finished in different ways.
void kill_at_each(KillWorld& world, const Words& before, const Words& words, const std::string& when, int shift) {
    for (int at = 1;; ++at) {
        const int finish = (at + shift) % 3;
        INFO(words[0] << " " << when << " " << at << ", finish " << finish);
        REQUIRE(at < steps_max);
        if (!before.empty()) world.done(before);
        const bool killed = world.ended(words, when, at);
        world.finish(static_cast<Finish>(finish));
        if (killed) continue;
        CHECK(at > 1);
        return;
    }
}

void kill_everywhere(const Place& place, const std::vector<std::string>& whens = {"unread", "unsent", "unchanged"}) {
    KillWorld world(place);
    world.done(world.start);  // which asks for what is kept for a day
    world.done(world.remove);
    REQUIRE(world.left() == json::array());
    for (int shift = 0; const auto& when : whens) {
        kill_at_each(world, {}, world.start, when, shift);
        kill_at_each(world, world.start, world.remove, when, shift++);
    }
}

}  // namespace

TEST_CASE("tnr that is killed at any step leaves nothing at Hetzner that has no name", "[cli][kill]") {
    kill_everywhere(hetzner);
}
TEST_CASE("nor at DigitalOcean", "[cli][kill]") {
    kill_everywhere({"digitalocean", "DIGITALOCEAN_API_URL", "", "h100"});
}
TEST_CASE("nor at Thunder", "[cli][kill]") {
    kill_everywhere({"thunder", "TNR_API_URL", "/v1", "a100xl"});
}
TEST_CASE("nor at Google", "[cli][kill]") {
    kill_everywhere({"gcp", "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "/compute/v1/", "h100"});
}
TEST_CASE("nor at Azure", "[cli][kill]") {
    kill_everywhere({"azure", "AZURE_RESOURCE_MANAGER_HOST", "", "h100"});
}
// moto takes seconds for each start, so there the requests that only look are left out, and so are files.
TEST_CASE("nor at AWS", "[cli][kill]") {
    if (!test::AwsMock::is_there()) return;
    kill_everywhere({"aws", "AWS_ENDPOINT_URL", "", "h100", "/(?!Describe|Get)[A-Za-z]+$"}, {"unread", "unsent"});
}

TEST_CASE("a start that hears Ctrl-C at any step says what exists, and how to go on", "[cli][kill]") {
    KillWorld world;
    world.done(world.start);
    world.done(world.remove);
    int told = 0;
    for (int at = 1; world.ended(world.start, "unsent", at, SIGINT); ++at) {
        REQUIRE(at < steps_max);
        auto said = read_file(world.fake.folder / "said");
        if (said && world.left() != json::array()) {
            INFO(*said);
            CHECK(said->find("`tnr start demo` continues, `tnr delete demo` removes it") != std::string::npos);
            ++told;
        }
        world.finish(at % 2 == 0 ? Finish::by_start : Finish::by_delete);
    }
    world.finish(Finish::by_delete);
    CHECK(told > 1);
}
