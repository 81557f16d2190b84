// What has held against attacks, and must go on holding: handshakes and requests with flipped bits, recorded connections
// that are played again, connections cut anywhere, clients killed again and again. Afterwards nothing is left of them.
// TNR_TEST_TRIES=30 tries some ten times as much.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;
using std::chrono::milliseconds;

namespace {

constexpr unsigned seed = 20'26;

int many(int times) {
    const char* wanted = std::getenv("TNR_TEST_TRIES");
    return wanted ? times * std::max(1, std::atoi(wanted) / 3) : times;
}

// Each attempt comes from an address of its own: otherwise it would be its number that is refused.
UniqueFd connect_from(int number, const Server& server) {
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7f100000 + static_cast<uint32_t>(number));  // 127.16.…
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(tnr::server::parse_endpoint(server.address)->port));
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
    REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    return socket;
}

// Between one client and the server: what the client says is recorded, changed or cut.
class Between {
public:
    explicit Between(const Server& server) : server_(server) {
        listener_ = std::move(*tnr::server::listen_on("127.0.0.1", 0, 1, here_));
    }
    std::string address() const { return here_.text(); }
    int flip_bit = -1;            // of the client's stream
    size_t cut_after = SIZE_MAX;  // bytes of it
    std::string said, answered;

    // Until an end closes, or for as long; true if the server has closed.
    bool relay(int number, milliseconds patience, size_t enough) {
        said.clear();
        answered.clear();
        pollfd knock{listener_.get(), POLLIN, 0};
        if (poll(&knock, 1, 2000) != 1) return false;
        UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
            there = connect_from(number, server_);
        auto until = std::chrono::steady_clock::now() + patience;
        while (answered.size() < enough) {
            auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
            pollfd ends[] = {{client.get(), POLLIN, 0}, {there.get(), POLLIN, 0}};
            if (left.count() <= 0 || poll(ends, 2, static_cast<int>(left.count())) <= 0) return false;
            if (ends[1].revents && !pass(there.get(), client.get(), answered, false)) return true;
            if (ends[0].revents && !pass(client.get(), there.get(), said, true)) return false;
        }
        return false;
    }

private:
    bool pass(int from, int to, std::string& record, bool change) {
        char bytes[4096];
        auto size = ::recv(from, bytes, sizeof bytes, 0);
        if (size <= 0) return false;
        auto before = record.size();
        record.append(bytes, static_cast<size_t>(size));
        if (change && flip_bit >= 0 && static_cast<size_t>(flip_bit / 8) >= before &&
            static_cast<size_t>(flip_bit / 8) < record.size())
            bytes[static_cast<size_t>(flip_bit / 8) - before] ^= static_cast<char>(1 << flip_bit % 8);
        if (change && record.size() > cut_after) {
            (void)!::send(to, bytes, cut_after - std::min(before, cut_after), MSG_NOSIGNAL);
            return false;
        }
        return ::send(to, bytes, static_cast<size_t>(size), MSG_NOSIGNAL) == size;
    }
    const Server& server_;
    tnr::server::Endpoint here_;
    UniqueFd listener_;
};

// Asks once, never again over another connection.
class OneShot {
public:
    OneShot(zmq::context_t& context, const std::string& address, const wire::ClientKeys& keys, const json& request)
        : socket_(context, ZMQ_DEALER) {
        socket_.set(zmq::sockopt::linger, 0);
        socket_.set(zmq::sockopt::reconnect_ivl, -1);
        sign_in(socket_, keys);
        socket_.connect(address);
        json whole = request;
        whole["id"] = 1;
        whole["protocol"] = wire::protocol_version;
        whole["table"] = control::table_hash();
        socket_.send(zmq::buffer(whole.dump()), zmq::send_flags::none);
    }
    bool answered(milliseconds within) {
        zmq::message_t answer;
        socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(within.count()));
        return socket_.recv(answer).has_value();
    }

private:
    zmq::socket_t socket_;
};

// What the server holds of the system.
struct Held {
    size_t descriptors = 0, children = 0, files = 0;
    uint64_t bytes = 0;
};
std::string descriptors_of(const Server& server) {
    std::string text;
    std::error_code gone;
    for (auto& each : std::filesystem::directory_iterator("/proc/" + std::to_string(server.pid) + "/fd"))
        text += " " + std::filesystem::read_symlink(each, gone).string();
    return text;
}

Held held_by(const Server& server) {
    Held held;
    auto process = "/proc/" + std::to_string(server.pid);
    for (auto& each : std::filesystem::directory_iterator(process + "/fd")) held.descriptors += each.exists() || true;
    for (auto& each : std::filesystem::recursive_directory_iterator(server.folder->path + "/state"))
        held.files += each.is_regular_file();
    std::ifstream children(process + "/task/" + std::to_string(server.pid) + "/children");
    for (std::string child; children >> child;) ++held.children;
    std::ifstream status(process + "/status");
    for (std::string word; status >> word;)
        if (word == "VmRSS:") {
            status >> held.bytes;
            held.bytes <<= 10;
        }
    return held;
}

// With the worker that waits on its GPU. The log calls a GPU free a moment before it has one: what is held then is less
// than what the server goes back to.
Held held_at_rest(const Server& server) {
    Held held = held_by(server);
    for (int i = 0; i < 400; ++i) {
        std::this_thread::sleep_for(milliseconds(50));
        auto before = std::exchange(held, held_by(server));
        if (held.children == 1 && held.descriptors == before.descriptors) return held;
    }
    FAIL("no worker waits on the GPU:\n" << server.log());
    return held;
}

// As before, within a moment: connections are noticed to be gone, workers end.
void check_nothing_left(const Server& server, const Held& before) {
    Held now;
    for (int i = 0; i < 400; ++i) {
        now = held_by(server);
        if (now.descriptors <= before.descriptors + 2 && now.children <= before.children) break;
        std::this_thread::sleep_for(milliseconds(50));
    }
    INFO("descriptors:" << descriptors_of(server) << "\nthe server's log:\n" << server.log());
    CHECK(now.descriptors <= before.descriptors + 2);
    CHECK(now.children <= before.children);
    CHECK(now.files <= before.files + 1);  // the audit log
    CHECK(now.bytes < before.bytes + (uint64_t{24} << 20));
}

}  // namespace

TEST_CASE("handshakes with a flipped bit let nobody in and leave nothing behind", "[held]") {
    Server server({"--emulate", "h100"});
    auto alice = enroll(server, "alice");
    REQUIRE(server.wait_for_log("free"));
    Between between(server);
    zmq::context_t context(1);
    wire::ClientKeys stranger{alice.server_public, wire::make_key_pair()};
    // How long a whole handshake and a request are, and that this way lets one through at all.
    {
        OneShot client(context, between.address(), alice, {{"op", "hello"}});
        between.relay(0, milliseconds(500), 600);
        REQUIRE(client.answered(milliseconds(500)));
    }
    const auto length = static_cast<int>(between.said.size());
    REQUIRE(length > 400);
    auto before = held_at_rest(server);
    std::mt19937 random(seed);
    int refused = 0, answered = 0;
    const int attempts = many(1500);
    for (int i = 0; i < attempts; ++i) {
        bool known = i % 4 == 0;
        between.flip_bit = static_cast<int>(random() % static_cast<unsigned>(length * 8));
        CAPTURE(i, known, between.flip_bit);
        OneShot client(context, between.address(), known ? alice : stranger, {{"op", "hello"}});
        refused += between.relay(i, milliseconds(40), 600);
        bool told = client.answered(milliseconds(0));
        answered += told;
        if (told) REQUIRE(known);  // a bit that means nothing
    }
    WARN(attempts << " handshakes: " << refused << " were cut by the server at once, " << answered << " answered");
    CHECK(refused > attempts / 2);
    CHECK(ask(*client_of(server, alice), {{"op", "hello"}})["role"] == "account");
    check_nothing_left(server, before);
}

TEST_CASE("a recorded connection that is played again does nothing", "[held]") {
    Server server({"--emulate", "h100"});
    auto alice = enroll(server, "alice");
    Between between(server);
    zmq::context_t context(1);
    auto machine = wire::make_key_pair().public_key;
    {
        OneShot client(context, between.address(), alice,
                       {{"op", "enroll_machine"}, {"name", "trainer"}, {"public_key", machine}});
        between.relay(0, milliseconds(500), 600);
        REQUIRE(client.answered(milliseconds(500)));
    }
    const std::string recorded = between.said;
    auto state = server.folder->path + "/state";
    REQUIRE(run_server_command({"user", "list", "--state", state}).out.find(machine) != std::string::npos);
    ask(*client_of(server, alice), {{"op", "forget_machine"}, {"name", "trainer"}});
    auto before = held_at_rest(server);
    for (int i = 0; i < many(200); ++i) {
        auto there = connect_from(i, server);
        // In pieces, as it was said, or all at once.
        for (size_t at = 0; at < recorded.size(); at += i % 2 ? recorded.size() : 200)
            (void)!::send(there.get(), recorded.data() + at,
                          std::min(recorded.size() - at, i % 2 ? recorded.size() : 200), MSG_NOSIGNAL);
        std::string told;
        char bytes[4096];
        timeval patience{2, 0};
        setsockopt(there.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        for (ssize_t size; (size = ::recv(there.get(), bytes, sizeof bytes, 0)) > 0;)
            told.append(bytes, static_cast<size_t>(size));
        REQUIRE(told.size() <= 64 + 170);  // its greeting, and a WELCOME that only the real client can read
    }
    CHECK(run_server_command({"user", "list", "--state", state}).out.find(machine) == std::string::npos);
    check_nothing_left(server, before);
}

TEST_CASE("connections that are cut anywhere leave nothing, and what was asked happens once or not at all", "[held]") {
    Server server({"--emulate", "h100", "--linger-ms", "0"});
    auto alice = enroll(server, "alice");
    REQUIRE(server.wait_for_log("free"));
    Between between(server);
    zmq::context_t context(1);
    auto before = held_at_rest(server);
    std::mt19937 random(seed);
    for (int i = 0; i < many(300); ++i) {
        between.cut_after = random() % 900;
        auto name = "run-" + std::to_string(i);
        auto request = session_request(name);
        OneShot client(context, between.address(), alice, request);
        between.relay(i, milliseconds(100), 2000);
    }
    check_nothing_left(server, before);
    auto client = client_of(server, alice);
    for (int i = 0; i < 400 && ask(*client, {{"op", "types"}})["types"][0]["free"] != 1; ++i)
        std::this_thread::sleep_for(milliseconds(50));
    INFO("the server's log:\n" << server.log());
    CHECK(ask(*client, {{"op", "claims"}})["claims"].empty());
    CHECK(ask(*client, {{"op", "types"}})["types"][0]["free"] == 1);
}

TEST_CASE("requests with changed bytes are answered, each once, and change nothing", "[held]") {
    Server server({"--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto alice = enroll(server, "alice"), bob = enroll(server, "bob");
    auto bobs = client_of(server, bob);
    auto connection = connect_to(ask(*bobs, session_request("b"))["endpoint"]);
    zmq::context_t context(1);
    zmq::socket_t socket(context, ZMQ_DEALER);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, 20'000);
    sign_in(socket, alice);
    socket.connect(server.address);
    auto before = held_by(server);
    std::mt19937 random(seed);
    auto key = wire::make_key_pair().public_key;
    const std::vector<json> requests{{{"op", "hello"}},
                                     {{"op", "describe"}, {"gpu", "h100"}, {"count", 2}},
                                     {{"op", "ledger"}, {"since", 5}, {"behind", 7}, {"everyone", true}},
                                     {{"op", "enroll_machine"}, {"name", "m"}, {"public_key", key}},
                                     {{"op", "release"}, {"machine", "b"}},
                                     {{"op", "queue"}, {"everyone", false}},
                                     {{"op", "enroll_with_token"}, {"public_key", key}}};
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < many(5000); ++i) {
        // What comes faster than a key may ask is dropped.
        std::this_thread::sleep_until(begun + std::chrono::duration<double>(i / server::requests_per_second_max));
        json whole = requests[random() % requests.size()];
        whole["id"] = i;
        whole["protocol"] = wire::protocol_version;
        whole["table"] = control::table_hash();
        auto text = whole.dump();
        for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
            auto at = random() % text.size();
            switch (random() % 4) {
                case 0:
                    text[at] = static_cast<char>(random());
                    break;
                case 1:
                    text.erase(at, 1 + random() % 8);
                    break;
                case 2:
                    text.insert(at, text.substr(random() % text.size(), random() % 64));
                    break;
                default:
                    text[at] ^= static_cast<char>(1 << random() % 8);
            }
            if (text.empty()) text = "{";
        }
        socket.send(zmq::buffer(text), zmq::send_flags::none);
        zmq::message_t answer;
        CAPTURE(i, text);
        REQUIRE(socket.recv(answer));
        REQUIRE(json::parse(answer.to_string(), nullptr, false).is_object());
    }
    zmq::message_t surplus;
    CHECK_FALSE(socket.recv(surplus, zmq::recv_flags::dontwait));
    CHECK(ask(*bobs, {{"op", "claims"}})["claims"].size() == 1);  // whatever became of it, it was never bob's
    socket.close();
    ask(*client_of(server, alice), {{"op", "forget_machine"}, {"name", "m"}});
    Held after = before;
    after.children += 1;
    check_nothing_left(server, after);
}

TEST_CASE("nothing is left of a hundred clients that were killed", "[held]") {
    Server server({"--emulate", "h100:2", "--linger-ms", "0"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto alice = enroll(server, "alice");
    REQUIRE(server.wait_for_log("free", 2));
    auto client = client_of(server, alice);
    Held before{};
    for (int i = 0; i < many(100); ++i) {
        if (i == 10) before = held_by(server);  // by then it has all that it keeps
        json answer;
        for (int tries = 0; tries < 400 && !answer.contains("session"); ++tries) {
            if (tries > 0) std::this_thread::sleep_for(milliseconds(10));
            answer = ask(*client, session_request("run-" + std::to_string(i)));
        }
        REQUIRE(answer.contains("session"));
        { auto connection = connect_to(answer["endpoint"]); }  // and gone
    }
    before.children = std::max<size_t>(before.children, 2);
    before.descriptors += 8;
    for (int i = 0; i < 400 && ask(*client, {{"op", "types"}})["types"][0]["free"] != 2; ++i)
        std::this_thread::sleep_for(milliseconds(20));
    CHECK(ask(*client, {{"op", "types"}})["types"][0]["free"] == 2);
    check_nothing_left(server, before);
}
