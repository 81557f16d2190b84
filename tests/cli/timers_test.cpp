// Machines that switch themselves off: what `start` asks of them, and what tnr-idle decides in small worlds.
#include "cli/timers.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "cli/install/install.hpp"
#include "cli/ui/time.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("durations are read", "[cli][timers]") {
    CHECK(*cli::parse_duration("30m", "--ttl") == 1800);
    CHECK(*cli::parse_duration("1h30m", "--ttl") == 5400);
    CHECK(*cli::parse_duration("2d", "--ttl") == 172800);
    CHECK(*cli::parse_duration("off", "--ttl") == 0);
    for (const char* bad : {"", "30", "m", "-5m", "5x", "1.5h", "30s", "366d", "99999999999h", " 5m"})
        CHECK_FALSE(cli::parse_duration(bad, "--ttl"));
}

TEST_CASE("start tells a machine when to switch itself off, and changes that", "[cli][timers]") {
    test::FakeSession fake;
    auto now = *ui::seconds_of("2026-01-02T03:04:05Z");
    auto asked = [&](int64_t idle, int64_t ends) {
        auto has = [&](const std::string& line) {
            return fake.world.timers.find("\n" + line + "\n") != std::string::npos;
        };
        return has("idle_stop_s=" + std::to_string(idle)) && has("ttl_ends=" + std::to_string(ends));
    };
    fake.start_demo();
    CHECK(fake.world.timers.empty());  // who asks for nothing gets nothing
    REQUIRE(fake.tnr({"start", "demo", "--idle-stop", "30m", "--ttl", "8h"}) == 0);
    CHECK(asked(1800, now + 8 * 3600));
    CHECK(fake.out.str().find("switches itself off when nobody has used it for 30 min, and 8 h after its start") !=
          std::string::npos);
    auto machine = fake.document({"status"})["machines"][0];
    CHECK(machine["idle_stop_s"] == 1800);
    CHECK(machine["ttl_ends"] == ui::utc_text(now + 8 * 3600));
    fake.session.now = [] { return "2026-01-02T04:04:05Z"; };
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    CHECK(asked(1800, now + 8 * 3600));  // it ran all the time
    REQUIRE(fake.tnr({"start", "demo", "--idle-stop", "off"}) == 0);
    CHECK(asked(0, now + 8 * 3600));
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    CHECK(asked(0, now + 9 * 3600));  // switched on again, it has its whole time
    REQUIRE(fake.tnr({"start", "demo", "--ttl", "off"}) == 0);
    CHECK(asked(0, 0));
    CHECK(fake.tnr({"start", "demo", "--ttl", "8"}) == 2);
    CHECK(fake.tnr({"start", "demo", "--idle-stop", "10s"}) == 2);
}

namespace {

// A cloud at which a machine that is off still has to be given back.
struct HoldingProvider : test::FakeProvider {
    using test::FakeProvider::FakeProvider;
    bool power_off_ends_billing() const override { return false; }
    Result<> stop(const std::string& id) override {
        ++stops;
        return FakeProvider::stop(id);
    }
    int stops = 0;
};

}  // namespace

TEST_CASE("where a cloud bills on, start says who ends that", "[cli][timers]") {
    test::FakeWorld world;
    test::FakeProvider ends(world);
    HoldingProvider holds(world);
    cli::Record record;
    record.name = "demo";
    CHECK(cli::timers_text(record, ends, {}).empty());
    record.idle_stop_s = 600;
    CHECK(cli::timers_text(record, ends, {}) == "switches itself off when nobody has used it for 10 min");
    CHECK(cli::timers_text(record, ends, {.billed_while_stopped = true}).find("only `tnr delete demo` ends that") !=
          std::string::npos);
    CHECK(cli::timers_text(record, holds, {}).find("the next `tnr status` or `tnr start` has to end its bill") !=
          std::string::npos);
}

TEST_CASE("the next tnr does what a timer has left undone", "[cli][timers]") {
    test::FakeWorld world;
    test::FakeProvider ends(world);
    HoldingProvider holds(world);
    auto& machine = world.machines["i-1"] = {.id = "i-1", .name = "demo", .state = MachineState::running};
    cli::Record record;
    record.name = "demo";
    auto does = [&](Provider& provider, const std::string& now) {
        Machine seen = machine;
        auto done = cli::end_overdue(record, provider, seen, now);
        REQUIRE(done);
        return *done;
    };
    CHECK_FALSE(does(ends, "2026-01-02T03:04:05Z"));  // no timers
    record.ttl_s = 3600;
    cli::begin_ttl(record, "2026-01-02T03:00:00Z");
    CHECK_FALSE(does(ends, "2026-01-02T04:01:00Z"));  // it may still be about to
    CHECK(machine.state == MachineState::running);
    CHECK(does(ends, "2026-01-02T04:30:00Z"));
    CHECK(machine.state == MachineState::stopped);
    CHECK_FALSE(does(ends, "2026-01-02T04:30:00Z"));
    CHECK_FALSE(does(holds, "2026-01-02T03:30:00Z"));  // it has gone by itself: only its bill is ended, without a word
    CHECK(holds.stops == 1);
}

namespace {

// A machine of files under which tnr-idle runs. Time passes when the test says so.
class IdleWorld {
public:
    explicit IdleWorld(int idle_stop_s, int64_t ttl_ends = 0, std::chrono::hours set_ago = {}) {
        namespace fs = std::filesystem;
        for (const char* folder : {"proc/1", "etc/tnr", "run"}) fs::create_directories(folder_ / folder);
        put("etc/tnr/idle.conf", "# a comment\nidle_stop_s=" + std::to_string(idle_stop_s) +
                                     "\nttl_ends=" + std::to_string(ttl_ends) + "\n");
        fs::last_write_time(folder_ / "etc/tnr/idle.conf", fs::file_time_type::clock::now() - set_ago);
        uptime(100);
        load("0.05");
        process(1, "/sbin/init", "7f00-7f01 r-xp /usr/lib/libc.so.6", 50);
        std::string power_off = "touch " + (folder_ / "off");
        std::vector<std::string> own = {"TNR_IDLE_ROOT=" + folder_.path(), "TNR_IDLE_LOOK_S=0",
                                        "TNR_IDLE_POWER_OFF=" + power_off, "PATH=/usr/bin:/bin"};
        std::vector<char*> environment;
        for (auto& each : own) environment.push_back(each.data());
        environment.push_back(nullptr);
        std::string shell = "sh", script = TNR_IDLE_SCRIPT;
        char* arguments[] = {shell.data(), script.data(), nullptr};
        posix_spawn_file_actions_t quiet;  // what it says when it is killed is nobody's business
        posix_spawn_file_actions_init(&quiet);
        for (int fd : {1, 2}) posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
        REQUIRE(::posix_spawn(&child_, "/bin/sh", &quiet, nullptr, arguments, environment.data()) == 0);
        posix_spawn_file_actions_destroy(&quiet);
        REQUIRE(tells(0, "boot"));
    }
    ~IdleWorld() {
        if (child_ <= 0) return;
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
    }

    void put(const std::string& path, const std::string& text) {  // in one step, as the kernel's files change
        test::write_text(folder_ / "new", text);
        std::filesystem::rename(folder_ / "new", folder_ / path);
    }
    void uptime(int seconds) { put("proc/uptime", std::to_string(seconds) + ".42 123.45\n"); }
    void load(const std::string& minute) { put("proc/loadavg", minute + " 9.99 9.99 1/100 4711\n"); }
    void process(int pid, const std::string& command, const std::string& maps = "", int ticks = 0, int begun = 5) {
        std::string folder = "proc/" + std::to_string(pid) + "/";
        std::filesystem::create_directories(folder_ / folder);
        put(folder + "cmdline", command + std::string(3, '\0'));
        put(folder + "maps", maps + "\n");
        put(folder + "stat", std::to_string(pid) + " (a (b) c) S 1 1 1 0 -1 4194560 1 2 3 4 " + std::to_string(ticks) +
                                 " 0 0 0 20 0 1 0 " + std::to_string(begun) + " 6 7\n");
    }
    void end_process(int pid) { std::filesystem::remove_all(folder_ / ("proc/" + std::to_string(pid))); }
    bool off() const { return file_exists(folder_ / "off"); }
    // Waits until the machine tells this, or has switched itself off, or half a minute has passed.
    bool tells(int idle_s, const std::string& used_by) {
        std::string wanted = "idle_s=" + std::to_string(idle_s) + "\nused_by=" + used_by + "\n";
        return comes([&] {
            return (read_file(folder_ / "run/tnr/idle") ? *read_file(folder_ / "run/tnr/idle") : "") == wanted;
        });
    }
    // Waits until the machine has looked twice: a look that had begun before read what there was then.
    bool looks_twice() {
        auto told_at = [&] {
            struct stat file {};
            ::stat((folder_ / "run/tnr/idle").c_str(), &file);
            return std::pair(file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
        };
        for (int look = 0; look < 2; ++look) {
            auto before = told_at();
            if (!comes([&] { return told_at() != before; })) return false;
        }
        return true;
    }
    bool goes_off() {
        return comes([&] { return off(); });
    }
    bool ends() {
        return comes([&] { return child_ > 0 && ::waitpid(child_, nullptr, WNOHANG) == child_ && (child_ = -1); });
    }

private:
    static bool comes(const std::function<bool()>& what) {
        for (int tries = 0; tries < 3000; ++tries) {
            if (what()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return false;
    }
    test::TemporaryFolder folder_;
    pid_t child_ = -1;
};

const std::string ours = "7f00-7f01 r-xp 00000000 08:01 42 /usr/local/lib/tnr/libcuda.so.1";

}  // namespace

TEST_CASE("a machine that nobody uses switches itself off after the time asked for, and not before", "[cli][timers]") {
    IdleWorld world(600);
    world.uptime(699);
    CHECK(world.tells(599, "boot"));
    CHECK_FALSE(world.off());
    world.uptime(700);
    CHECK(world.goes_off());
}

TEST_CASE("somebody signed in over SSH keeps a machine on; one who is only knocking does not", "[cli][timers]") {
    IdleWorld world(600);
    world.process(20, "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups");
    world.process(21, "sshd: root [priv]");
    world.process(22, "sshd: unknown [net]");
    world.process(23, "less /var/log/sshd: user@host");
    world.uptime(300);
    CHECK(world.tells(200, "boot"));
    for (const char* session : {"sshd: tnr@pts/0", "sshd-session: tnr@notty"}) {
        world.process(30, session);
        world.uptime(5000);
        CHECK(world.looks_twice());
        CHECK(world.tells(0, "ssh"));
        world.end_process(30);
        world.uptime(5100);
        CHECK(world.tells(100, "ssh"));
        world.uptime(300);
    }
    CHECK_FALSE(world.off());
    world.uptime(5600);
    CHECK(world.goes_off());
}

TEST_CASE("a question over SSH is no use of a machine, a session that stays is", "[cli][timers]") {
    IdleWorld world(600);
    world.uptime(300);
    world.process(30, "sshd: tnr@notty", "", 0, 29'600);  // since 4 s
    CHECK(world.tells(200, "boot"));
    world.uptime(301);
    CHECK(world.tells(0, "ssh"));
}

TEST_CASE("what tnr-idle tells is read", "[cli][timers]") {
    CHECK(cli::idle_told("idle_s=599\nused_by=boot\n") == 599);
    for (const char* none : {"", "idle_s=", "idle_s=x\n", "idle_s=-1\n", "idle_s=5", "used_by=boot\nidle_s=5\n",
                             "idle_s=99999999999999999999\n"})
        CHECK_FALSE(cli::idle_told(none));
}

TEST_CASE("status of machines by name, and wide, tells for how long nobody has used them", "[cli][timers]") {
    test::FakeSession fake;
    fake.start_demo("plain");
    for (const char* name : {"demo", "deaf"})
        REQUIRE(fake.tnr({"start", name, "--gpu", "h100", "--idle-stop", "2h"}) == 0);
    fake.world.idle = {{"demo", 5000}, {"plain", 7}};
    auto idle_of = [&](const std::vector<std::string>& words, const std::string& name) {
        const auto document = fake.document(words);
        for (const auto& machine : document["machines"])
            if (machine["name"] == name) return machine["idle_s"];
        return nlohmann::json("no such machine");
    };
    CHECK(idle_of({"status", "demo"}, "demo") == 5000);
    CHECK(idle_of({"status"}, "demo").is_null());            // nobody has asked
    CHECK(idle_of({"status", "plain"}, "plain").is_null());  // it does not count
    CHECK(idle_of({"status", "deaf"}, "deaf").is_null());
    REQUIRE(fake.tnr({"status", "--columns", "name,idle"}) == 0);
    CHECK(fake.out.str().find("demo   1 h 23 min") != std::string::npos);
    CHECK(fake.out.str().find("deaf   -") != std::string::npos);
    REQUIRE(fake.tnr({"status", "-o", "wide"}) == 0);
    CHECK(fake.out.str().find("1 h 23 min") != std::string::npos);
    REQUIRE(fake.tnr({"status", "demo"}) == 0);
    CHECK(fake.out.str().find("Idle:       1 h 23 min") != std::string::npos);
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.out.str().find("1 h 23 min") == std::string::npos);
}

TEST_CASE("a program that computes on the GPU keeps a machine on; one that holds it and sleeps does not",
          "[cli][timers]") {
    IdleWorld world(600);
    world.uptime(500);
    CHECK(world.tells(400, "boot"));
    world.process(40, "python3", ours, 1000);
    CHECK(world.tells(0, "gpu"));  // it has just begun
    world.uptime(900);
    CHECK(world.tells(400, "gpu"));  // and sleeps
    world.process(40, "python3", ours, 1100);
    CHECK(world.tells(0, "gpu"));
    world.uptime(950);
    CHECK(world.tells(50, "gpu"));
    world.end_process(40);
    CHECK(world.tells(0, "gpu"));
    world.uptime(1350);
    CHECK(world.tells(400, "gpu"));
    CHECK_FALSE(world.off());
    world.process(41, "python3", ours, 5);
    CHECK(world.tells(0, "gpu"));
    world.uptime(1950);
    CHECK(world.goes_off());  // a notebook left open
}

TEST_CASE("processors with work keep a machine on", "[cli][timers]") {
    for (auto [minute, busy] : {std::pair<std::string, bool>{"0.29", false},
                                {"0.30", true},
                                {"0.08", false},
                                {"12.00", true},
                                {"0.00", false}}) {
        IdleWorld world(600);
        world.load(minute);
        world.uptime(400);
        CHECK(world.tells(busy ? 0 : 300, busy ? "load" : "boot"));
    }
}

TEST_CASE("a machine whose time is over switches itself off though it is used, but not just after a boot",
          "[cli][timers]") {
    IdleWorld world(0, 1'000'000, std::chrono::hours(1));  // long ago, and set before the boot
    world.process(30, "sshd: tnr@pts/0");
    CHECK(world.tells(0, "ssh"));
    CHECK_FALSE(world.off());
    world.uptime(600);
    CHECK(world.goes_off());
    IdleWorld later(0, 99'000'000'000);
    later.uptime(100'000);
    CHECK(later.tells(99'900, "boot"));
    CHECK_FALSE(later.off());
}

TEST_CASE("a time of minutes that was set since the boot is kept to", "[cli][timers]") {
    IdleWorld world(0, 1'000'000);
    CHECK(world.goes_off());
}

TEST_CASE("timers that are changed are obeyed from the next look on, and none at all end the service",
          "[cli][timers]") {
    IdleWorld world(600);
    world.uptime(500);
    CHECK(world.tells(400, "boot"));
    world.put("etc/tnr/idle.conf", "idle_stop_s=junk\nttl_ends=0\nidle_stop_s=400\n");
    CHECK(world.goes_off());
    world.put("etc/tnr/idle.conf", "idle_stop_s=0\nttl_ends=0\n");
    CHECK(world.ends());
}

TEST_CASE("from the time on at which its budget is used up, a machine goes off sooner; one at work does not",
          "[cli][timers]") {
    cli::Record record;
    auto config = [&](int64_t from, int64_t until, int64_t idle_stop_s) {
        record.budget_from = from, record.budget_until = until, record.idle_stop_s = idle_stop_s;
        return cli::timers_config(record);
    };
    const int64_t past = 1'000'000, future = 99'000'000'000;
    IdleWorld world(3600);
    world.put("etc/tnr/idle.conf", config(past, future, 0));
    world.process(30, "sshd: tnr@pts/0");
    world.uptime(5000);
    CHECK(world.looks_twice());
    CHECK(world.tells(0, "ssh"));
    world.end_process(30);
    world.uptime(5899);
    CHECK(world.tells(899, "ssh"));
    CHECK_FALSE(world.off());
    world.uptime(5900);
    CHECK(world.goes_off());
    for (auto [from, until] : {std::pair{future, future + 1}, std::pair{past, past + 1}}) {  // not yet; another month
        IdleWorld other(3600);
        other.put("etc/tnr/idle.conf", config(from, until, 3600));
        other.uptime(3699);
        CHECK(other.tells(3599, "boot"));
        CHECK_FALSE(other.off());
        other.uptime(3700);
        CHECK(other.goes_off());
    }
    CHECK(config(past, future, 60).find("\nbudget_idle_s=60\n") != std::string::npos);
}

TEST_CASE("what is installed is the program, its service and its settings", "[cli][timers]") {
    std::string config = "idle_stop_s=600\n";
    auto files = install::timer_files(config);
    REQUIRE(files.size() == 3);
    CHECK(files[0].bytes == test::read_text(TNR_IDLE_SCRIPT));
    CHECK(files[0].mode == 0755);
    CHECK(files[1].bytes.find("ExecStart=" + files[0].path + "\n") != std::string::npos);
    CHECK(files[1].bytes.find("ConditionPathExists=" + files[2].path + "\n") != std::string::npos);
    CHECK(files[2].bytes == config);
}
