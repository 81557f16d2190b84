// How much of each GPU's memory a user's claims may use: who is told so, and that no more is granted.
#include <sys/socket.h>

#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

constexpr uint64_t mebibyte = uint64_t{1} << 20, fake_gpu_bytes = 1024 * mebibyte;  // the fake worker's GPU

Output operator_says(const Server& server, std::vector<std::string> words) {
    words.insert(words.end(), {"--state", server.folder->path + "/state"});
    return run_server_command(words);
}

// What a program asks for until there is no more.
uint64_t grants_of(const UniqueFd& connection) {
    uint64_t sum = 0;
    for (uint64_t bytes = 1; bytes > 0; sum += bytes) {
        REQUIRE(send(connection.get(), "m", 1, 0) == 1);
        REQUIRE(recv(connection.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
    }
    return sum;
}

uint64_t memory_told(const json& device) {
    return device["memory_bytes"].get<uint64_t>();
}

}  // namespace

TEST_CASE("a user's claims use no more of a GPU's memory than the operator lets them", "[users]") {
    Server server({"--emulate", "h100", "--linger-ms", "600000"});
    auto alice = client_of(server, enroll(server, "alice")), bob = client_of(server, enroll(server, "bob"));
    auto limited = operator_says(server, {"user", "limit", "alice", "--device-memory", "256M"});
    REQUIRE(limited.code == 0);
    CHECK(limited.out.find("all GPUs, 256 MiB of each;") != std::string::npos);
    CHECK(operator_says(server, {"user", "list"}).out.find("256 MiB") != std::string::npos);
    CHECK(operator_says(server, {"status"}).out.find("256 MiB") != std::string::npos);
    CHECK(operator_says(server, {"audit"}).out.find("256 MiB") != std::string::npos);

    // Programs see it before they claim anything, and so does whoever looks for a type that is large enough.
    CHECK(memory_told(ask(*alice, {{"op", "types"}})["types"][0]) == 256 * mebibyte);
    CHECK(memory_told(ask(*bob, {{"op", "types"}})["types"][0]) == fake_gpu_bytes);
    const json describe{{"op", "describe"}, {"machine", "m"}, {"gpu", "h100"}, {"count", 1}};
    CHECK(memory_told(ask(*alice, describe)["devices"][0]) == 256 * mebibyte);
    CHECK(memory_told(ask(*bob, describe)["devices"][0]) == fake_gpu_bytes);
    const json nvml{{"op", "nvml"}, {"machine", "m"}, {"gpu", "h100"}, {"count", 1}};
    CHECK(ask(*alice, nvml)["devices"][0]["memory"]["total"] == 256 * mebibyte);

    auto first = ask(*alice, session_request("m"));
    CHECK(memory_told(first["devices"][0]) == 256 * mebibyte);
    CHECK(server.wait_for_note("\"device_memory_max\":268435456"));
    auto one = connect_to(first["endpoint"]), two = connect_to(ask(*alice, session_request("m"))["endpoint"]);
    auto both = grants_of(one);
    CHECK(both == 256 * mebibyte);
    CHECK(grants_of(two) == 0);  // a machine's programs share it
    one.reset();
    REQUIRE(server.wait_for_log("process 42 (train) on h100 #0 ended after"));
    CHECK(grants_of(two) == 256 * mebibyte);

    // A change holds from the next claim on, also where the GPU has been kept for her.
    REQUIRE(operator_says(server, {"user", "limit", "alice", "--device-memory", "512M"}).code == 0);
    CHECK(memory_told(ask(*alice, describe)["devices"][0]) == 256 * mebibyte);
    two.reset();
    REQUIRE(server.wait_for_log("its last process has ended"));
    auto next = ask(*alice, session_request("m"));
    CHECK(memory_told(next["devices"][0]) == 512 * mebibyte);
    {
        auto connection = connect_to(next["endpoint"]);
        CHECK(grants_of(connection) == 512 * mebibyte);
    }
    REQUIRE(server.wait_for_log("its last process has ended", 2));

    auto its = ask(*bob, session_request("m"));
    CHECK(memory_told(its["devices"][0]) == fake_gpu_bytes);
    CHECK(grants_of(connect_to(its["endpoint"])) > 900 * mebibyte);
    REQUIRE(server.wait_for_log("its last process has ended", 3));
    REQUIRE(operator_says(server, {"user", "limit", "alice", "--device-memory", "0"}).code == 0);
    CHECK(memory_told(ask(*alice, session_request("m"))["devices"][0]) == fake_gpu_bytes);
}

TEST_CASE("a limit of a GPU's memory that is none is refused, and says what would be one", "[users]") {
    Server server({"--emulate", "h100"});
    enroll(server, "alice");
    for (auto* wrong : {"1M", "17T", "16X", "16", "16 G", "16GG", "-1G", "1.5G", "all", "99999999999999999999G"}) {
        CAPTURE(wrong);
        auto refused = operator_says(server, {"user", "limit", "alice", "--device-memory", wrong});
        CHECK(refused.code == 2);
        CHECK(refused.err.find("512M, 16G or 1T") != std::string::npos);
    }
    for (auto* right : {"64M", "16G", "16GiB", "80GB", "16T"}) {
        CAPTURE(right);
        CHECK(operator_says(server, {"user", "limit", "alice", "--device-memory", right}).code == 0);
    }
}

TEST_CASE("a backup has what a user may use of a GPU's memory", "[users]") {
    Server server({"--emulate", "h100"});
    enroll(server, "alice");
    REQUIRE(operator_says(server, {"user", "limit", "alice", "--device-memory", "384M"}).code == 0);
    const auto file = server.folder->path + "/backup", restored = server.folder->path + "/restored";
    REQUIRE(operator_says(server, {"backup", file}).code == 0);
    REQUIRE(run_server_command({"restore", file, "--state", restored}).code == 0);
    CHECK(run_server_command({"user", "list", "--state", restored}).out.find("384 MiB") != std::string::npos);
}
