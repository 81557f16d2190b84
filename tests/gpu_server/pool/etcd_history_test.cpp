// What etcd keeps of what was: the nodes have it forget, so that it never fills.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <set>

#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/etcd_follower.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "tests/gpu_server/pool/own_etcd.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

// Whether etcd can still tell what happened since then.
bool remembers(OwnEtcd& server, int64_t revision) {
    etcd::Client client(server.address(), {.connect_ms = 1'000, .total_ms = 1'000});
    auto ended = client.watch("/tnr/", revision, 1'000, [](const etcd::News& news) { return news.empty(); });
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

// Of our connections to it.
bool all_kept_alive(OwnEtcd& server) {
    int found = 0, kept = 0;
    constexpr int descriptors = 1024;
    for (int fd = 0; fd < descriptors; ++fd) {
        sockaddr_in peer{};
        socklen_t size = sizeof peer;
        if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || ntohs(peer.sin_port) != server.port())
            continue;
        int on = 0;
        socklen_t on_size = sizeof on;
        getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &on_size);
        ++found, kept += on;
    }
    return found > 0 && kept == found;
}

// What stands between a follower and its etcd, and may fall silent on a watch that has just begun.
class SilentBetween {
public:
    explicit SilentBetween(OwnEtcd& server) : server_(server) {
        Endpoint here;
        listener_ = std::move(*listen_on("127.0.0.1", 0, 64, here));
        address_ = *etcd::parse_address("etcd://127.0.0.1:" + std::to_string(here.port));
        thread_ = std::thread([this] { pass_on(); });
    }
    ~SilentBetween() {
        stopping_ = true;
        thread_.join();
    }
    etcd::Address address() const { return address_; }
    // From here on nothing passes, until `again`. Returns when what had passed is cut.
    void cut() {
        cut_ = true;
        while (connections_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // The first watch hears that it has begun, then nothing, and ends after `silent_ms`.
    void again(int silent_ms) { silent_ms_ = silent_ms, cut_ = false; }
    bool was_silent() const { return was_silent_; }
    int watches() const { return watches_; }

private:
    struct Flow {
        UniqueFd client, server;
        int64_t ends_ms = 0;
    };

    void pass_on() {
        while (!stopping_) {
            std::vector<pollfd> all{{listener_.get(), POLLIN, 0}};
            for (auto& flow : flows_)
                for (int fd : {flow.client.get(), flow.server.get()}) all.push_back({fd, POLLIN, 0});
            (void)poll(all.data(), all.size(), 20);
            for (size_t i = 0; i < flows_.size(); ++i)
                if (cut_ || !passes(flows_[i], all[1 + 2 * i].revents, all[2 + 2 * i].revents)) flows_[i] = {};
            std::erase_if(flows_, [](const Flow& flow) { return !flow.client; });
            connections_ = flows_.size();
            if (cut_ || !(all[0].revents & POLLIN)) continue;  // who comes now waits
            ++connections_;
            flows_.push_back({UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)), connected()});
        }
    }
    bool passes(Flow& flow, short from_client, short from_server) {
        if (flow.ends_ms > 0) return boot_ms() < flow.ends_ms;
        if (from_client && !passes(flow.client, flow.server, nullptr)) return false;
        return !from_server || passes(flow.server, flow.client, &flow);
    }
    bool passes(const UniqueFd& from, const UniqueFd& to, Flow* flow) {
        char bytes[1 << 16];
        const auto size = recv(from.get(), bytes, sizeof bytes, 0);
        if (size <= 0) return false;
        const std::string_view text(bytes, static_cast<size_t>(size));
        if (flow && text.find("\"created\":true") != text.npos) {
            ++watches_;
            if (silent_ms_ > 0) {
                flow->ends_ms = boot_ms() + silent_ms_.exchange(0);
                was_silent_ = true;
            }
        }
        return send(to.get(), text.data(), text.size(), MSG_NOSIGNAL) == size;
    }
    UniqueFd connected() const {
        UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in there{};
        there.sin_family = AF_INET;
        there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        there.sin_port = htons(static_cast<uint16_t>(server_.port()));
        (void)!connect(fd.get(), reinterpret_cast<sockaddr*>(&there), sizeof there);
        return fd;
    }

    OwnEtcd& server_;
    UniqueFd listener_;
    etcd::Address address_;
    std::vector<Flow> flows_;  // the thread's
    std::atomic<bool> stopping_ = false, cut_ = false, was_silent_ = false;
    std::atomic<int> silent_ms_ = 0, watches_ = 0;
    std::atomic<size_t> connections_ = 0;
    std::thread thread_;
};

}  // namespace

// A watch's first answer says how far etcd has come; what has changed until then comes in a later one, or never.
TEST_CASE("a change is heard though the watch that would have told it broke when it had just begun", "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd server;
    SilentBetween between(server);
    etcd::Client client(server.address(), {.total_ms = 5'000});
    const std::string key = server.address().prefix + "there/a";
    REQUIRE(client.commit(etcd::Txn().put(key, "1")));
    std::atomic<bool> first = false, second = false, stopping = false;
    etcd::Follower follower(between.address(), server.address().prefix + "there/", "", {});
    std::thread follows([&] {
        while (!stopping)
            (void)follower.follow(
                [&](bool, const std::vector<etcd::Event>& events) {
                    for (auto& event : events) (event.pair.value == "1" ? first : second) = true;
                    return true;
                },
                {[&] { return stopping.load(); }});
    });
    CHECK(within(5, [&] { return first && between.watches() > 0; }));
    constexpr auto longer_than_a_failure = std::chrono::milliseconds(1'500);
    std::this_thread::sleep_for(longer_than_a_failure);
    between.cut();
    REQUIRE(client.commit(etcd::Txn().put(key, "2")));
    between.again(longer_than_a_failure.count());
    CHECK(within(10, [&] { return second.load(); }));
    CHECK(between.was_silent());
    stopping = true;
    follows.join();
}

// To go on where it was, etcd would read through all that has happened: here it cannot, since it has forgotten that.
TEST_CASE("what happens elsewhere is nothing to who follows", "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd server;
    etcd::Client client(server.address(), {.total_ms = 5'000});
    const std::string there = server.address().prefix + "there/";
    REQUIRE(client.commit(etcd::Txn().put(there + "a", "1").put(there + "b", "1")));
    std::atomic<int> alls = 0, put = 0, removed = 0;
    std::atomic<bool> stopping = false, kept_alive = false;
    etcd::Follower follower(server.address(), there, "", {.watched_ms = 3'000});
    std::optional<Result<>> ended;
    std::thread follows([&] {
        ended = follower.follow(
            [&](bool all, const std::vector<etcd::Event>& events) {
                alls += all;
                for (auto& event : events) ++(event.removed ? removed : put);
                if (!all) kept_alive = all_kept_alive(server);
                return true;
            },
            {[&] { return stopping.load(); }});
    });
    CHECK(within(5, [&] { return put == 2; }));
    REQUIRE(client.commit(etcd::Txn().put(there + "c", "1").remove(there + "a")));
    CHECK(within(5, [&] { return put == 3 && removed == 1; }));
    for (int i = 0; i < 20; ++i) change_something(server);
    REQUIRE(client.forget_before(revision_of(server)));
    std::this_thread::sleep_for(std::chrono::milliseconds(3'500));  // its watch has ended, and the next has begun
    REQUIRE(client.commit(etcd::Txn().put(there + "b", "2")));
    CHECK(within(5, [&] { return put == 4; }));
    stopping = true;
    follows.join();
    CHECK(alls == 1);
    CHECK(kept_alive);
}

// What N nodes cost that come at once is counted in pieces of news: told one by one, it would be all of N times N.
TEST_CASE("a flood of changes is heard in few pieces, and all of it", "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd server;
    etcd::Client client(server.address(), {.total_ms = 5'000});
    const std::string there = server.address().prefix + "there/";
    auto key = [&](int number) { return there + std::to_string(number); };
    REQUIRE(client.commit(etcd::Txn().put(key(0), "1").put(key(1), "1")));
    constexpr int changes = 400;
    std::map<std::string, std::string> heard;
    std::atomic<int> pieces = 0;
    std::atomic<bool> complete = false, stopping = false;
    etcd::Follower follower(server.address(), there, "", {.gathered_ms = 1'500, .gathered_ms_per_key = 1});
    std::thread follows([&] {
        (void)follower.follow(
            [&](bool all, const std::vector<etcd::Event>& events) {
                if (all) heard.clear();
                for (auto& event : events)
                    if (event.removed)
                        heard.erase(event.pair.key);
                    else
                        heard[event.pair.key] = event.pair.value;
                ++pieces;
                complete = heard.size() == changes && heard.count(key(0)) == 0 && heard[key(1)] == "2";
                return true;
            },
            {[&] { return stopping.load(); }});
    });
    CHECK(within(5, [&] { return pieces == 1; }));
    for (int i = 2; i <= changes; ++i) REQUIRE(client.commit(etcd::Txn().put(key(i), "1")));
    REQUIRE(client.commit(etcd::Txn().put(key(1), "2").remove(key(0))));
    CHECK(within(15, [&] { return complete.load(); }));
    CHECK(pieces < changes / 4);
    const int before = pieces;
    REQUIRE(client.commit(etcd::Txn().remove(key(2))));  // and later, one change is told as one
    CHECK(within(10, [&] { return pieces == before + 1; }));
    stopping = true;
    follows.join();
    CHECK(heard.size() == changes - 1);
}

// All who follow fetch all there is, so they take the more time for it the more there is.
TEST_CASE("a flood of many keys is gathered for longer, also by those who knew of few before", "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd server;
    etcd::Client client(server.address(), {.total_ms = 5'000});
    const std::string there = server.address().prefix + "there/";
    constexpr int keys = 200, per_key_ms = 25;
    std::set<std::string> heard;
    std::atomic<size_t> known = 0;
    std::atomic<bool> stopping = false, watching = false;
    std::atomic<std::chrono::steady_clock::time_point> last_single, gathered;
    etcd::Follower follower(server.address(), there, "", {.gathered_ms = 2'000, .gathered_ms_per_key = per_key_ms});
    std::thread follows([&] {
        (void)follower.follow(
            [&](bool all, const std::vector<etcd::Event>& events) {
                watching = !all || watching;
                (events.size() < 100 ? last_single : gathered) = std::chrono::steady_clock::now();
                for (auto& event : events) heard.insert(event.pair.key);
                known = heard.size();
                return true;
            },
            {[&] { return stopping.load(); }});
    });
    // What is there before its watch begins comes in few pieces, which are no flood.
    REQUIRE(within(30, [&] {
        REQUIRE(client.commit(etcd::Txn().put(there + "0", "1")));
        return watching.load();
    }));
    constexpr int singles = 30;  // enough for a flood, and far from all
    for (int i = 1; i < singles; ++i) REQUIRE(client.commit(etcd::Txn().put(there + std::to_string(i), "1")));
    for (int i = singles; i < keys;) {
        etcd::Txn many;
        for (int end = std::min(keys, i + 85); i < end; ++i) many.put(there + std::to_string(i), "1");
        REQUIRE(client.commit(many));
    }
    CHECK(within(30, [&] { return known >= keys; }));
    stopping = true;
    follows.join();
    CHECK(gathered.load() - last_single.load() >= std::chrono::milliseconds(keys * per_key_ms / 2));
}

TEST_CASE("nodes have etcd forget what was, and go on hearing what is", "[pool]") {
    if (!OwnEtcd::is_there()) return;
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
