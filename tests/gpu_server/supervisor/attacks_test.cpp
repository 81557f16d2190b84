// What one client may do to the server that all the others need: each of these attacks once worked.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <zmq.hpp>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/ports.hpp"

using namespace tnr;
using namespace tnr::test;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

// Connections that obey nobody: no watermark, no reading, no good-bye.
class Crowd {
public:
    Crowd(const Server& server, int size, const wire::ClientKeys& keys = {}) {
        for (int i = 0; i < size; ++i) {
            zmq::socket_t socket(context_, ZMQ_DEALER);
            socket.set(zmq::sockopt::linger, 0);
            socket.set(zmq::sockopt::sndhwm, 0);
            socket.set(zmq::sockopt::rcvhwm, 1);  // then it stops reading
            sign_in(socket, keys);
            socket.connect(server.address);
            sockets_.push_back(std::move(socket));
        }
    }
    void send(const std::string& text, int times) {
        for (auto& socket : sockets_)
            for (int i = 0; i < times; ++i) socket.send(zmq::buffer(text), zmq::send_flags::none);
    }
    // Parts of a message that never ends.
    void send_parts(const std::string& text, int times) {
        for (auto& socket : sockets_)
            for (int i = 0; i < times; ++i) socket.send(zmq::buffer(text), zmq::send_flags::sndmore);
    }
    void end_message() {
        for (auto& socket : sockets_) socket.send(zmq::str_buffer("."), zmq::send_flags::none);
    }

private:
    zmq::context_t context_{1};
    std::vector<zmq::socket_t> sockets_;
};

// One connection in plain text, by hand: it can stop anywhere, and its end is a reset, as when its process is killed.
class RawPeer {
public:
    explicit RawPeer(const Server& server) : socket_(knock_at(server.address)) {
        std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16);
        greeting.resize(64, '\0');
        write(greeting);
        write(frame(0x04, std::string("\5READY\xbSocket-Type\0\0\0\6DEALER", 28)));
        timeval patience{20, 0};
        setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        char theirs[64];
        REQUIRE(recv(socket_.get(), theirs, sizeof theirs, MSG_WAITALL) == 64);
    }
    static std::string frame(unsigned char flags, const std::string& body) {
        return std::string{static_cast<char>(flags), static_cast<char>(body.size())} + body;
    }
    static std::string message(const std::string& body) { return frame(0, body); }
    void write(const std::string& bytes) {
        REQUIRE(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    }
    // As much as the other end takes within a moment, if it is there at all.
    void flood(const std::string& bytes) {
        timeval moment{0, 100'000};
        setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
        (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    // The other end has let it in: before that, it takes no commands.
    void wait_until_ready() {
        char head[2], body[256];
        REQUIRE(recv(socket_.get(), head, sizeof head, MSG_WAITALL) == sizeof head);
        REQUIRE(recv(socket_.get(), body, static_cast<unsigned char>(head[1]), MSG_WAITALL) ==
                static_cast<unsigned char>(head[1]));
        REQUIRE(std::string(body, 6) == "\5READY");
    }
    static std::string ping() { return frame(0x04, std::string("\4PING\0\0", 7)); }
    // Reads until so many PONGs have come, or the other end has cut the connection.
    std::pair<int, bool> hear(int wanted) {
        std::string text;
        for (char bytes[4096];;) {
            auto got = recv(socket_.get(), bytes, sizeof bytes, 0);
            REQUIRE((got >= 0 || errno == ECONNRESET));
            text.append(bytes, static_cast<size_t>(std::max<ssize_t>(got, 0)));
            int pongs = 0;
            for (size_t at = 0; (at = text.find("\4PONG", at)) != std::string::npos; ++at) ++pongs;
            if (got <= 0 || pongs >= wanted) return {pongs, got <= 0};
        }
    }
    void reset() {
        linger at_once{1, 0};
        setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        socket_.reset();
    }

private:
    UniqueFd socket_;
};

std::string request(const std::string& op, size_t padding = 0) {
    json text = {
        {"op", op}, {"id", 1}, {"protocol", wire::protocol_version}, {"table", control::table_hash()}, {"gpu", "h100"}};
    if (padding > 0) text["padding"] = std::string(padding, 'x');
    return text.dump();
}

// How often an attack is tried. TNR_TEST_TRIES=30 for those who want to be sure.
int tries() {
    const char* wanted = std::getenv("TNR_TEST_TRIES");
    return wanted ? std::atoi(wanted) : 3;
}

uint64_t resident_bytes(const Server& server, const std::string& what = "VmRSS:") {
    std::ifstream status("/proc/" + std::to_string(server.pid) + "/status");
    uint64_t kib = 0;
    for (std::string word; status >> word;)
        if (word == what) status >> kib;
    return kib << 10;
}

milliseconds time_of(const std::function<void()>& what) {
    auto before = Clock::now();
    what();
    return std::chrono::duration_cast<milliseconds>(Clock::now() - before);
}

std::string range_of(const Ports& ports, int count) {
    return std::to_string(ports.first()) + "-" + std::to_string(ports.first() + count - 1);
}

// Of the thread that does all that one user's requests could hold up (sched_schedstats.rst: the first number).
std::chrono::nanoseconds thread_time(const Server& server) {
    const auto id = std::to_string(server.pid);
    std::ifstream file("/proc/" + id + "/task/" + id + "/schedstat");
    int64_t ns = 0;
    file >> ns;
    REQUIRE(ns > 0);
    return std::chrono::nanoseconds(ns);
}

// One more connection. False: the other end's queue of those that it should accept is full.
bool knock(int port, std::vector<UniqueFd>& connections) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    pollfd connected{socket.get(), POLLOUT, 0};
    bool there = poll(&connected, 1, 1'500) == 1;
    connections.push_back(std::move(socket));
    return there;
}

}  // namespace

TEST_CASE("clients that ask without reading, and vanish, do not end the server", "[attacks]") {
    Server server({"--plain", "--emulate", "h100"});
    bool ping = GENERATE(false, true);  // the other way to be written to
    for (int i = 0; i < tries(); ++i) {
        CAPTURE(i);
        std::string many;
        for (int k = 0; k < 5000; ++k) {
            many += RawPeer::message(request("types"));
            if (ping) many += RawPeer::ping();
        }
        std::vector<RawPeer> peers;
        for (int k = 0; k < 20; ++k) peers.emplace_back(server);
        for (auto& peer : peers) peer.flood(many);
        for (auto& peer : peers) peer.reset();
        // The heartbeat is what came upon the dead connection.
        std::this_thread::sleep_for(wire::heartbeat_interval + milliseconds(100));
        REQUIRE(ask(*client_of(server), {{"op", "hello"}})["role"] == "open");
    }
}

TEST_CASE("a connection that sends ZeroMQ's own commands without end is cut, and few are answered", "[attacks]") {
    Server server({"--plain", "--emulate", "h100"});
    constexpr int many = 5'000, few = server::commands_per_heartbeat_max / 2;
    auto repeated = [](const std::string& text, int times) {
        std::string all;
        while (times-- > 0) all += text;
        return all;
    };
    RawPeer patient(server);
    patient.wait_until_ready();
    for (int beats = 0; beats < 2; ++beats) {
        patient.write(repeated(RawPeer::ping(), few));
        CHECK(patient.hear(few).first == few);
        std::this_thread::sleep_for(2 * wire::heartbeat_interval);
    }
    RawPeer pings(server);
    pings.wait_until_ready();
    pings.flood(repeated(RawPeer::ping(), many));
    const auto [pongs, cut] = pings.hear(many);
    CHECK(cut);
    CHECK(pongs <= server::commands_per_heartbeat_max);
    RawPeer subscribes(server);
    subscribes.wait_until_ready();
    subscribes.flood(repeated(RawPeer::frame(0x04, "\tSUBSCRIBEx"), many));
    CHECK(subscribes.hear(1).second);
    CHECK(ask(*client_of(server), {{"op", "hello"}})["role"] == "open");
}

TEST_CASE("one key's flood of requests does not make another's wait", "[attacks]") {
    Server server({"--emulate", "h100"});
    auto mallory = enroll(server, "mallory"), alice = enroll(server, "alice");
    auto size = GENERATE(as<size_t>(), 100, 30'000, 900'000);
    CAPTURE(size);
    auto client = client_of(server, alice);
    auto connection = connect_to(ask(*client, session_request())["endpoint"]);
    constexpr milliseconds limit(500);  // 9 s and more before
    milliseconds longest = limit;
    // A busy machine stands still, but not each time.
    for (int floods = 0; floods < 3 && longest >= limit; ++floods) {
        Crowd crowd(server, 4, mallory);
        crowd.send(request("types", size), static_cast<int>(100'000'000 / (size + 10'000)));
        std::this_thread::sleep_for(milliseconds(100));  // it floods
        longest = milliseconds(0);
        for (int i = 0; i < 10; ++i)
            longest = std::max(longest, time_of([&] {
                                   REQUIRE(ask(*client, {{"op", "types"}}).contains("types"));
                                   uint64_t bytes = 0;  // her worker asks for memory
                                   REQUIRE(send(connection.get(), "m", 1, 0) == 1);
                                   REQUIRE(recv(connection.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
                               }));
        WARN("the longest of ten turns took " << longest.count() << " ms");
    }
    CHECK(longest < limit);
    CHECK(resident_bytes(server, "VmHWM:") < uint64_t{100} << 20);
}

// Everything else that the server does, it does on the same thread: what one user can have of it is what others can lose. Time on
// a processor, which a busy machine does not lengthen.
TEST_CASE("one user's flood takes a tenth of the server's time at most", "[attacks]") {
    Server server({"--emulate", "h100"});
    auto mallory = enroll(server, "mallory");
    auto size = GENERATE(as<size_t>(), 100, 10'000, 30'000);
    CAPTURE(size);
    const auto quiet = thread_time(server);
    std::this_thread::sleep_for(milliseconds(1000));
    const auto idle = thread_time(server) - quiet;
    double part = 1;
    for (int floods = 0; floods < 4 && part >= 0.10;
         ++floods) {  // a machine that does other things measures badly at times
        Crowd crowd(server, 4, mallory);
        crowd.send(request("types", size), static_cast<int>(600'000'000 / (size + 2'000)));
        REQUIRE(server.wait_for_log("requests are dropped"));
        // Once what is allowed at once has been used up: on a busy machine that takes a while.
        for (int tries = 0; tries < 6 && part >= 0.10; ++tries) {
            const auto begun = std::chrono::steady_clock::now();
            const auto before = thread_time(server);
            std::this_thread::sleep_for(milliseconds(1000));
            const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
            part = std::chrono::duration<double>(thread_time(server) - before - idle) / passed;
        }
    }
    WARN("of " << size << " bytes: " << 100 * part << " % of the server's thread");
    CHECK(part < 0.10);  // half of it before, for as long as the flood lasted
}

TEST_CASE("no message makes the server hold much memory", "[attacks]") {
    Server server({"--plain", "--emulate", "h100"});
    auto before = resident_bytes(server, "VmHWM:");
    SECTION("one of very many parts") {
        Crowd crowd(server, 1);
        crowd.send_parts(std::string(1000, 'x'), 300'000);
        crowd.end_message();
        std::this_thread::sleep_for(milliseconds(500));
    }
    SECTION("some that never end") {
        std::vector<RawPeer> peers;
        for (int i = 0; i < 8; ++i) peers.emplace_back(server);
        std::string part("\x03\0\0\0\0\0\0\x27\x10", 9);  // more will follow; 10,000 bytes
        part.resize(9 + 10'000, 'x');
        std::string parts;
        for (int i = 0; i < 100; ++i) parts += part;
        for (int i = 0; i < 30; ++i)
            for (auto& peer : peers) peer.flood(parts);
    }
    SECTION("large ones") {
        Crowd crowd(server, 8);
        crowd.send(std::string(900'000, 'x'), 100);
        std::this_thread::sleep_for(milliseconds(500));
    }
    SECTION("answers that nobody reads") {
        ask(*client_of(server), {{"op", "describe"}, {"gpu", "h100"}});
        Crowd crowd(server, 50);
        crowd.send(request("describe"), 2000);
        std::this_thread::sleep_for(milliseconds(500));
    }
    REQUIRE(ask(*client_of(server), {{"op", "hello"}})["role"] == "open");
    auto grown = (resident_bytes(server, "VmHWM:") - before) >> 20;
    WARN("grown by " << grown << " MiB");
    CHECK(grown < 60);
}

TEST_CASE("connections that say nothing leave descriptors to the workers", "[attacks]") {
    rlimit many{};
    getrlimit(RLIMIT_NOFILE, &many);
    many.rlim_cur = std::min<rlim_t>(many.rlim_max, 4096);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &many) == 0);
    Server small({"--plain", "--emulate", "h100:2", "--linger-ms", "0"}, {"TNR_WORKER_FAKE_GPUS=2"},
                 std::make_shared<Folder>(), 1024);
    auto client = client_of(small);
    REQUIRE(ask(*client, {{"op", "hello"}})["role"] == "open");
    std::vector<UniqueFd> crowd;
    auto endpoint = *server::parse_endpoint(small.address);
    for (bool more = true; more && crowd.size() < 1300;) more = knock(endpoint.port, crowd);
    for (int program = 1; program <= 8; ++program) {
        auto answer = ask(*client, session_request("trainer"));
        INFO(answer);
        REQUIRE(answer.contains("session"));
        { auto connection = connect_to(answer["endpoint"]); }
        REQUIRE(small.wait_for_log("of trainer ended", program));
    }
    crowd.clear();
    CHECK(wait_for_free_gpus(small, 2));
    CHECK(small.log().find("out of order") == std::string::npos);
}

TEST_CASE("a range of ports that is used up breaks no GPU, and one machine does not use it up", "[attacks]") {
    const Ports ports(10);
    Server server({"--plain", "--emulate", "h100:2", "--linger-ms", "0", "--worker-ports", range_of(ports, 10)},
                  {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    int given = 0;
    for (int i = 0; i < 30; ++i) given += ask(*client, session_request("greedy")).contains("session");
    CHECK(given >= 6);
    CHECK(given <= 8);
    CHECK(ask(*client, session_request("modest")).contains("session"));
    ask(*client, {{"op", "release"}, {"machine", "greedy"}});
    ask(*client, {{"op", "release"}, {"machine", "modest"}});
    CHECK(wait_for_free_gpus(server, 2));
    CHECK(server.log().find("out of order") == std::string::npos);
}

TEST_CASE("a GPU that was out of order is tried again", "[attacks]") {
    Server server({"--plain", "--emulate", "h100"}, {});
    auto fault = server.folder->path + "/fault";
    auto client = client_of(server);
    REQUIRE(ask(*client, {{"op", "describe"}, {"gpu", "h100"}}).contains("devices"));  // its worker waits
    std::ofstream(fault).flush();
    { auto connection = connect_to(ask(*client, session_request("trainer"))["endpoint"]); }
    ask(*client_of(server), {{"op", "release"}, {"machine", "trainer"}});
    REQUIRE(server.wait_for_log("is out of order"));
    CHECK(free_gpus(server) == 0);
    unlink(fault.c_str());
    REQUIRE(server.wait_for_log("is in order again"));
    CHECK(free_gpus(server) == 1);
    CHECK(ask(*client_of(server), session_request("trainer")).contains("session"));
}

TEST_CASE("a waiting worker that somebody kills is no fault of its GPU", "[attacks]") {
    Server server({"--plain", "--emulate", "h100"});
    for (int i = 1; i <= 8; ++i) {
        REQUIRE(server.wait_for_note("pid ", i));
        std::istringstream notes(server.notes());
        int pid = 0;
        for (std::string word; notes >> word;)
            if (word == "pid") notes >> pid;
        REQUIRE(pid > 0);
        REQUIRE(kill(pid, SIGKILL) == 0);
        REQUIRE(server.wait_for_log("its waiting worker was killed by signal 9", i));
        if (i == 6) break;
    }
    CHECK(server.log().find("out of order") == std::string::npos);
    CHECK(ask(*client_of(server), session_request("trainer")).contains("session"));
}

TEST_CASE("a client that is killed before it connects gives its GPU back at once", "[attacks]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"});
    auto before = Clock::now();
    {
        auto client = client_of(server);
        REQUIRE(ask(*client, session_request("trainer")).contains("session"));
    }
    REQUIRE(server.wait_for_log("its client has gone before it connected"));
    CHECK(Clock::now() - before < std::chrono::seconds(12));  // 15 s is what one has that stays
    CHECK(wait_for_free_gpus(server, 1));
}

TEST_CASE("what a worker writes to stderr is lines of its own in the log, and not too many", "[attacks]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"}, {"TNR_WORKER_FAKE_SERVE=chatter"});
    auto client = client_of(server);
    ask(*client, session_request("trainer"));
    REQUIRE(server.wait_for_log("bytes left out"));
    auto log = server.log();
    CHECK(log.size() < 400'000);
    CHECK(log.find("\n2026-01-01T00:00:00.000Z error: forged") == std::string::npos);
    CHECK(log.find(": 2026-01-01T00:00:00.000Z error: forged") != std::string::npos);
    CHECK(log.find("tnr-gpu-server " + control::version()) != std::string::npos);  // not truncated
}

TEST_CASE("a server that is killed and started again refuses the clients of before", "[attacks]") {
    auto folder = std::make_shared<Folder>();
    const Ports ports(2);
    std::vector<std::string> how{"--plain", "--emulate", "h100", "--worker-ports", range_of(ports, 2)};
    std::string endpoint;
    {
        Server server(how, {}, folder);
        endpoint = ask(*client_of(server), session_request("trainer"))["endpoint"];
        auto connection = connect_to(endpoint);
        server.signal(SIGKILL);
        server.wait_for_exit();
        char byte;
        CHECK(::read(connection.get(), &byte, 1) <= 0);
    }
    Server again(how, {}, folder);
    REQUIRE(ask(*client_of(again), {{"op", "describe"}, {"gpu", "h100"}}).contains("devices"));  // a worker waits
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0);
    CHECK(errno == ECONNREFUSED);
}

TEST_CASE("a claim's workers hold only so much of the host's memory, and only who holds the most is ended",
          "[attacks]") {
    Server server({"--plain", "--emulate", "h100", "--host-memory-mib", "150"});
    auto client = client_of(server);
    auto small = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    auto large = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    REQUIRE(send(large.get(), "h", 1, 0) == 1);
    REQUIRE(server.wait_for_note("holds", 1));
    REQUIRE(send(large.get(), "h", 1, 0) == 1);
    REQUIRE(server.wait_for_log("of the GPU node's own memory; the limit is 150 MiB"));
    char byte;
    CHECK(::read(large.get(), &byte, 1) <= 0);
    uint64_t bytes = 0;
    REQUIRE(send(small.get(), "m", 1, 0) == 1);
    CHECK(recv(small.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
}

TEST_CASE("what a worker holds in files in memory is its memory, though nobody has mapped them", "[attacks]") {
    if (geteuid() != 0) return;  // then control groups hold it, or nothing does
    Server server({"--plain", "--emulate", "h100", "--host-memory-mib", "150"});
    auto client = client_of(server);
    auto session = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    REQUIRE(send(session.get(), "H", 1, 0) == 1);
    REQUIRE(server.wait_for_note("holds a file"));
    REQUIRE(send(session.get(), "H", 1, 0) == 1);
    CHECK(server.wait_for_log("of the GPU node's own memory; the limit is 150 MiB"));
    char byte;
    CHECK(::read(session.get(), &byte, 1) <= 0);
}
