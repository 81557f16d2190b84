// A simulated pool: many nodes that register with a real etcd, and claims on their GPUs, as fast as some threads can make them.
// What a node does to have a claim is the server's own code (gpu_server/pool); there are no workers and no programs, and nobody
// follows what the others do.
//
//   pool_nodes_bench etcd://127.0.0.1:2379 NODES SECONDS THREADS      one line of JSON
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "gpu_server/pool/directory_backend.hpp"

using namespace tnr;
using namespace tnr::server;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int gpus_per_node = 8;

double ms_since(Clock::time_point begun) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

struct Node {
    PoolNode entry;
    std::unique_ptr<Backend> backend;
    int64_t fence = 0;
};

double at(std::vector<double>& sorted, double part) {
    return sorted.empty() ? 0 : sorted[static_cast<size_t>(part * static_cast<double>(sorted.size() - 1))];
}

void register_all(std::vector<Node>& nodes, const etcd::Address& address, int64_t lasts_s) {
    for (size_t i = 0; i < nodes.size(); ++i) {
        auto& node = nodes[i];
        auto name = "node-" + std::to_string(i);
        node.entry = {name, "tcp://" + name + ":14900", "K", "1", name, {{"h100", {gpus_per_node, gpus_per_node, 1}}}};
        for (int gpu = 0; gpu < gpus_per_node; ++gpu) node.entry.gpus.push_back(name + "-gpu-" + std::to_string(gpu));
        node.backend = make_etcd_backend(address, {.ttl_s = lasts_s});
        auto joined = node.backend->join(node.entry, {});
        if (!joined) {
            std::cerr << joined.error().what << "\n";
            std::exit(1);
        }
        node.fence = joined->fence;
    }
}

}  // namespace

int main(int argc, char** argv) {
    auto address = argc == 5 ? etcd::parse_address(argv[1]) : Result<etcd::Address>(Error{Error::Kind::usage, "usage"});
    if (!address) return std::cerr << "pool_nodes_bench etcd://HOST:PORT NODES SECONDS THREADS\n", 2;
    const int count = std::atoi(argv[2]), seconds = std::atoi(argv[3]), threads = std::atoi(argv[4]);
    std::vector<Node> nodes(static_cast<size_t>(count));
    auto begun = Clock::now();
    register_all(nodes, *address, seconds + 600);
    const double registered_ms = ms_since(begun);

    std::mutex mutex;
    std::vector<double> took;
    std::atomic<int> failed{0};
    std::vector<std::thread> all;
    begun = Clock::now();
    // Each thread has nodes of its own, as each node has its own server.
    for (int thread = 0; thread < threads; ++thread)
        all.emplace_back([&, thread] {
            std::mt19937 random(static_cast<unsigned>(thread));
            std::vector<double> mine;
            for (int64_t id = thread; ms_since(begun) < seconds * 1000.0; id += threads) {
                auto& node =
                    nodes[(random() % static_cast<unsigned>(count / threads)) * static_cast<unsigned>(threads) +
                          static_cast<unsigned>(thread)];
                PoolClaim claim{node.entry.name,
                                id,
                                "alice",
                                "trainer-" + std::to_string(id),
                                "h100",
                                {node.entry.gpus[random() % gpus_per_node]},
                                1};
                auto asked = Clock::now();
                auto added = node.backend->add(claim, node.fence);
                mine.push_back(ms_since(asked));
                failed += !added || !node.backend->remove(claim);
            }
            std::lock_guard lock(mutex);
            took.insert(took.end(), mine.begin(), mine.end());
        });
    for (auto& thread : all) thread.join();
    const double lasted_s = ms_since(begun) / 1000;
    std::sort(took.begin(), took.end());
    std::cout << nlohmann::json{{"nodes", count},
                                {"gpus", count * gpus_per_node},
                                {"threads", threads},
                                {"claims", took.size()},
                                {"failed", failed.load()},
                                {"claims_per_s", static_cast<double>(took.size()) / lasted_s},
                                {"p50_ms", at(took, 0.5)},
                                {"p99_ms", at(took, 0.99)},
                                {"registration_ms", registered_ms / count}}
              << "\n";
    for (auto& node : nodes) node.backend->leave(node.entry);
    return failed == 0 ? 0 : 1;
}
