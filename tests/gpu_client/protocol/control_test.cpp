// Control messages and configuration: foreign text in, clear errors out.
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <zmq.hpp>
#include "tests/support/catch.hpp"

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/device_description.hpp"
#include "gpu_client/protocol/gpu_config.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

// Takes connections in the kernel and says nothing.
struct SilentServer {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    std::string address;
    SilentServer() {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof name;
        REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&name), length) == 0);
        REQUIRE(::listen(socket, 64) == 0);
        REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length) == 0);
        address = "tcp://127.0.0.1:" + std::to_string(ntohs(name.sin_port));
    }
    ~SilentServer() { ::close(socket); }
    SilentServer(const SilentServer&) = delete;
    SilentServer& operator=(const SilentServer&) = delete;
};

// As a server that has no room for one more.
struct ClosingServer : SilentServer {
    std::atomic<int> closed = 0;
    std::thread thread{[this] {
        for (int taken = 0; (taken = ::accept(socket, nullptr, nullptr)) >= 0; ++closed) ::close(taken);
    }};
    ~ClosingServer() {
        ::shutdown(socket, SHUT_RDWR);
        thread.join();
    }
};

}  // namespace

TEST_CASE("only objects of bounded size and depth are control messages", "[control]") {
    auto refused = [](const std::string& text) { return !control::parse(text.data(), text.size()); };
    CHECK_FALSE(refused(R"({"op":"hello"})"));
    CHECK(refused(""));
    CHECK(refused("[1,2]"));
    CHECK(refused("{\"op\":"));
    CHECK(refused(std::string(100'000, '[')));
    CHECK(refused("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"));
    CHECK(refused("{\"a\":\"" + std::string(2 << 20, 'x') + "\"}"));
    CHECK(refused("{\"a\":\"\xff\xfe\"}"));
}

TEST_CASE("an error survives the trip", "[control]") {
    Error error{Error::Kind::not_found, "there is no 'h300'", "there are: h100"};
    auto back = control::error_from_json(control::to_json(error));
    CHECK(back.kind == error.kind);
    CHECK(back.what == error.what);
    CHECK(back.hint == error.hint);
    CHECK(control::error_from_json(json(7)).kind == Error::Kind::remote);
}

TEST_CASE("an error of a pool's that a program writes to its terminal controls none", "[control]") {
    auto error = control::error_from_json({{"kind", "remote"}, {"what", "no\033]0;x\a GPU"}, {"hint", "a\nb\u009b2J"}});
    CHECK(error.what == "no?]0;x? GPU");
    CHECK(error.hint == "a?b?2J");
}

TEST_CASE("a worker is where the pool was reached, unless the pool says where", "[control]") {
    CHECK(control::worker_endpoint("tcp://*:5001", "tcp://10.0.2.2:14900") == "tcp://10.0.2.2:5001");
    CHECK(control::worker_endpoint("tcp://*:5001", "tcp://[fd00::1]:14900") == "tcp://[fd00::1]:5001");
    CHECK(control::worker_endpoint("tcp://gpu7:5001", "tcp://10.0.2.2:14900") == "tcp://gpu7:5001");
    CHECK(control::worker_endpoint("nonsense", "tcp://10.0.2.2:14900") == "nonsense");
}

TEST_CASE("an unreachable pool is an error that names the address, within its time", "[control]") {
    auto client = control::Client::open("tcp://127.0.0.1:1", {});
    REQUIRE(client);
    auto answer = (*client)->request({{"op", "hello"}}, std::chrono::milliseconds(50));
    REQUIRE(!answer);
    CHECK(answer.error().kind == Error::Kind::network);
    CHECK(answer.error().what.find("127.0.0.1:1") != std::string::npos);
    CHECK_FALSE(answer.error().hint.empty());
}

TEST_CASE("who would rather know is told at once of an address that refuses, and programs wait for its server",
          "[control]") {
    auto says_so = control::Client::open("tcp://127.0.0.1:1", {}, control::Refused::say_so);
    REQUIRE(says_so);
    for (int i = 0; i < 2; ++i) {  // and asked again it is tried again
        auto answer = (*says_so)->request({{"op", "hello"}});
        REQUIRE(!answer);
        CHECK(answer.error().kind == Error::Kind::network);
        CHECK(answer.error().what == "cannot connect to the pool at tcp://127.0.0.1:1");
    }
    auto program = control::Client::open("tcp://127.0.0.1:1", {});
    REQUIRE(program);
    auto answer = (*program)->request({{"op", "hello"}}, std::chrono::milliseconds(300));
    REQUIRE(!answer);
    CHECK(answer.error().what.find("no answer") == 0);
}

TEST_CASE("who would rather know is told of no refusal while a server takes connections and closes them", "[control]") {
    auto there = std::make_unique<ClosingServer>();
    auto client = control::Client::open(there->address, {}, control::Refused::say_so);
    REQUIRE(client);
    auto answer = (*client)->request({{"op", "hello"}}, std::chrono::milliseconds(400));
    REQUIRE(!answer);
    CHECK(answer.error().what.find("no answer") == 0);
    CHECK(there->closed > 1);  // it was tried again
}

TEST_CASE("a silent address is waited for until somebody says that it is enough", "[control]") {
    SilentServer there;
    auto client = control::Client::open(there.address, {}, control::Refused::say_so);
    REQUIRE(client);
    int asked = 0;
    (*client)->wait_for_connection(std::chrono::hours(1), [&] { return ++asked > 3; });
    auto answer = (*client)->request({{"op", "hello"}}, std::chrono::hours(1));
    REQUIRE(!answer);
    CHECK(answer.error().kind == Error::Kind::network);
    CHECK(asked == 4);
}

// ZeroMQ's own threads block signals once they run. Those of this process mostly have not yet when it gets one: it has one
// processor, and they have no claim to it at once.
TEST_CASE("no thread of a connection ever hears a signal that the program has blocked on its own", "[control]") {
    for (int i = 0; i < 10; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            cpu_set_t first;
            CPU_ZERO(&first);
            CPU_SET(sched_getcpu(), &first);
            const sched_param none{};
            (void)sched_setaffinity(0, sizeof first, &first);
            (void)sched_setscheduler(0, SCHED_BATCH, &none);
            auto client = control::Client::open("tcp://127.0.0.1:1", {});
            sigset_t asked;
            sigemptyset(&asked);
            sigaddset(&asked, SIGTERM);
            pthread_sigmask(SIG_BLOCK, &asked, nullptr);
            kill(getpid(), SIGTERM);
            (void)(*client)->request({{"op", "hello"}}, std::chrono::milliseconds(20));
            _exit(0);
        }
        int status = -1;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
}

// A pool that hears a request and is gone, and another at the same address.
TEST_CASE("a request whose connection breaks is made again", "[control]") {
    zmq::context_t context(1);
    auto open = [&](const std::string& endpoint) {
        zmq::socket_t pool(context, ZMQ_ROUTER);
        pool.set(zmq::sockopt::linger, 0);
        pool.set(zmq::sockopt::rcvtimeo, 10'000);
        pool.bind(endpoint);
        return pool;
    };
    auto pool = open("tcp://127.0.0.1:*");
    auto endpoint = pool.get(zmq::sockopt::last_endpoint);
    auto client = control::Client::open(endpoint, {});
    REQUIRE(client);
    Result<json> answer = Error{Error::Kind::internal, "not asked"};
    std::thread asking([&] { answer = (*client)->request({{"op", "hello"}}, std::chrono::milliseconds(10'000)); });

    zmq::message_t route, first, again;
    REQUIRE(pool.recv(route));
    REQUIRE(pool.recv(first));
    pool.close();
    // Until ZeroMQ's thread has closed the listening socket, too.
    for (bool bound = false; !bound;) try {
            pool = open(endpoint);
            bound = true;
        } catch (const zmq::error_t&) {
            std::this_thread::yield();
        }
    bool asked = pool.recv(route) && pool.recv(again);
    if (asked) {
        pool.send(route, zmq::send_flags::sndmore);
        pool.send(zmq::buffer(json{{"id", json::parse(again.to_string())["id"]}, {"back", true}}.dump()));
    }
    asking.join();
    REQUIRE(asked);
    CHECK(again.to_string() == first.to_string());
    REQUIRE(answer);
    CHECK((*answer)["back"] == true);
}

TEST_CASE("an address that is none is refused with an example", "[control]") {
    auto client = control::Client::open("h100.example", {});
    REQUIRE(!client);
    CHECK(client.error().kind == Error::Kind::usage);
    CHECK(client.error().hint.find("tcp://") != std::string::npos);
}

TEST_CASE("a GPU configuration reads back as it was written", "[config]") {
    GpuConfig config;
    config.pool = "tcp://pool:14900";
    config.gpu = "h100";
    config.count = 2;
    config.machine_name = "demo";
    config.keys = {wire::make_key_pair().public_key, wire::make_key_pair()};
    auto back = parse_gpu_config(to_json_text(config));
    REQUIRE(back);
    CHECK(back->pool == config.pool);
    CHECK(back->count == 2);
    CHECK(back->keys.server_public == config.keys.server_public);
    CHECK(back->keys.own.secret_key == config.keys.own.secret_key);
    CHECK(back->machine_name == "demo");
}

TEST_CASE("a broken GPU configuration is an error, not a crash", "[config]") {
    for (auto* text : {"", "{}", "[]", R"({"pool":1,"gpu":"h100"})", R"({"pool":"x","gpu":"h100","count":0})",
                       R"({"pool":"x","gpu":"h100","machine":3})"})
        CHECK_FALSE(parse_gpu_config(text));
}

TEST_CASE("keys", "[keys]") {
    auto pair = wire::make_key_pair();
    CHECK(wire::looks_like_key(pair.public_key));
    CHECK(wire::public_of(pair.secret_key) == pair.public_key);
    CHECK_FALSE(wire::looks_like_key("short"));
    CHECK_FALSE(wire::looks_like_key(std::string(40, '"')));
    CHECK(wire::public_of("nonsense").empty());
}

TEST_CASE("an id is 32 hexadecimal digits and never the same", "[keys]") {
    std::string one = wire::random_id();
    CHECK(one.size() == 32);
    CHECK(one.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(one != wire::random_id());
}

TEST_CASE("a device description survives the trip, and an impossible one is refused", "[control]") {
    DeviceDescription device;
    device.name = "NVIDIA H100 (emulated)";
    device.uuid = std::string(32, 'a');
    device.memory_bytes = uint64_t{80} << 30;
    device.attributes = {{75, 12}, {76, 0}};
    device.granularity_bytes = 2 << 20;
    device.range_address = 0x7f0000000000;
    device.range_bytes = uint64_t{1} << 40;
    auto value = to_json(device);
    auto back = device_from_json(value);
    REQUIRE(back);
    CHECK(back->attributes == device.attributes);
    CHECK(back->range_bytes == device.range_bytes);

    auto without = [&](const char* key) {
        auto broken = value;
        broken.erase(key);
        return !device_from_json(broken);
    };
    CHECK(without("uuid"));
    CHECK(without("range"));
    value["granularity_bytes"] = 3;
    CHECK_FALSE(device_from_json(value));
    value["granularity_bytes"] = 2 << 20;
    value["attributes"] = {{"seventy", 1}};
    CHECK_FALSE(device_from_json(value));
}
