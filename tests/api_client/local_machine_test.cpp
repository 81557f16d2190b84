// A whole local machine: Debian boots with user data that plants its SSH host key, answers a client that checks it
// strictly, has no GPU, shuts down in order and leaves nothing when destroyed. That a stopped one comes back with its disk
// is for tests/end_to_end. The image comes from the user's cache and is built when it is not there; the machine's state is
// the test's own.
#include <chrono>
#include <iostream>
#include <thread>
#include "tests/support/catch.hpp"

#include "api_client/base/paths.hpp"
#include "api_client/providers/local/child.hpp"
#include "api_client/providers/local/local.hpp"
#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A quiet host takes some 25 s under emulation, one with five busy processes per core 80: this is no measurement.
constexpr auto boot_limit = std::chrono::seconds(300);

std::string indented(const std::string& text) {
    std::string result = "    ";
    for (char c : text) result += c == '\n' ? "\n    " : std::string(1, c);
    return result;
}

class Keys {
public:
    explicit Keys(const TemporaryFolder& folder) : folder_(folder) {
        for (const char* name : {"host", "user", "wrong"}) {
            auto made = run({.argv = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", folder_ / name}});
            REQUIRE((made && made->exit_code == 0));
        }
    }
    std::string of(const std::string& name) const { return test::read_text(folder_ / name); }
    std::string user_data() const {
        return "#cloud-config\n"
               "users:\n"
               "  - name: tester\n"
               "    shell: /bin/bash\n"
               "    sudo: ALL=(ALL) NOPASSWD:ALL\n"
               "    ssh_authorized_keys:\n"
               "      - " +
               of("user.pub") +
               "ssh_keys:\n"
               "  ed25519_private: |\n" +
               indented(of("host")) +
               "\n"
               "  ed25519_public: " +
               of("host.pub");
    }

private:
    const TemporaryFolder& folder_;
};

struct Remote {
    const TemporaryFolder& folder;
    const Keys& keys;
    Machine machine;

    Finished ssh(const std::string& command, const std::string& host_key = "host.pub") const {
        const std::string port = std::to_string(machine.ssh_port);
        test::write_text(folder / "known_hosts", "[" + machine.address + "]:" + port + " " + keys.of(host_key));
        auto finished = run({.argv = {"ssh",
                                      "-F",
                                      "none",
                                      "-i",
                                      folder / "user",
                                      "-p",
                                      port,
                                      "-l",
                                      machine.user,
                                      "-o",
                                      "IdentitiesOnly=yes",
                                      "-o",
                                      "BatchMode=yes",
                                      "-o",
                                      "StrictHostKeyChecking=yes",
                                      "-o",
                                      "UserKnownHostsFile=" + (folder / "known_hosts"),
                                      "-o",
                                      "ConnectTimeout=5",
                                      machine.address,
                                      command}});
        REQUIRE(finished);
        return *finished;
    }
    // What the command printed; it must succeed.
    std::string said(const std::string& command) const {
        const Finished finished = ssh(command);
        INFO(command << ": " << finished.output);
        REQUIRE(finished.exit_code == 0);
        return finished.output;
    }
    void wait_until_up(Clock::time_point since) const {
        while (ssh("true").exit_code != 0) {
            INFO(test::read_text(folder / "state/demo/serial.log"));
            REQUIRE(Clock::now() - since < boot_limit);
            std::this_thread::sleep_for(std::chrono::milliseconds(200));  // asking is all that can be done from outside
        }
        std::cerr << "SSH after " << std::chrono::duration<double>(Clock::now() - since).count() << " s\n";
    }
};

struct DestroyAtEnd {
    LocalProvider& provider;
    ~DestroyAtEnd() { (void)provider.destroy("demo"); }
};

}  // namespace

TEST_CASE("a Debian machine lives through everything that is asked of it", "[local][machine]") {
    const TemporaryFolder folder;
    const Keys keys(folder);
    LocalProvider provider{folder / "state", cache_dir()};
    const DestroyAtEnd destroy_at_end{provider};

    Clock::time_point power_on;
    auto made = provider.create(
        {.name = "demo", .user_data = keys.user_data(), .user = "tester", .on_step = [&](const std::string& step) {
             std::cerr << "  " << step << '\n';
             if (step.find("starting") == 0) power_on = Clock::now();
         }});
    REQUIRE(made);
    CHECK(made->user == "tester");
    Remote remote{folder, keys, *made};
    remote.wait_until_up(power_on);

    // Strict checking is no check unless another key is refused.
    const Finished refused = remote.ssh("true", "wrong.pub");
    CHECK(refused.exit_code == 255);
    CHECK(refused.output.find("Host key verification failed") != std::string::npos);

    // Class 03 is display: VGA, 3D and other controllers. Class 02 shows that lspci sees anything at all.
    const std::string devices = remote.said("lspci -n");
    INFO(devices);
    CHECK(devices.find(" 0200: ") != std::string::npos);
    CHECK(devices.find(" 03") == std::string::npos);

    CHECK(remote.said("cloud-init status --wait").find("status: done") != std::string::npos);
    CHECK(remote.said("hostname; sudo id -u") == "demo\n0\n");
    CHECK(remote.said("df --output=size -BG / | tail -1").find("20G") != std::string::npos);
    CHECK(remote.said("systemctl --failed --plain --no-legend").empty());

    auto port = free_port();
    REQUIRE(port);
    const UniqueFd on_the_host = listen_on(*port);
    const std::string dial = "exec 3<>/dev/tcp/" + provider.pool_host() + "/" + std::to_string(*port);
    CHECK(remote.ssh("timeout 10 bash -c '" + dial + "'").exit_code == 0);

    const auto stopping = Clock::now();
    REQUIRE(provider.stop("demo"));
    std::cerr << "stopped after " << std::chrono::duration<double>(Clock::now() - stopping).count() << " s\n";
    CHECK(provider.machine("demo")->state == MachineState::stopped);
    CHECK(test::read_text(folder / "state/demo/serial.log").find("Power down") != std::string::npos);
    CHECK(!is_listening(made->ssh_port));

    REQUIRE(provider.destroy("demo"));
    CHECK(!is_listening(remote.machine.ssh_port));
    CHECK(fs::is_empty(folder / "state"));
    CHECK(provider.machine("demo").error().kind == Error::Kind::not_found);
}
