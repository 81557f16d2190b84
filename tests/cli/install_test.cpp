// Installing on machines that are fit for it and on others: a real sshd, whose file system is a changed copy of this
// computer's own (an overlay, in a mount namespace), so that real commands fail for real reasons.
#include "cli/install/install.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "api_client/base/files.hpp"
#include "cli/install/trouble.hpp"
#include "cli/machine_access.hpp"
#include "cli/ssh/exec.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

bool can_make_worlds() {
    if (std::system("unshare --mount --propagation private sh -ec 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w && "
                    "mount -t overlay overlay -o lowerdir=/usr,upperdir=/mnt/u,workdir=/mnt/w /usr' 2>/dev/null") == 0)
        return true;
    WARN("not allowed to mount an overlay: installing is not tested here");
    return false;
}

// The view's own /usr, /etc and /dev: what is written there is gone with the connection. The kernel is this computer's, and
// keeps its settings.
const std::string own_files =
    "mount -t tmpfs tmpfs /mnt; cd /mnt; mkdir small; mount --bind /proc/sys /proc/sys; "
    "mount -o remount,bind,ro /proc/sys\n"
    "mkdir -p dev/pts dev/shm; cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/fd dev; "
    "ln -s pts/ptmx dev/ptmx; mount --rbind /dev/pts dev/pts; mount --rbind dev /dev\n"
    "for top in usr etc; do mkdir $top $top.work; mount -t overlay overlay -o "
    "lowerdir=/$top,upperdir=/mnt/$top,workdir=/mnt/$top.work /$top; done\n";

const std::string config_text = "{\"gpu\": \"h100\"}\n";

// One connection to a machine in such a view.
struct MachineView {
    test::Sshd sshd;
    std::unique_ptr<ssh::Client> client;
    std::vector<install::Embedded> embedded = install::embedded_files();
    std::vector<std::string> steps;

    explicit MachineView(const std::string& change, const std::string& configuration = "", const std::string& user = "")
        : sshd(configuration, own_files + change) {
        auto target = sshd.target();
        if (!user.empty()) target.user = user;
        auto connected = ssh::Client::connect(target, ssh::Clock::now() + 30s);
        if (!connected) FAIL(connected.error().what);
        client = std::move(*connected);
    }
    Result<std::vector<std::string>> install() {
        return install::install(*client, install::files_to_install(embedded, config_text),
                                [this](const std::string& step) { steps.push_back(step); });
    }
    Error refused() {
        auto installed = install();
        REQUIRE_FALSE(installed);
        INFO(installed.error().what);
        CHECK(installed.error().what.find("'demo'") != std::string::npos);
        CHECK_FALSE(installed.error().hint.empty());
        return installed.error();
    }
    std::string said(const std::string& line) {
        auto output = ssh::capture(*client, line, "", ssh::Clock::now() + 30s);
        if (!output) FAIL(output.error().what);
        return output->out;
    }
    // Half files and folders of ours.
    std::string left_over() {
        return said("find /usr/local /etc -name '*.new'; find /tmp /mnt/small -maxdepth 1 -name 'tnr-install.*'");
    }
};

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("what a machine needs is brought once, and its linker finds it", "[install]") {
    if (!can_make_worlds()) return;
    MachineView machine{""};
    auto first = machine.install();
    if (!first) FAIL(first.error().what);
    CHECK(first->size() ==
          machine.embedded.size() + 4);  // for the linker, the kernel, who looks for a device, and the GPU
    CHECK(machine.said("readlink /dev/nvidiactl; grep -v '^#' /etc/tmpfiles.d/tnr.conf") ==
          "null\nL /dev/nvidiactl - - - - null\n");
    CHECK(machine.said("cat /etc/tnr/gpu.json") == config_text);
    CHECK(machine.said("stat -c %a:%U /usr/local/lib/tnr/tnr-gpu-probe /etc/tnr/gpu.json") == "755:root\n644:root\n");
    if (machine.embedded.size() > 2) {  // not with TNR_EMBED=OFF
        CHECK(has(machine.said("/sbin/ldconfig -p"), "/usr/local/lib/tnr/libcuda.so.1"));
        CHECK(machine.said("readlink /usr/local/lib/tnr/libcuda.so") == "libcuda.so.1\n");
    }
    CHECK(machine.left_over().empty());

    CHECK(machine.install()->empty());
    machine.said("echo worn > /usr/local/lib/tnr/tnr-gpu-probe; rm /etc/tnr/gpu.json");
    CHECK(*machine.install() == std::vector<std::string>{"/usr/local/lib/tnr/tnr-gpu-probe", "/etc/tnr/gpu.json"});
    CHECK(machine.install()->empty());
}

TEST_CASE("a disk that is full is called that, keeps no half file, and the next install goes on", "[install]") {
    if (!can_make_worlds()) return;
    SECTION("where the files shall be") {
        MachineView machine{"mount -t tmpfs -o size=8k tmpfs /usr/local"};
        auto error = machine.refused();
        CHECK(has(error.what, "its disk is full"));
        CHECK(has(error.hint, "tnr connect demo -- df -h"));
        CHECK(machine.left_over().empty());
        machine.said("mount -o remount,size=100m /usr/local");
        CHECK(machine.install());
    }
    SECTION("where they arrive first") {
        MachineView machine{"mount -t tmpfs -o size=8k tmpfs /mnt/small", "SetEnv TMPDIR=/mnt/small\n"};
        CHECK(has(machine.refused().what, "its disk is full"));
        CHECK(machine.left_over().empty());
    }
}

TEST_CASE("a file system that is read-only is called that", "[install]") {
    if (!can_make_worlds()) return;
    MachineView machine{"mount -t tmpfs -o ro tmpfs /usr/local"};
    auto error = machine.refused();
    CHECK(has(error.what, "read-only"));
    CHECK(has(error.hint, "dmesg"));
    CHECK(machine.left_over().empty());
}

TEST_CASE("a login user without sudo is told of before anything is sent", "[install]") {
    if (!can_make_worlds()) return;
    MachineView machine{
        "echo 'ordinary:*:4711:4711::/tmp:/bin/bash' >> /etc/passwd; echo 'ordinary:x:4711:' >> /etc/group\n"
        "rm -f /usr/bin/sudo",
        "", "ordinary"};
    CHECK(machine.said("id -un") == "ordinary\n");
    auto error = machine.refused();
    CHECK(has(error.what, "no sudo without a password"));
    CHECK(machine.steps.empty());
    CHECK(machine.left_over().empty());
}

TEST_CASE("machines that cannot run our libraries are told of before anything is sent", "[install]") {
    if (!can_make_worlds()) return;
    auto replace = [](const std::string& program, const std::string& says) {
        return "rm -f /usr/bin/getconf; printf '#!/bin/sh\\necho " + says + "\\n' > /usr/bin/" + program +
               "; chmod 755 /usr/bin/" + program;
    };
    SECTION("another architecture") {
        MachineView machine{"wrap=linux32"};
        auto error = machine.refused();
        CHECK(has(error.what, machine.said("uname -m").substr(0, 4)));
        CHECK(has(error.what, "the GPU libraries are for"));
        CHECK(machine.steps.empty());
    }
    SECTION("an old glibc") {
        MachineView machine{replace("getconf", "glibc 2.31")};
        auto error = machine.refused();
        CHECK(has(error.what, "it has glibc 2.31, the GPU libraries need glibc 2.34"));
        CHECK(has(error.hint, "Debian 12"));
        CHECK(machine.steps.empty());
    }
    SECTION("another C library") {
        MachineView machine{replace("ldd", "musl libc")};
        CHECK(has(machine.refused().what, "musl libc"));
        CHECK(machine.steps.empty());
    }
}

TEST_CASE("what a machine complains about becomes a cause and a next step", "[install]") {
    auto said = [](const std::string& words) { return install::explained("installing", words, "demo"); };
    CHECK(has(said("sudo: a password is required").what, "no sudo"));
    CHECK(has(said("bash: line 1: sudo: command not found").what, "no sudo"));
    CHECK(has(said("demo is not in the sudoers file.").what, "no sudo"));
    CHECK(has(said("sudo: unable to resolve host demo\nmkdir: x: No space left on device").what, "full"));
    CHECK(has(said("mktemp: failed to create directory: Permission denied").hint, "tnr connect demo"));
    CHECK(has(said("cat: write error: Disk quota exceeded").what, "full"));
    CHECK(said("something new").what == "installing on 'demo' failed: something new");
    CHECK(has(said("").what, "said nothing"));
}

TEST_CASE("a glibc is too old or not by its numbers, and what cannot be read is no reason to refuse", "[install]") {
    auto fits = [](const std::string& c_library) { return !install::unsuitable({"", c_library}, "demo"); };
    CHECK(fits("glibc 2.34"));
    CHECK(fits("glibc 2.100"));
    CHECK(fits("glibc 3.1"));
    CHECK(fits(""));
    CHECK(fits("bash: line 1: ldd: command not found"));
    CHECK_FALSE(fits("glibc 2.33"));
    CHECK_FALSE(fits("glibc 2.4"));
    CHECK_FALSE(fits("musl libc (x86_64)"));
}

TEST_CASE("a machine that cannot reach the pool says which port to open, and where", "[install]") {
    if (!can_make_worlds()) return;
    int closed;
    {
        const UniqueFd taken{::socket(AF_INET, SOCK_STREAM, 0)};
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        REQUIRE(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
        REQUIRE(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
        closed = ntohs(address.sin_port);
    }
    test::Sshd sshd("", own_files);
    test::TemporaryFolder home;
    auto target = sshd.target();
    REQUIRE(write_file(home / "ssh_key", ssh::private_file(target.key, "")));
    Machine machine{.name = "demo", .state = MachineState::running, .address = target.host};
    machine.ssh_port = target.port;
    machine.user = target.user;
    cli::Record record;
    record.name = "demo";
    record.host_key = target.host_key;
    auto access = cli::ssh_access(home.path());
    REQUIRE(access->get_in(machine, record, [](const std::string&) -> Result<> { return Ok{}; }));
    std::string port = std::to_string(closed);
    auto server = wire::make_key_pair();
    REQUIRE(access->install({"tcp://127.0.0.1:" + port, "h100", 1, "demo", {server.public_key, wire::make_key_pair()}},
                            [](const std::string&) {}));
    auto proof = access->prove();
    REQUIRE_FALSE(proof);
    CHECK(proof.error().kind == Error::Kind::network);
    CHECK(proof.error().what == "'demo' cannot reach the pool at 127.0.0.1 port " + port + ": Connection refused");
    CHECK(proof.error().hint.find("TCP port " + port + " of 127.0.0.1 must accept connections from 127.0.0.1") == 0);
}
