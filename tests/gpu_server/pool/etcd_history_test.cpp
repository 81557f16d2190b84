// What etcd keeps of what was: the nodes have it forget, so that it never fills.
#include <atomic>

#include "gpu_server/pool/directory.hpp"
#include "tests/gpu_server/pool/own_etcd.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

// Whether etcd can still tell what happened since then.
bool remembers(OwnEtcd& server, int64_t revision) {
    etcd::Client client(server.address(), {.connect_ms = 1'000, .total_ms = 1'000});
    auto ended = client.watch("/tnr/", revision, [](const etcd::News& news) { return news.events.empty(); });
    return ended || ended.error().kind != Error::Kind::not_found;
}

int64_t revision_of(OwnEtcd& server) {
    etcd::Client client(server.address(), {.connect_ms = 1'000, .total_ms = 5'000});
    auto listing = client.list("/tnr/");
    REQUIRE(listing);
    return listing->revision;
}

void change_something(OwnEtcd& server) {
    etcd::Client client(server.address(), {.connect_ms = 1'000, .total_ms = 5'000});
    REQUIRE(client.commit(etcd::Txn().put("/tnr/x", "y")));
}

bool within(int limit_s, const std::function<bool()>& true_now) {
    for (auto end = boot_ms() + limit_s * 1000; boot_ms() < end;) {
        if (true_now()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
}

}  // namespace

TEST_CASE("nodes have etcd forget what was, and go on hearing what is", "[pool]") {
    if (!OwnEtcd::there()) {
        WARN("no etcd here: apt-get install etcd-server");
        return;
    }
    OwnEtcd server;
    change_something(server);
    const auto early = revision_of(server);
    for (int i = 0; i < 20; ++i) change_something(server);
    REQUIRE(remembers(server, early));

    LeaseTimes often;
    often.history_ms = 1'200;
    std::vector<std::unique_ptr<Directory>> nodes;
    // Nothing is asked of them: whatever they post may wait.
    for (int i = 0; i < 3; ++i)
        nodes.push_back(make_etcd_directory(
            server.address(), [](auto) {}, often));
    CHECK(within(30, [&] { return !remembers(server, early); }));

    // What has just been is remembered: whoever follows it misses nothing.
    change_something(server);
    CHECK(remembers(server, revision_of(server)));
    for (auto& node : nodes) node->leave();
}
