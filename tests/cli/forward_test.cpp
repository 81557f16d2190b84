// Ports forwarded over SSH: bytes, ends, refusals, and connections that break in the middle.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "cli/commands/connect.hpp"
#include "cli/ssh/forward.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/complaints.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

int port_of_socket(int socket) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    return ntohs(address.sin_port);
}

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// None where nobody listens. Any thread may call it.
UniqueFd dial(int port) {
    UniqueFd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    auto address = loopback(port);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) socket.reset();
    return socket;
}

bool send_all(int socket, const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
        ssize_t took = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (took <= 0) return false;
        sent += static_cast<size_t>(took);
    }
    return true;
}

// All that comes until the other side ends or breaks.
std::string read_all(int socket) {
    std::string text;
    char piece[65536];
    for (ssize_t got; (got = ::recv(socket, piece, sizeof piece, 0)) > 0;) text.append(piece, static_cast<size_t>(got));
    return text;
}

// A server on the machine's side: each connection is served by a thread of its own.
class Server {
public:
    explicit Server(std::function<void(int socket)> serve) : serve_(std::move(serve)) {
        auto address = loopback(0);
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(::listen(listener_.get(), 64) == 0);
        acceptor_ = std::thread([this] {
            for (int socket; (socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
                served_.emplace_back([this, socket] {
                    serve_(socket);
                    ::close(socket);
                });
        });
    }
    ~Server() {
        ::shutdown(listener_.get(), SHUT_RDWR);
        acceptor_.join();
        for (auto& each : served_) each.join();
    }
    int port() const { return port_of_socket(listener_.get()); }

private:
    std::function<void(int)> serve_;
    UniqueFd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    std::vector<std::thread> served_;  // the acceptor's, until it has ended
    std::thread acceptor_;
};

// `tnr connect -N` without the command around it: forwards over one connection, until it goes.
class Forwarding {
public:
    Forwarding(const test::Sshd& sshd, int host_port) {
        auto listening = forwards_.listen({.host = "127.0.0.1", .host_port = host_port});
        REQUIRE(listening);
        port_ = listening->port;
        connect(sshd);
    }
    ~Forwarding() { end(); }

    void connect(const test::Sshd& sshd) {
        auto client = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
        REQUIRE(client);
        client_ = std::move(*client);
        REQUIRE(forwards_.attach(*client_));
        pump_ = std::thread([this] { ended_ = hold_open(*client_); });
    }
    // The connection breaks, or, as nothing else wakes it, the user interrupts.
    void wait_end() {
        pump_.join();
        forwards_.detach();
        client_.reset();
    }
    void end() {
        if (!client_) return;
        ::shutdown(client_->wire().fd(), SHUT_RDWR);
        wait_end();
    }
    int port() const { return port_; }
    const Error& ended() const { return ended_; }
    std::vector<std::string> told;

private:
    ssh::Forwards forwards_{[this](const std::string& line) { told.push_back(line); }};
    std::unique_ptr<ssh::Client> client_;
    std::thread pump_;
    Error ended_;
    int port_ = 0;
};

void echo(int socket) {
    char piece[65536];
    for (ssize_t got; (got = ::recv(socket, piece, sizeof piece, 0)) > 0;)
        if (!send_all(socket, {piece, static_cast<size_t>(got)})) return;
}

long resident_kib() {
    std::ifstream status{"/proc/self/status"};
    for (std::string line; std::getline(status, line);)
        if (line.compare(0, 6, "VmRSS:") == 0) return std::stol(line.substr(6));
    return 0;
}

// `total` bytes through it in one direction; what the resident memory has grown by meanwhile.
long growth_while_carrying(uint64_t total) {
    std::string piece(1 << 20, 'x');
    std::atomic<uint64_t> arrived{0};
    Server sink([&](int socket) {
        std::string room(1 << 20, 0);
        for (ssize_t got; (got = ::recv(socket, room.data(), room.size(), 0)) > 0;)
            arrived += static_cast<uint64_t>(got);
        send_all(socket, "done");
    });
    test::Sshd sshd;
    Forwarding forwarding(sshd, sink.port());
    auto socket = dial(forwarding.port());
    uint64_t sent = 0;
    for (; sent < total / 8; sent += piece.size()) REQUIRE(send_all(socket.get(), piece));
    long before = resident_kib();
    for (; sent < total; sent += piece.size()) REQUIRE(send_all(socket.get(), piece));
    long after = resident_kib();
    ::shutdown(socket.get(), SHUT_WR);
    CHECK(read_all(socket.get()) == "done");
    CHECK(arrived == sent);
    return after - before;
}

}  // namespace

TEST_CASE("ports to forward are read as ssh reads them", "[ssh][forward]") {
    auto text = [](const std::string& words) {
        auto forward = ssh::parse_forward(words);
        return forward ? to_string(*forward) : forward.error().what;
    };
    CHECK(text("8888") == "127.0.0.1:8888 to localhost:8888");
    CHECK(text("8080:80") == "127.0.0.1:8080 to localhost:80");
    CHECK(text("0:80") == "127.0.0.1:0 to localhost:80");
    CHECK(text("5432:db:5433") == "127.0.0.1:5432 to db:5433");
    CHECK(text("0.0.0.0:5432:db:5433") == "0.0.0.0:5432 to db:5433");
    CHECK(text("[::1]:80:[fe80::1]:81") == "[::1]:80 to [fe80::1]:81");
    for (const char* bad :
         {"", "x", "0", "65536", "-1", "80:", ":80", "80:0", "80::90", "1:2:3:4:5", "8888 ", ":1:h:2"})
        CHECK(text(bad).find("is no port to forward") != std::string::npos);
}

TEST_CASE("many connections at once carry their bytes both ways, each its own", "[ssh][forward]") {
    Server server(echo);
    test::Sshd sshd;
    Forwarding forwarding(sshd, server.port());
    std::vector<std::thread> users;
    std::atomic<int> right{0};
    for (int i = 0; i < 24; ++i)
        users.emplace_back([&, i] {
            auto socket = dial(forwarding.port());
            std::string text;
            for (int k = 0; k < 300'000; ++k) text += static_cast<char>((k * 31 + i * 7) >> 3);
            std::thread writer([&] {
                send_all(socket.get(), text);
                ::shutdown(socket.get(), SHUT_WR);
            });
            right += read_all(socket.get()) == text;
            writer.join();
        });
    for (auto& user : users) user.join();
    CHECK(right == 24);
    CHECK(forwarding.told.empty());
}

TEST_CASE("either side of a forwarded connection may end long before the other", "[ssh][forward]") {
    test::Sshd sshd;
    SECTION("the user's") {
        Server server([](int socket) { send_all(socket, "heard " + read_all(socket)); });
        Forwarding forwarding(sshd, server.port());
        auto socket = dial(forwarding.port());
        REQUIRE(send_all(socket.get(), "all of it"));
        ::shutdown(socket.get(), SHUT_WR);
        CHECK(read_all(socket.get()) == "heard all of it");
    }
    SECTION("the machine's") {
        std::promise<size_t> heard;
        Server server([&](int socket) {
            send_all(socket, "greeting");
            ::shutdown(socket, SHUT_WR);
            heard.set_value(read_all(socket).size());
        });
        Forwarding forwarding(sshd, server.port());
        auto socket = dial(forwarding.port());
        CHECK(read_all(socket.get()) == "greeting");
        REQUIRE(send_all(socket.get(), std::string(3'000'000, 'y')));
        ::shutdown(socket.get(), SHUT_WR);
        CHECK(heard.get_future().get() == 3'000'000);
    }
    SECTION("the machine's wholly, which ends the user's") {
        Server server([](int socket) {
            linger at_once{1, 0};
            char byte;
            (void)!::recv(socket, &byte, 1, 0);
            ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        });
        Forwarding forwarding(sshd, server.port());
        auto socket = dial(forwarding.port());
        while (send_all(socket.get(), std::string(65536, 'z'))) {
        }
        CHECK(read_all(socket.get()) == "");
    }
}

TEST_CASE("a port that the machine refuses ends the connection here, and is told once", "[ssh][forward]") {
    int nobody;
    {
        const UniqueFd taken{::socket(AF_INET, SOCK_STREAM, 0)};
        auto address = loopback(0);
        REQUIRE(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        nobody = port_of_socket(taken.get());
    }
    test::Sshd sshd;
    Forwarding forwarding(sshd, nobody);
    for (int i = 0; i < 5; ++i) CHECK(read_all(dial(forwarding.port()).get()) == "");
    forwarding.end();
    REQUIRE(forwarding.told.size() == 1);
    CHECK(forwarding.told[0].find("'demo' cannot connect to 127.0.0.1:" + std::to_string(nobody)) == 0);
}

TEST_CASE("users who vanish in the middle, 200 times, leave the others and the connection alone", "[ssh][forward]") {
    Server server(echo);
    test::Sshd sshd;
    Forwarding forwarding(sshd, server.port());
    auto steady = dial(forwarding.port());
    for (int i = 0; i < 200; ++i) {
        auto socket = dial(forwarding.port());
        if (i % 3) send_all(socket.get(), std::string(static_cast<size_t>(i) * 100, 'a'));
        if (i % 2) {
            linger at_once{1, 0};  // a reset, not a goodbye
            ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        }
        if (i % 20) continue;
        REQUIRE(send_all(steady.get(), "still here"));
        std::string back(10, 0);
        REQUIRE(::recv(steady.get(), back.data(), back.size(), MSG_WAITALL) == 10);
        CHECK(back == "still here");
    }
    CHECK(sshd.accepted() == 1);
}

TEST_CASE("a connection that breaks ends what it carried, and the ports stay for the next one", "[ssh][forward]") {
    Server server(echo);
    test::Sshd sshd;
    Forwarding forwarding(sshd, server.port());
    for (int i = 0; i < 6; ++i) {
        auto socket = dial(forwarding.port());
        REQUIRE(send_all(socket.get(), "hello"));
        std::string back(5, 0);
        REQUIRE(::recv(socket.get(), back.data(), 5, MSG_WAITALL) == 5);
        std::thread user([&] {
            while (send_all(socket.get(), std::string(10'000, 'b'))) {
            }
        });
        sshd.kill_connections();
        forwarding.wait_end();
        CHECK(forwarding.ended().kind == Error::Kind::network);
        (void)read_all(socket.get());
        user.join();
        forwarding.connect(sshd);
    }
}

TEST_CASE("a user who does not read holds up nobody else, and takes no memory without end", "[ssh][forward]") {
    Server flood([](int socket) {
        while (send_all(socket, std::string(1 << 20, 'f'))) {
        }
    });
    test::Sshd sshd;
    Forwarding forwarding(sshd, flood.port());
    auto lazy = dial(forwarding.port());
    long before = resident_kib();
    for (int i = 0; i < 3; ++i) {
        auto socket = dial(forwarding.port());
        std::string some(8 << 20, 0);
        CHECK(::recv(socket.get(), some.data(), some.size(), MSG_WAITALL) == static_cast<ssize_t>(some.size()));
    }
    // AddressSanitizer keeps what was freed for a while.
    const long kept_by_sanitizer_mib = dlsym(RTLD_DEFAULT, "__asan_init") ? 256 : 0;
    CHECK(resident_kib() - before < (64 + kept_by_sanitizer_mib) << 10);
    lazy.reset();
}

TEST_CASE("memory does not grow with what is carried", "[ssh][forward]") {
    CHECK(growth_while_carrying(uint64_t{192} << 20) < 16 << 10);
}

TEST_CASE("2 GB through a forward", "[.][slow]") {
    CHECK(growth_while_carrying(uint64_t{2} << 30) < 16 << 10);
}

TEST_CASE("a port that is taken here is told before the machine is asked", "[cli][forward]") {
    test::FakeSession fake;
    fake.start_demo();
    Server server(echo);
    std::string port = std::to_string(server.port());
    CHECK(fake.tnr({"connect", "demo", "-N", "-L", port}) == 2);
    CHECK(fake.err.str().find("cannot listen at 127.0.0.1 port " + port + ": Address already in use") !=
          std::string::npos);
    CHECK(fake.err.str().find("-L PORT:localhost:" + port) != std::string::npos);
    CHECK(fake.tnr({"connect", "demo", "-L", "x"}) == 2);
    CHECK(fake.tnr({"connect", "demo", "-N"}) == 2);
    CHECK(fake.tnr({"connect", "demo", "-N", "-L", "0:1", "--", "true"}) == 2);
}

namespace {

struct Line {
    UniqueFd out, in;
    Line() {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        out = UniqueFd{ends[0]};
        in = UniqueFd{ends[1]};
    }
    void type(const std::string& text) const { (void)!::write(in.get(), text.data(), text.size()); }
    // Reads until `words` have come.
    bool comes(const std::string& words) {
        char piece[4096];
        while (seen.find(words) == std::string::npos) {
            ssize_t got = ::read(out.get(), piece, sizeof piece);
            if (got <= 0) return false;
            seen.append(piece, static_cast<size_t>(got));
        }
        seen.clear();
        return true;
    }
    std::string seen = {};
};

}  // namespace

TEST_CASE("a shell that loses its connection dials again and says so, its ports too", "[cli][forward]") {
    test::FakeSession fake;
    fake.start_demo();
    test::Sshd sshd;
    fake.put_demo_at(sshd);
    Server server(echo);
    const UniqueFd free_port{::socket(AF_INET, SOCK_STREAM, 0)};
    auto address = loopback(0);
    int on = 1;
    ::setsockopt(free_port.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    REQUIRE(::bind(free_port.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    int here = port_of_socket(free_port.get());
    fake.session.in_is_terminal = fake.session.out_is_terminal = fake.session.err_is_terminal = true;
    Line keys, screen;
    cli::ConnectOptions options{.name = "demo",
                                .forwards = {std::to_string(here) + ":127.0.0.1:" + std::to_string(server.port())},
                                .streams = {keys.out.get(), screen.in.get(), screen.in.get()}};
    test::Complaints complaints;
    std::thread user([&] {
        for (int i = 0; i < 3; ++i) {
            keys.type("echo shell-$((40+2))\r");
            complaints.expect(screen.comes("shell-42"), "no shell");
            auto socket = dial(here);
            complaints.expect(send_all(socket.get(), "over it"), "the port takes nothing");
            std::string back(7, 0);
            complaints.expect(::recv(socket.get(), back.data(), 7, MSG_WAITALL) == 7, "nothing comes back");
            if (i < 2) sshd.kill_connections();
            if (i < 2) complaints.expect(read_all(socket.get()).empty(), "more came than was sent");
        }
        keys.type("exit 5\r");
    });
    auto done = cli::connect(fake.session, options);
    screen.in.reset();  // whatever went wrong, nobody waits for words that cannot come
    user.join();
    INFO(fake.err.str());
    CHECK(complaints.text() == "");
    CHECK(done);
    CHECK(fake.session.exit_code == 5);
    CHECK(sshd.accepted() == 3);
    CHECK(fake.err.str().find("tnr: forwarding 127.0.0.1:" + std::to_string(here)) != std::string::npos);
    CHECK(fake.err.str().find("lost the connection to 'demo'") != std::string::npos);
    CHECK(fake.err.str().find("connected to 'demo' again, with a new shell") != std::string::npos);
}

TEST_CASE("ports to a machine that there is not are not said to be forwarded", "[cli][forward]") {
    test::FakeSession fake;
    cli::ConnectOptions options{.name = "nobody", .forwards = {"127.0.0.1:0:127.0.0.1:80"}, .no_shell = true};
    auto done = cli::connect(fake.session, options);
    REQUIRE_FALSE(done);
    CHECK(fake.err.str().find("forwarding") == std::string::npos);
}

TEST_CASE("a command whose connection breaks is not run twice", "[cli][forward]") {
    test::FakeSession fake;
    fake.start_demo();
    test::Sshd sshd;
    fake.put_demo_at(sshd);
    fake.session.in_is_terminal = fake.session.out_is_terminal = fake.session.err_is_terminal = true;
    Line keys, screen;
    cli::ConnectOptions options{.name = "demo",
                                .words = {"echo $((40+2)); exec sleep 100"},
                                .streams = {keys.out.get(), screen.in.get(), screen.in.get()}};
    bool ran = false;
    std::thread user([&] {
        ran = screen.comes("42");
        sshd.kill_connections();
    });
    auto done = cli::connect(fake.session, options);
    screen.in.reset();  // whatever went wrong, nobody waits for words that cannot come
    user.join();
    CHECK(ran);
    CHECK_FALSE(done);
    CHECK(sshd.accepted() == 1);
}
