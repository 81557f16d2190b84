// A simulated pool: many nodes in one process, registered with a real etcd, and claims on their GPUs as fast as some threads
// can make them. Each node is the server's own code (gpu_server/pool): it renews its lease, hears of the others, and
// tells what it has free with each claim and its end. There are no workers and no programs.
//
//   pool_nodes_bench etcd://127.0.0.1:2379 NODES SECONDS THREADS PID,...     one line of JSON; PIDs of etcd's members
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/store.hpp"

using namespace tnr;
using namespace tnr::server;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int gpus_per_node = 8;
constexpr int rest_s = 6;  // what a pool costs in which nothing happens
// For all nodes to register and to hear of each other: a thousand tell a million times of each other.
constexpr std::chrono::seconds join_limit{240};
// A node's server has its lease and its claims to itself; here a thousand share two cores with etcd.
constexpr LeaseTimes patient{.ttl_s = 15, .renewed_ms = 3'000, .margin_ms = 1'000};

double ms_since(Clock::time_point begun) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

// Processor time, in seconds: of the nodes, which are this process, and of etcd.
struct Work {
    double nodes = 0, etcd = 0;
};
double used_by(const std::string& pid) {
    std::ifstream file("/proc/" + pid + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    std::istringstream behind_name(text.substr(std::min(text.size(), text.rfind(')') + 2)));
    std::string skipped;
    double user = 0, system = 0;
    for (int i = 0; i < 11; ++i) behind_name >> skipped;
    behind_name >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}
Work work_done(const std::string& pids) {
    Work work{.nodes = used_by("self")};
    std::istringstream list(pids);
    for (std::string pid; std::getline(list, pid, ',');) work.etcd += used_by(pid);
    return work;
}
Work operator-(const Work& after, const Work& before) {
    return {after.nodes - before.nodes, after.etcd - before.etcd};
}

// What the event loop is to a server; one for the nodes of one thread.
class Inbox {
public:
    Post post() {
        return [this](std::function<void()> what) {
            std::lock_guard lock(mutex_);
            left_.push_back(std::move(what));
            wanted_.notify_one();
        };
    }
    void run_until(const std::function<bool()>& done) {
        while (!done()) {
            std::function<void()> what;
            {
                std::unique_lock lock(mutex_);
                if (!wanted_.wait_for(lock, std::chrono::milliseconds(100), [&] { return !left_.empty(); })) continue;
                what = std::move(left_.front());
                left_.pop_front();
            }
            what();
        }
    }

private:
    std::mutex mutex_;
    std::condition_variable wanted_;
    std::deque<std::function<void()>> left_;
};

struct Node {
    PoolNode entry;
    std::unique_ptr<Directory> directory;
    std::unique_ptr<Store> accounts;  // it follows these, too
};

struct Took {
    std::vector<double> claims;  // ms
    int failed = 0, beside_others = 0;
    double per_s = 0;
    Work work = {};  // of a claim, ms
};

double at(std::vector<double>& sorted, double part) {
    return sorted.empty() ? 0 : sorted[static_cast<size_t>(part * static_cast<double>(sorted.size() - 1))];
}

class Host {
public:
    Host(int first, int step, int count, const etcd::Address& address) : first_(first), step_(step) {
        for (int i = first; i < count; i += step) {
            auto name = "node-" + std::to_string(i);
            Node node;
            node.entry = {
                name, "tcp://" + name + ":14900", "K", "1", name, {{"h100", {gpus_per_node, gpus_per_node, 1}}}};
            for (int gpu = 0; gpu < gpus_per_node; ++gpu)
                node.entry.gpus.push_back(name + "-gpu-" + std::to_string(gpu));
            node.directory = make_etcd_directory(address, inbox_.post(), patient);
            node.accounts = std::move(*open_etcd_store(address));
            nodes_.push_back(std::move(node));
        }
    }
    // As many as there is time for; false: not all of them.
    bool join(Clock::time_point deadline) {
        for (auto& node : nodes_) {
            node.directory->join(node.entry);
            inbox_.run_until([&] { return node.directory->standing().good() || Clock::now() > deadline; });
        }
        return Clock::now() <= deadline;
    }
    // Until all have heard of all.
    bool settle(size_t count, Clock::time_point deadline) {
        for (auto& node : nodes_)
            inbox_.run_until([&] { return node.directory->nodes().size() >= count || Clock::now() > deadline; });
        return Clock::now() <= deadline;
    }
    // Leases are renewed, nothing else.
    void rest(int seconds) {
        const auto until = Clock::now() + std::chrono::seconds(seconds);
        inbox_.run_until([&] { return Clock::now() >= until; });
    }
    // One claim after the other, each on a node of its own choice. `look`: before each, ask for what its account has, as a
    // node does that knows of some of that.
    Took claim_for(int seconds, bool look) {
        Took took;
        std::mt19937 random(static_cast<unsigned>(first_));
        const auto begun = Clock::now();
        for (int64_t id = first_; ms_since(begun) < seconds * 1000.0; id += step_) {
            auto& node = nodes_[random() % nodes_.size()];
            auto& directory = *node.directory;
            const auto account = "user-" + std::to_string(random() % 500);
            const auto asked = Clock::now();
            auto gpu = node.entry.gpus[random() % gpus_per_node];
            auto add = [&](Directory::Unless unless) {
                std::optional<Result<int64_t>> fence;
                directory.add_claim({node.entry.name, id, account, "trainer", "h100", {gpu}, 1}, all_but(1), unless,
                                    [&](Result<int64_t> told) { fence = std::move(told); });
                inbox_.run_until([&] { return fence.has_value(); });
                return *fence;
            };
            if (look) {
                bool looked = false;
                directory.look({.accounts = {account}}, [&] { looked = true; });
                inbox_.run_until([&] { return looked; });
            }
            auto fence = add(look ? Directory::Unless::never : Directory::Unless::others);
            // As a server does: its account has other claims, all of other machines.
            if (fence && *fence == 0) fence = add(Directory::Unless::never), ++took.beside_others;
            took.claims.push_back(ms_since(asked));
            took.failed += !fence;
            directory.remove_claim(id, all_but(0));
        }
        return took;
    }
    static TypeCounts all_but(int claimed) { return {{"h100", {gpus_per_node, gpus_per_node - claimed, 1}}}; }

private:
    const int first_, step_;
    Inbox inbox_;
    std::vector<Node> nodes_;
};

// Each does its own, all at once.
template <class Work>
void all_at_once(std::vector<std::unique_ptr<Host>>& hosts, Work work) {
    std::vector<std::thread> threads;
    for (auto& host : hosts) threads.emplace_back([&work, &host] { work(*host); });
    for (auto& thread : threads) thread.join();
}

Took claims_of(std::vector<std::unique_ptr<Host>>& hosts, int seconds, bool look, const std::string& pids,
               const Work& resting) {
    std::mutex mutex;
    Took took;
    const auto begun = Clock::now();
    const auto before = work_done(pids);
    all_at_once(hosts, [&](Host& host) {
        auto mine = host.claim_for(seconds, look);
        std::lock_guard lock(mutex);
        took.claims.insert(took.claims.end(), mine.claims.begin(), mine.claims.end());
        took.failed += mine.failed;
        took.beside_others += mine.beside_others;
    });
    const double lasted_s = ms_since(begun) / 1000, claims = static_cast<double>(took.claims.size());
    const auto busy = work_done(pids) - before;
    auto per_claim = [&](double busy_s, double resting_s) {
        return 1000 * (busy_s - resting_s * lasted_s / rest_s) / claims;
    };
    took.per_s = claims / lasted_s;
    took.work = {per_claim(busy.nodes, resting.nodes), per_claim(busy.etcd, resting.etcd)};
    std::sort(took.claims.begin(), took.claims.end());
    return took;
}

}  // namespace

int main(int argc, char** argv) {
    auto address = argc == 6 ? etcd::parse_address(argv[1]) : Result<etcd::Address>(Error{Error::Kind::usage, "usage"});
    if (!address) return std::cerr << "pool_nodes_bench etcd://HOST:PORT NODES SECONDS THREADS PID,...\n", 2;
    const int count = std::atoi(argv[2]), seconds = std::atoi(argv[3]), threads = std::atoi(argv[4]);
    // A server has the heap for its five threads alone. A thousand nodes here would wait for 16 of them: at 300 a claim cost
    // its node half as much again, in waking each other.
    mallopt(M_ARENA_MAX, 5 * count);
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;  // a node has five connections
    setrlimit(RLIMIT_NOFILE, &files);

    std::vector<std::unique_ptr<Host>> hosts;
    for (int i = 0; i < threads; ++i) hosts.push_back(std::make_unique<Host>(i, threads, count, *address));
    auto begun = Clock::now();
    auto before = work_done(argv[5]);
    const auto deadline = begun + join_limit;
    std::atomic<int> late = 0;
    all_at_once(hosts, [&](Host& host) { late += !host.join(deadline); });
    const double registered_ms = ms_since(begun);
    all_at_once(hosts, [&](Host& host) { late += !host.settle(static_cast<size_t>(count), deadline); });
    if (late) {
        std::cerr << "not all of " << count << " nodes had registered, and heard of each other, within "
                  << join_limit.count() << " s (all registered: " << registered_ms / 1000
                  << " s; processor time of the nodes " << work_done(argv[5]).nodes - before.nodes << " s, of etcd "
                  << work_done(argv[5]).etcd - before.etcd << " s)\n";
        quick_exit(1);
    }
    const auto joining = work_done(argv[5]) - before;
    before = work_done(argv[5]);
    all_at_once(hosts, [&](Host& host) { host.rest(rest_s); });
    const auto resting = work_done(argv[5]) - before;

    auto looked = claims_of(hosts, seconds, true, argv[5], resting),
         took = claims_of(hosts, seconds, false, argv[5], resting);
    std::cout << nlohmann::json{{"nodes", count},
                                {"gpus", count * gpus_per_node},
                                {"threads", threads},
                                {"claims", took.claims.size()},
                                {"failed", looked.failed + took.failed},
                                {"claims_per_s", took.per_s},
                                {"looked_claims_per_s", looked.per_s},
                                {"beside_others", took.beside_others},
                                {"p50_ms", at(took.claims, 0.5)},
                                {"p99_ms", at(took.claims, 0.99)},
                                {"registration_ms", registered_ms / count},
                                {"joining_nodes_ms", 1000 * joining.nodes / count},
                                {"joining_etcd_ms", 1000 * joining.etcd / count},
                                {"resting_nodes_ms", 1000 * resting.nodes / rest_s / count},
                                {"resting_etcd_ms", 1000 * resting.etcd / rest_s / count},
                                {"claim_nodes_ms", took.work.nodes},
                                {"claim_etcd_ms", took.work.etcd},
                                {"looked_claim_nodes_ms", looked.work.nodes},
                                {"looked_claim_etcd_ms", looked.work.etcd}}
              << "\n";
    std::cout.flush();
    quick_exit(0);  // the members end, too: nobody has to be told
}
