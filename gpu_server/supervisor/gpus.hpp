// The GPUs of this node: which are free, and what happens to one between two claims.
//
//   wiping ──▶ free ──▶ claimed ──▶ kept ──▶ claimed       by the same owner: its own memory is no secret to it
//      ▲                   │          │
//      └───────────────────┴──────────┘                     nobody else gets it but by way of `wiping`
//
// It is wiped by a helper process, then a worker is started on it that waits, warm, for whoever comes next. A GPU on which
// that fails several times in a row is `broken`, out of order, and tried again with growing pauses. Only its own faults
// count: what this host lacks for a moment (descriptors, ports, processes) breaks no GPU.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/gpu_source.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/memory_ledger.hpp"
#include "gpu_server/supervisor/wiper.hpp"
#include "gpu_server/supervisor/workers.hpp"
#include "gpu_server/watch/histogram.hpp"

namespace tnr::server {

struct Gpu {
    enum class State { wiping, free, claimed, kept, broken };
    int index = 0;
    FoundGpu found;
    State state = State::wiping;
    bool anothers = false;              // belongs to another node of the pool, as far as we know: not ours to touch
    std::string owner;                  // whose data may be in its memory; empty: free, or never claimed
    EventLoop::TimerId kept_until = 0;  // when `kept` ends
    std::optional<DeviceDescription> description;  // once a worker has told it; without a session's address range
    Worker* warm = nullptr;                        // starts, or waits for the next claim
    MemoryLedger memory;
    int64_t most_wiped = 0;            // bytes that a wipe has had of it
    int strikes = 0;                   // its own faults, in a row
    int host_troubles = 0;             // this host's, in a row
    milliseconds out_of_order_for{0};  // the latest pause
    EventLoop::TimerId restart = 0;
    std::string label() const { return found.type + " #" + std::to_string(index); }
};

// Of all its wipes since the start.
struct WipeTally {
    uint64_t done = 0, failed = 0;
    double bytes = 0, checked_bytes = 0;
    watch::Histogram seconds;
};

class Gpus {
public:
    Gpus(EventLoop& loop, Workers& workers, Wiper wiper) : loop_(loop), workers_(workers), wiper_(std::move(wiper)) {}

    // All start with being wiped: who knows what an earlier server left in them.
    void add(std::vector<FoundGpu> found);
    // Likewise, but not before serve_all_but() says whose they are.
    void add_later(std::vector<FoundGpu> found);
    void serve_all_but(const std::set<std::string>& others_uuids);
    // Asked before a GPU is touched between claims: whether it has been given to another node, which serve_all_but() need
    // not have said yet.
    void on_touch(std::function<bool(const std::string& uuid)> lost) { lost_ = std::move(lost); }
    // A GPU has become free, or a description known: what waited for that may go on.
    void on_change(std::function<void()> changed) { changed_ = std::move(changed); }

    void on_wiped(std::function<void(int index, const WipeRecord& wipe)> wiped) { told_wiped_ = std::move(wiped); }

    Gpu& at(int index) { return gpus_[static_cast<size_t>(index)]; }
    const Gpu& at(int index) const { return gpus_[static_cast<size_t>(index)]; }
    std::vector<Gpu>& all() { return gpus_; }
    const std::vector<Gpu>& all() const { return gpus_; }
    std::set<std::string> types() const;  // that are in working order
    int count(const std::string& type) const;
    std::vector<int> with_state(const std::string& type, Gpu::State state) const;

    // What the owner may claim now: what is kept for it, then what is free.
    std::vector<int> available(const std::string& type, const std::string& owner) const;
    std::vector<int> kept_for(const std::string& type, const std::string& owner) const;

    // free or kept for this owner → claimed.
    void claim(const std::vector<int>& indexes, const std::string& owner);
    // The GPU's waiting worker, if it has one, is the caller's now.
    Worker* take_warm(Gpu& gpu);
    // claimed → kept, for the owner's next claim; after `linger` → wiping. Only when no process of ours uses the GPU
    // any more.
    void keep(const std::vector<int>& indexes, milliseconds linger);
    // claimed or kept → wiping → free. Likewise.
    void give_back(const std::vector<int>& indexes);

    // From Workers' events.
    void describe(Worker& worker);
    bool warm_worker_gone(Worker& worker, const std::string& how);  // false: it was not a warm one
    void stop() { stopping_ = true; }                               // start nothing any more

    // Begins nothing between claims, and ends the workers that wait; until go_on().
    void pause();
    void go_on();
    std::string what_moves() const;  // since pause(); empty: all is at rest
    void hand_over(Handover& handover) const;
    // After add_later() has been told of the same GPUs, whose GPUs and in which order found_before() says. Then go_on().
    Result<> take_over(const Handover& handover);
    static Result<std::vector<FoundGpu>> found_before(const Handover& handover);
    const WipeTally& tally() const { return tally_; }

private:
    bool lost(Gpu& gpu) const;
    void wipe(Gpu& gpu);
    void wiped(int index, const std::string& how, const WipeRecord& wipe);
    void start_warm(Gpu& gpu);
    using Again = void (Gpus::*)(Gpu&);
    void try_again(Gpu& gpu, milliseconds pause, Again again);
    void strike(Gpu& gpu, const std::string& why, Again again);
    void host_trouble(Gpu& gpu, const std::string& why, Again again);
    void out_of_order(Gpu& gpu, const std::string& why);

    EventLoop& loop_;
    Workers& workers_;
    Wiper wiper_;
    std::function<bool(const std::string&)> lost_;
    std::function<void()> changed_;
    std::function<void(int index, const WipeRecord& wipe)> told_wiped_;
    std::vector<Gpu> gpus_;
    WipeTally tally_;
    std::set<int> being_wiped_;
    bool stopping_ = false, paused_ = false;
};

}  // namespace tnr::server
