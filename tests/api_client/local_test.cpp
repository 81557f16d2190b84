// The life of local machines, with real QEMU processes whose guest is a boot sector that does nothing: what these
// tests are about is processes, ports and files. A whole Debian runs in local_machine_test.cpp.
#include "api_client/providers/local/local.hpp"

#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <chrono>

#include "tests/support/catch.hpp"

#include "api_client/base/interrupt.hpp"
#include "api_client/providers/local/process.hpp"
#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

namespace {

namespace fs = std::filesystem;

struct World {
    TemporaryFolder folder;
    fs::path machines = folder / "machines";
    LocalProvider provider{machines, folder / "cache"};

    World() {
        std::string sector = "\xf4\xeb\xfd" + std::string(509, '\0');  // halt, again and again
        sector.replace(510, 2, "\x55\xaa");
        test::write_text(folder / "boots.img", sector);
    }
    ~World() {
        auto left = provider.machines();
        for (const Machine& machine : *left) (void)provider.destroy(machine.id);
    }
    Order order(const std::string& name) const {
        return {.name = name, .image = folder / "boots.img", .user_data = "#cloud-config\n", .user = "me"};
    }
    fs::path pid_file(const std::string& name) const { return machines / name / "qemu.pid"; }
    bool runs(const std::string& name) const { return find_qemu(pid_file(name)).has_value(); }
};

MachineState state_of(LocalProvider& provider, const std::string& name) {
    auto machine = provider.machine(name);
    REQUIRE(machine);
    return machine->state;
}

}  // namespace

TEST_CASE("a machine is created, listed, and destroyed without a trace", "[local]") {
    World world;
    auto made = world.provider.create(world.order("demo"));
    REQUIRE(made);
    CHECK(made->id == "demo");
    CHECK(made->state == MachineState::running);
    CHECK(made->address == "127.0.0.1");
    CHECK(made->user == "me");
    CHECK(world.provider.pool_host() == "10.0.2.2");
    CHECK(is_listening(made->ssh_port));

    LocalProvider another{world.machines, world.folder / "cache"};  // as the next tnr would be
    auto all = another.machines();
    REQUIRE(all);
    REQUIRE(all->size() == 1);
    CHECK(all->front().state == MachineState::running);

    auto taken = another.create(world.order("demo"));
    REQUIRE(!taken);
    CHECK(taken.error().kind == Error::Kind::usage);
    CHECK(taken.error().what == "machine 'demo' already exists");
    CHECK(another.start("demo"));  // runs already

    REQUIRE(another.destroy("demo"));
    CHECK(!world.runs("demo"));
    CHECK(!is_listening(made->ssh_port));
    CHECK(fs::is_empty(world.machines));
    auto gone = world.provider.machine("demo");
    REQUIRE(!gone);
    CHECK(gone.error().kind == Error::Kind::not_found);
    CHECK(world.provider.destroy("demo"));
    CHECK(fs::is_empty(world.machines));
}

TEST_CASE("a machine whose QEMU died is stopped, and starts again where it was", "[local]") {
    World world;
    auto made = world.provider.create(world.order("demo"));
    REQUIRE(made);
    auto process = find_qemu(world.pid_file("demo"));
    REQUIRE(process);
    ::kill(process->pid, SIGKILL);
    REQUIRE(wait_for_end(*process, 10'000));
    CHECK(state_of(world.provider, "demo") == MachineState::stopped);
    CHECK(world.provider.stop("demo"));

    SECTION("on the same port") {
        REQUIRE(world.provider.start("demo"));
        CHECK(world.provider.machine("demo")->ssh_port == made->ssh_port);
    }
    SECTION("on another port when somebody has taken it") {
        const UniqueFd squatter = listen_on(made->ssh_port);
        REQUIRE(squatter);
        REQUIRE(world.provider.start("demo"));
        auto machine = world.provider.machine("demo");
        CHECK(machine->ssh_port != made->ssh_port);
        CHECK(is_listening(machine->ssh_port));
    }
    CHECK(state_of(world.provider, "demo") == MachineState::running);
}

TEST_CASE("a machine whose folder was deleted is gone, and does not run on unnoticed", "[local]") {
    World world;
    REQUIRE(world.provider.create(world.order("demo")));
    fs::remove_all(world.machines / "demo");
    auto gone = world.provider.machine("demo");
    REQUIRE(!gone);
    CHECK(gone.error().kind == Error::Kind::not_found);
    REQUIRE(world.runs("demo"));

    SECTION("destroying it ends what is left") {
        REQUIRE(world.provider.destroy("demo"));
        CHECK(!world.runs("demo"));
    }
    SECTION("its name can be used again") {
        auto before = find_qemu(world.pid_file("demo"));
        REQUIRE(world.provider.create(world.order("demo")));
        CHECK(wait_for_end(*before, 0));
        CHECK(world.runs("demo"));
    }
}

// The guest, like one that still boots, does not hear the power button; its BIOS hears Ctrl-Alt-Del.
TEST_CASE("a machine that is deaf to its power button is stopped soon", "[local]") {
    World world;
    REQUIRE(world.provider.create(world.order("demo")));
    auto begun = std::chrono::steady_clock::now();
    REQUIRE(world.provider.stop("demo"));
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(30));
    CHECK(state_of(world.provider, "demo") == MachineState::stopped);
}

TEST_CASE("Ctrl-C ends the waiting for a machine that does not stop", "[local]") {
    World world;
    REQUIRE(world.provider.create(world.order("demo")));
    interrupt::raise_for_test();
    auto stopped = world.provider.stop("demo");
    interrupt::clear_for_test();
    REQUIRE(!stopped);
    CHECK(stopped.error().what == "interrupted");
    CHECK(world.runs("demo"));
}

TEST_CASE("a tnr that is killed while it creates leaves a machine that can be continued or removed", "[local]") {
    World world;
    // The child dies without a destructor, as by kill -9, at the last step before QEMU starts.
    const pid_t child = ::fork();
    if (child == 0) {
        Order order = world.order("demo");
        order.on_step = [](const std::string& step) {
            if (step.find("starting") == 0) ::_exit(9);
        };
        (void)world.provider.create(order);
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WEXITSTATUS(status) == 9);
    CHECK(state_of(world.provider, "demo") == MachineState::stopped);
    SECTION("continued") {
        REQUIRE(world.provider.start("demo"));
        CHECK(state_of(world.provider, "demo") == MachineState::running);
    }
    SECTION("removed") {
        REQUIRE(world.provider.destroy("demo"));
        CHECK(fs::is_empty(world.machines));
    }
}

TEST_CASE("a machine with a damaged record is still shown and can be removed", "[local]") {
    World world;
    REQUIRE(world.provider.create(world.order("demo")));
    test::write_text(world.machines / "demo/machine.json", "{\"user\": ");
    auto damaged = world.provider.machine("demo");
    REQUIRE(!damaged);
    CHECK(damaged.error().what.find("the record of 'demo' is damaged") == 0);
    CHECK(world.provider.machines()->size() == 1);
    REQUIRE(world.provider.destroy("demo"));
    CHECK(!world.runs("demo"));
    CHECK(fs::is_empty(world.machines));
}

TEST_CASE("orders that cannot be met are refused and leave nothing", "[local]") {
    World world;
    Order order = world.order("demo");
    Error expected{Error::Kind::usage, ""};
    SECTION("a bad name") {
        order.name = "../demo";
        expected.what = "'../demo' cannot be a machine's name";
    }
    SECTION("an unknown size") {
        order.offer = "huge";
        expected.what = "there is no size 'huge'";
        expected.hint = "sizes of local machines: small, medium, large";
    }
    SECTION("a region") {
        order.region = "far";
        expected.what = "there is no region 'far': local machines run on this computer";
    }
    SECTION("a broken image") {
        test::write_text(world.folder / "boots.img", "broken");
        expected.what = "'" + order.image + "' is not a disk that boots";
    }
    SECTION("too much user data") {
        order.user_data.resize(3 << 20, 'x');
        expected.what = "user data is 3145728 bytes; at most 1048576 are allowed";
    }
    auto made = world.provider.create(order);
    REQUIRE(!made);
    CHECK(made.error().kind == expected.kind);
    CHECK(made.error().what == expected.what);
    if (!expected.hint.empty()) CHECK(made.error().hint == expected.hint);
    CHECK(fs::is_empty(world.machines));
}

TEST_CASE("names that are no machine's never reach the file system", "[local]") {
    World world;
    test::write_text(world.folder / "precious", "file");
    for (const char* name : {"..", "../precious", "/", ""}) {
        CHECK(world.provider.machine(name).error().kind == Error::Kind::not_found);
        CHECK(world.provider.destroy(name).error().kind == Error::Kind::usage);
        CHECK(world.provider.stop(name).error().kind == Error::Kind::not_found);
        CHECK(world.provider.start(name).error().kind == Error::Kind::not_found);
    }
    CHECK(test::read_text(world.folder / "precious") == "file");
}

TEST_CASE("without QEMU the error says how to get it", "[local]") {
    World world;
    const Environment path("PATH", world.folder.path().c_str());
    auto made = world.provider.create(world.order("demo"));
    REQUIRE(!made);
    CHECK(made.error().what == "qemu-system-x86_64 is not installed");
    CHECK(made.error().hint == "run `sudo apt-get install qemu-system-x86 qemu-utils`");
    CHECK(fs::is_empty(world.machines));
}

TEST_CASE("a full disk is named, and half a machine is removed", "[local]") {
    if (::geteuid() != 0) {
        WARN("only root can mount a small disk: not tested");
        return;
    }
    World world;
    fs::create_directory(world.folder / "small");
    REQUIRE(::mount("none", (world.folder / "small").c_str(), "tmpfs", 0, "size=4m") == 0);
    {
        // The kernel alone does not fit.
        fs::create_directory(world.folder / "image");
        test::write_text(world.folder / "image/vmlinuz", std::string(8 << 20, 'k'));
        test::write_text(world.folder / "image/initrd.img", "initrd");
        fs::rename(world.folder / "boots.img", world.folder / "image/disk.qcow2");
        LocalProvider provider{world.folder / "small/machines", world.folder / "cache"};
        Order order = world.order("demo");
        order.image = world.folder / "image";
        auto made = provider.create(order);
        REQUIRE(!made);
        INFO(made.error().what);
        CHECK(made.error().what.find("No space left on device") != std::string::npos);
        CHECK(made.error().hint.find("free some space") == 0);
        CHECK(fs::is_empty(world.folder / "small/machines"));
    }
    CHECK(::umount((world.folder / "small").c_str()) == 0);
}

TEST_CASE("a stopped machine's size changes, a running one's does not", "[local]") {
    World world;
    REQUIRE(world.provider.create(world.order("demo")));
    CHECK(world.provider.machine("demo")->offer == "small");
    auto runs = world.provider.resize("demo", "medium");
    REQUIRE(!runs);
    CHECK(runs.error().kind == Error::Kind::usage);
    CHECK(runs.error().hint.find("`tnr stop demo`") != std::string::npos);
    REQUIRE(world.provider.stop("demo"));
    CHECK(!world.provider.resize("demo", "enormous"));
    REQUIRE(world.provider.resize("demo", "medium"));
    CHECK(world.provider.machine("demo")->offer == "medium");
    REQUIRE(world.provider.resize("demo", "small"));  // its disk stays as large as it was
    REQUIRE(world.provider.resize("demo", "medium"));
    REQUIRE(world.provider.start("demo"));
    auto process = find_qemu(world.pid_file("demo"));
    REQUIRE(process);
    std::string line = test::read_text("/proc/" + std::to_string(process->pid) + "/cmdline");
    CHECK(line.find(std::string("-smp\0004\0-m\0004096\0", 15)) != std::string::npos);
    auto nobody = world.provider.resize("nobody", "small");
    REQUIRE(!nobody);
    CHECK(nobody.error().kind == Error::Kind::not_found);
}

TEST_CASE("a snapshot outlives its machine, and others are made from it", "[local]") {
    World world;
    REQUIRE(world.provider.create(world.order("demo")));
    CHECK(!world.provider.snapshot("demo", "early"));  // it runs
    CHECK(world.provider.snapshots()->empty());
    REQUIRE(world.provider.stop("demo"));
    REQUIRE(world.provider.snapshot("demo", "first"));
    auto taken = world.provider.snapshot("demo", "first");
    REQUIRE(!taken);
    CHECK(taken.error().kind == Error::Kind::usage);
    CHECK(!world.provider.snapshot("demo", "../escape"));
    REQUIRE(world.provider.destroy("demo"));
    auto all = world.provider.snapshots();
    REQUIRE(all);
    REQUIRE(all->size() == 1);
    CHECK(all->front().name == "first");
    CHECK(all->front().ready);
    CHECK(all->front().size_gib > 0);
    CHECK(all->front().created.size() == 20);

    auto order = world.order("again");
    order.image = "first";
    REQUIRE(world.provider.check(order));
    REQUIRE(world.provider.create(order));
    CHECK(world.runs("again"));
    REQUIRE(world.provider.delete_snapshot("first"));  // the machine's disk is its own
    REQUIRE(world.provider.stop("again"));
    REQUIRE(world.provider.start("again"));
    CHECK(world.provider.snapshots()->empty());
    CHECK(world.provider.delete_snapshot("first"));
    CHECK(world.provider.delete_snapshot("../machines"));
    CHECK(fs::exists(world.machines / "again"));
    CHECK(!world.provider.check(order));
}
