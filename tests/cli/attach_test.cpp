// `tnr attach`: another GPU for programs started from now on.
#include "cli/commands/attach.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <thread>

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
    CHECK(fake.err.str().find("hint: ask for fewer: `tnr attach demo a100:1`\n") != std::string::npos);
    CHECK(fake.tnr({"attach", "demo"}) == 2);
    CHECK(fake.err.str().find("hint: say which: `tnr attach demo h100`\n") != std::string::npos);
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

namespace {

// Stands between a client and a server on loopback. Counts how often the client says something after the server has: each
// is a wait for the way there and back.
class Relay {
public:
    explicit Relay(int server_port) : server_port_(server_port) {
        sockaddr_in address = loopback(0);
        socklen_t length = sizeof address;
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
        REQUIRE(::listen(listener_.get(), 8) == 0);
        REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] { accept_all(); });
    }
    ~Relay() {
        ::shutdown(listener_.get(), SHUT_RDWR);
        thread_.join();
    }
    int port() const { return port_; }
    int connections() const { return connections_; }
    int round_trips() const { return round_trips_; }

private:
    static sockaddr_in loopback(int port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(static_cast<uint16_t>(port));
        return address;
    }
    void accept_all() {
        for (;;) {
            const UniqueFd client{::accept(listener_.get(), nullptr, nullptr)};
            if (!client) return;
            ++connections_;
            const UniqueFd server{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
            const sockaddr_in address = loopback(server_port_);
            if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
                carry(client.get(), server.get());
        }
    }
    void carry(int client, int server) {
        bool server_spoke = false;
        for (;;) {
            pollfd polls[] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
            if (::poll(polls, 2, -1) < 0 && errno != EINTR) return;
            // What the client said first comes first.
            const bool from_client = polls[0].revents != 0;
            char piece[16384];
            const ssize_t length = ::read(from_client ? client : server, piece, sizeof piece);
            if (length <= 0) return;
            if (from_client && server_spoke) ++round_trips_;
            server_spoke = !from_client;
            if (::write(from_client ? server : client, piece, static_cast<size_t>(length)) != length) return;
        }
    }

    int server_port_, port_ = 0;
    UniqueFd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    std::atomic<int> connections_{0}, round_trips_{0};
    std::thread thread_;
};

}  // namespace

TEST_CASE("attach asks the pool while it gets into the machine", "[cli][attach]") {
    test::FakeSession fake;
    fake.start_demo();
    // Each waits for the other, for a while: one after the other, neither would have met it.
    struct Meeting {
        std::atomic<int> there{0};
        bool comes() {
            ++there;
            for (int tries = 0; tries < 500 && there < 2; ++tries)
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            return there == 2;
        }
    } meeting;
    struct MeetingPool : test::FakePool {
        MeetingPool(test::FakeWorld& world, Meeting& each) : FakePool(world), meeting(each) {}
        Result<std::vector<cli::GpuType>> types() override {
            meeting.comes();
            return FakePool::types();
        }
        Meeting& meeting;
    };
    struct MeetingAccess : test::FakeAccess {
        MeetingAccess(test::FakeWorld& world, Meeting& each, bool& met_)
            : FakeAccess(world), meeting(each), met(met_) {}
        Result<> get_in(const Machine& machine, const cli::Record& record, const cli::Waiting& waiting) override {
            met = meeting.comes();
            return FakeAccess::get_in(machine, record, waiting);
        }
        Meeting& meeting;
        bool& met;
    };
    bool met = false;
    fake.session.pool = [&](const cli::PoolLogin&) -> Result<std::unique_ptr<cli::Pool>> {
        return std::unique_ptr<cli::Pool>(std::make_unique<MeetingPool>(fake.world, meeting));
    };
    fake.session.access = [&] { return std::make_unique<MeetingAccess>(fake.world, meeting, met); };
    REQUIRE(fake.tnr({"attach", "demo", "a100"}) == 0);
    CHECK(met);
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
    fake.session.access = [&] { return cli::ssh_access(fake.session.config_folder); };
    Relay relay(sshd.target().port);
    fake.world.machines.at("i-1").ssh_port = fake.world.ssh_port = relay.port();
    auto begun = ssh::Clock::now();
    REQUIRE(fake.tnr({"attach", "demo", "a100"}) == 0);
    WARN("attach over SSH took " << std::chrono::duration<double>(ssh::Clock::now() - begun).count() << " s and "
                                 << relay.round_trips() << " round trips");
    CHECK(relay.connections() == 1);
    CHECK(relay.round_trips() <= 12);  // nine; what comes in two pieces counts twice
    CHECK(json::parse(test::read_text(etc_tnr / "gpu.json"))["gpu"] == "a100");
    CHECK_FALSE(file_exists(etc_tnr / "gpu.json.new"));
    REQUIRE(fake.tnr({"detach", "demo"}) == 0);
    CHECK_FALSE(file_exists(etc_tnr / "gpu.json"));
    REQUIRE(fake.tnr({"detach", "demo"}) == 0);
}
