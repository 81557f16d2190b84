// A worker that asks its supervisor for memory and does not get an answer in time.
#include <poll.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "gpu_server/pool/packet.hpp"
#include "gpu_server/worker/supervisor_link.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

json told(int supervisor) {
    std::string text(4096, '\0');
    pollfd item{supervisor, POLLIN, 0};
    REQUIRE(poll(&item, 1, 20'000) == 1);
    auto [size, files, is_packet] = server::receive_packet(supervisor, text.data(), text.size());
    REQUIRE(size > 0);
    return json::parse(text.substr(0, static_cast<size_t>(size)));
}

}  // namespace

TEST_CASE("memory that is granted when nobody waits for it any more goes back", "[grants]") {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    // Neither is ever closed: a worker ends with its supervisor, and so would this process.
    auto& link = *new worker::SupervisorLink(UniqueFd(ends[0]));
    const int supervisor = ends[1];
    link.start([](const std::string&) {});
    using worker::SupervisorLink;
    CHECK(worker::ask_and_wait(link, 1, 4096, SupervisorLink::Exactly::no, std::chrono::milliseconds(1)) == 0);
    const auto wish = told(supervisor)["grant"];
    CHECK(wish["bytes"] == 4096);
    auto grant = [&](uint64_t bytes) {
        const auto text = json{{"granted", {{"ticket", wish["ticket"]}, {"bytes", bytes}}}}.dump();
        REQUIRE(server::send_packet(supervisor, text, -1) == static_cast<ssize_t>(text.size()));
    };
    grant(8192);
    const auto back = told(supervisor)["memory_back"];
    CHECK(back["device"] == 1);
    CHECK(back["bytes"] == 8192);
    grant(8192);  // once
    link.tell({{"behind", "it"}});
    CHECK(told(supervisor).contains("behind"));
}
