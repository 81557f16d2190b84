// run(): a launch from checks to report. Host threads take blocks in order; each runs its blocks' warps in
// turn. A block that only polls memory may wait for a block that has not begun, so more blocks are begun
// beside it: a few at once, and when that does not help for a while, as many as the device holds. In a cooperative launch
// all are.
#include <sys/mman.h>

#include <algorithm>
#include <latch>
#include <system_error>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"
#include "gpu_server/emulated_gpu/ptx/module.hpp"

namespace tnr::ptx {
namespace {

constexpr size_t blocks_begun_at_once = 64;  // per worker, beside blocks that poll
// So long all of them poll before there are twice as many: one may have waited for a thread that the host had put aside.
constexpr auto polling_before_more = std::chrono::milliseconds(20);
// Below this the host's own sleep would take longer than what is asked for: threads give way instead.
constexpr auto host_sleep_min = std::chrono::microseconds(100);
constexpr unsigned threads_max = 256;  // host threads; more cores than that share one launch badly

uint64_t volume(const Dim3& dim) {
    return uint64_t{dim.x} * dim.y * dim.z;
}

Dim3 position(uint64_t index, const Dim3& size) {
    return {static_cast<uint32_t>(index % size.x), static_cast<uint32_t>(index / size.x % size.y),
            static_cast<uint32_t>(index / size.x / size.y)};
}

void fill_relocated(Grid& grid, const LoadedModule& module) {
    auto& layout = module.layout(grid.launch->kernel);
    auto& constants = grid.program->launch_constants;
    grid.relocated.resize(constants.size() * warp_lanes * 12);
    for (size_t k = 0; k < constants.size(); ++k) {
        uint64_t address = 0;
        if (!constants[k].is_shared) {
            address = grid.launch->global_addresses[constants[k].variable];
        } else if (auto found = layout.shared.find(constants[k].variable); found != layout.shared.end()) {
            address = found->second;
        } else {
            address = layout.dynamic_at;  // or a variable of another kernel, which this one never reads
        }
        address += static_cast<uint64_t>(constants[k].addend);
        auto* at = grid.relocated.data() + k * warp_lanes * 12;
        for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
            std::memcpy(at + lane * 8, &address, 8);
            std::memcpy(at + warp_lanes * 8 + lane * 4, &address, 4);
        }
    }
}

void map_local(Block& block) {
    size_t lanes = block.warps.size() * warp_lanes;
    block.local_bytes = lanes * block.grid->local_stride;
    if (block.local_bytes == 0) return;
    // Not touched, not used: most threads need a small part of what a deep recursion would.
    void* memory =
        mmap(nullptr, block.local_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    block.local = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

std::unique_ptr<Block> make_block(Worker& worker) {
    auto& grid = *worker.grid;
    auto block = std::make_unique<Block>();
    block->grid = &grid;
    block->worker = &worker;
    block->threads = static_cast<uint32_t>(volume(grid.launch->block));
    constexpr size_t alignment = 1024;  // no kernel asks for more
    block->shared.resize(grid.shared_bytes + alignment);
    auto address = reinterpret_cast<uint64_t>(block->shared.data());
    block->shared_base = block->shared.data() + (alignment - address % alignment) % alignment;
    for (uint32_t first = 0; first < block->threads; first += warp_lanes) {
        auto& w = *block->warps.emplace_back(std::make_unique<Warp>());
        uint32_t lanes = std::min(warp_lanes, block->threads - first);
        w.exists = lanes == warp_lanes ? all_lanes : (1u << lanes) - 1;
        w.index = first / warp_lanes;
        w.block = block.get();
        w.worker = &worker;
        w.program = grid.program;
        // Handlers read these two only.
        w.bases[base_constants] = const_cast<std::byte*>(grid.program->constants.data());
        w.bases[base_relocated] = grid.relocated.data();
        w.local_stride = grid.local_stride;
    }
    map_local(*block);
    for (auto& w : block->warps)
        if (block->local) w->local = block->local + w->index * warp_lanes * grid.local_stride;
    return block;
}

void start_block(Block& block, uint64_t cluster, uint32_t rank, std::shared_ptr<Cluster> peers) {
    block.id = block_id(*block.grid->launch, cluster, rank);
    block.rank = rank;
    block.cluster = std::move(peers);
    (*block.cluster)[rank] = &block;
    block.waits_for_cluster = false;
    block.live_threads = block.threads;
    block.barriers.clear();
    block.spinning = false;
    block.idle_until = {};
    for (auto& w : block.warps) start_warp(*w, *block.grid->function);
    if (block.grid->local_stride && !block.local)
        fault(*block.warps[0], Outcome::illegal_address, 0, "no host memory for the local memory of a block");
}

void report_deadlock(Block& block) {
    for (auto& w : block.warps) {
        if (!w->live) continue;
        auto lane = static_cast<uint32_t>(std::countr_zero(w->live));
        w->pc = w->lane_pc[lane] + 1;
        return fault(*w, Outcome::deadlock, lane, "deadlock: waits for threads that will never come");
    }
}

// One turn for every warp. False when the block is done or can never be.
bool run_round(Block& block) {
    bool any = false, spinning = true;
    auto wakes = Clock::time_point::max();
    for (auto& w : block.warps) {
        wake_when_due(*w);
        if (!runnable(*w)) {
            if (w->asleep) wakes = std::min(wakes, w->wake_at);
            continue;
        }
        any = true;
        run_warp(*w);
        spinning &= w->spinning;
        if (block.grid->stop.load(std::memory_order_relaxed)) return false;
    }
    block.spinning = spinning;
    if (block.live_threads == 0) return false;
    block.idle_until = any || wakes == Clock::time_point::max() ? Clock::time_point{} : wakes;
    block.waits_for_cluster = false;
    if (any || wakes != Clock::time_point::max()) return true;
    for (auto& w : block.warps) block.waits_for_cluster |= w->at_cluster != 0;
    if (!block.waits_for_cluster) report_deadlock(block);
    return block.waits_for_cluster;
}

bool cancelled(Grid& grid) {
    auto* flag = grid.launch->cancelled;
    if (!flag || !__atomic_load_n(flag, __ATOMIC_RELAXED)) return false;
    LockGuard lock(grid.mutex);
    if (!grid.stop.exchange(true))
        grid.report = {Outcome::cancelled, "kernel " + grid.kernel->name + " was cancelled", 0};
    return true;
}

class ClusterSource {
public:
    explicit ClusterSource(Worker& worker) : worker_(worker), next_(worker.index) {}
    // False when no cluster is left.
    bool next(uint64_t& index) {
        auto& grid = *worker_.grid;
        if (!grid.launch->cooperative) return take_cluster(grid, index);
        index = next_;
        next_ += worker_.count;
        return index < grid.clusters;
    }

private:
    Worker& worker_;
    uint64_t next_;
};

// All resident blocks only poll or sleep: lets other threads of the host run.
void give_way(const std::vector<std::unique_ptr<Block>>& resident) {
    auto wakes = Clock::time_point::max();
    for (auto& block : resident) wakes = std::min(wakes, block->idle_until);
    if (wakes - Clock::now() >= host_sleep_min)
        std::this_thread::sleep_until(wakes);
    else
        std::this_thread::yield();
}

// Asked while all resident blocks poll; begins again when it has said yes.
bool has_polled_long(Clock::time_point& since) {
    auto now = Clock::now();
    if (since == Clock::time_point::max()) since = now;
    if (now - since < polling_before_more) return false;
    since = Clock::time_point::max();
    return true;
}

void work(Worker& worker) {
    auto& grid = *worker.grid;
    ClusterSource source(worker);
    std::vector<std::unique_ptr<Block>> resident, spare;
    const size_t resident_max =
        std::max<size_t>(blocks_begun_at_once, (grid.launch->resident_blocks + worker.count - 1) / worker.count);
    auto polling_since = Clock::time_point::max();
    bool more = true;
    auto admit = [&] {
        uint64_t index = 0;
        if (!more || !(more = source.next(index))) return;
        auto peers = std::make_shared<Cluster>(grid.cluster_blocks);
        for (uint32_t rank = 0; rank < grid.cluster_blocks; ++rank) {
            if (spare.empty()) spare.push_back(make_block(worker));
            resident.push_back(std::move(spare.back()));
            spare.pop_back();
            start_block(*resident.back(), index, rank, peers);
        }
    };
    admit();
    while (grid.launch->cooperative && more) admit();
    while (!resident.empty() && !grid.stop.load(std::memory_order_relaxed) && !cancelled(grid)) {
        bool spinning = true, stuck = true;
        for (size_t k = 0; k < resident.size();) {
            bool unfinished = run_round(*resident[k]);
            if (grid.stop.load(std::memory_order_relaxed)) break;
            spinning &= resident[k]->spinning && unfinished;
            stuck &= resident[k]->waits_for_cluster;
            if (unfinished) {
                ++k;
                continue;
            }
            (*resident[k]->cluster)[resident[k]->rank] = nullptr;
            spare.push_back(std::move(resident[k]));
            resident.erase(resident.begin() + static_cast<ptrdiff_t>(k));
        }
        if (resident.empty())
            admit();
        else if (stuck)
            report_deadlock(*resident[0]);
        else if (spinning && more && resident.size() < blocks_begun_at_once)
            admit();
        else if (spinning && more && resident.size() < resident_max && has_polled_long(polling_since))
            for (size_t begun = resident.size(); begun > 0 && more; --begun) admit();
        else if (spinning)
            give_way(resident);
        if (!spinning) polling_since = Clock::time_point::max();
    }
    uint64_t count = 0;
    for (auto* blocks : {&resident, &spare})
        for (auto& block : *blocks)
            for (auto& w : block->warps) count += w->instructions;
    grid.instructions += count;
}

void run_workers(Grid& grid, unsigned threads) {
    unsigned wanted = threads ? threads : std::max(1u, std::thread::hardware_concurrency());
    auto count = static_cast<unsigned>(std::min<uint64_t>({wanted, threads_max, grid.clusters}));
    std::vector<Worker> workers(count);
    std::vector<std::thread> helpers;
    std::latch counted(1);
    try {
        for (unsigned k = 1; k < count; ++k)
            helpers.emplace_back([&counted, &worker = workers[k]] {
                counted.wait();
                work(worker);
            });
    } catch (const std::system_error&) {
        // The process has all the threads that it may have: those that there are do the work.
    }
    for (unsigned k = 0; k <= helpers.size(); ++k) {
        workers[k].grid = &grid;
        workers[k].index = k;
        workers[k].count = static_cast<unsigned>(helpers.size()) + 1;
    }
    counted.count_down();
    work(workers[0]);
    for (auto& helper : helpers) helper.join();
}

}  // namespace

bool take_cluster(Grid& grid, uint64_t& cluster) {
    return (cluster = grid.next_cluster.fetch_add(1)) < grid.clusters;
}

// The blocks of a cluster lie beside each other in the grid.
Dim3 block_id(const Launch& launch, uint64_t cluster, uint32_t rank) {
    auto& size = launch.cluster;
    auto first = position(cluster, {launch.grid.x / size.x, launch.grid.y / size.y, launch.grid.z / size.z});
    auto within = position(rank, size);
    return {first.x * size.x + within.x, first.y * size.y + within.y, first.z * size.z + within.z};
}

Block::~Block() {
    if (local) munmap(local, local_bytes);
}

uint32_t current_line(const Warp& w) {
    return w.program->lines[w.pc - 1];
}

void fault(Warp& w, Outcome outcome, uint32_t lane, const std::string& what) {
    auto& grid = *w.block->grid;
    w.event |= event_fault;
    LockGuard lock(grid.mutex);
    if (grid.stop.exchange(true)) return;
    auto triple = [](const Dim3& d) {
        return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
    };
    auto thread = position(w.index * warp_lanes + lane, grid.launch->block);
    auto line = w.pc > 0 ? current_line(w) : 0;
    grid.report = {outcome,
                   "kernel " + grid.kernel->name + ", line " + std::to_string(line) + ": " + what + " by block " +
                       triple(w.block->id) + " thread " + triple(thread),
                   0};
}

std::string check(const Launch& launch, const LoadedModule& module) {
    if (launch.kernel >= module.kernels().size()) return "there is no such kernel";
    auto& kernel = module.kernels()[launch.kernel];
    uint64_t threads = volume(launch.block);
    if (threads == 0 || threads > threads_per_block_max || launch.block.x > 1024 || launch.block.y > 1024 ||
        launch.block.z > 1024)
        return "a block has 1 to 1024 threads";
    if (volume(launch.grid) == 0 || launch.grid.y > 65535 || launch.grid.z > 65535) return "the grid has no such size";
    auto& cluster = launch.cluster;
    if (volume(cluster) == 0 || volume(cluster) > cluster_blocks_max) return "a cluster has 1 to 16 blocks";
    if (launch.grid.x % cluster.x || launch.grid.y % cluster.y || launch.grid.z % cluster.z)
        return "the grid does not consist of whole clusters";
    if (kernel.max_threads_per_block && threads > kernel.max_threads_per_block)
        return "the block is larger than the kernel's .maxntid";
    if (launch.parameters.size() < kernel.parameter_bytes) return "parameters are missing";
    if (launch.global_addresses.size() < module.globals().size()) return "addresses of globals are missing";
    auto& layout = module.layout(launch.kernel);
    if (layout.dynamic_at + launch.dynamic_shared_bytes > shared_bytes_max) return "too much shared memory";
    return {};
}

// One grid, without what it launches.
static Report run_alone(const Launch& launch, unsigned threads, uint32_t depth, std::vector<ChildGrid>& children) {
    auto* module = static_cast<const LoadedModule*>(launch.module);
    if (auto wrong = check(launch, *module); !wrong.empty()) return {Outcome::illegal_instruction, wrong, 0};
    auto& layout = module->layout(launch.kernel);
    Grid grid(depth);
    grid.launch = &launch;
    grid.kernel = &module->kernels()[launch.kernel];
    grid.program = &module->program();
    grid.function = &grid.program->functions[layout.function];
    grid.static_shared = static_cast<uint32_t>(layout.dynamic_at);
    uint32_t asked = grid.static_shared + launch.dynamic_shared_bytes;
    grid.reserved_shared_at = (asked + shared_bytes_unit - 1) / shared_bytes_unit * shared_bytes_unit;
    grid.shared_bytes = grid.reserved_shared_at + (grid.program->uses_reserved_shared ? reserved_shared_bytes : 0);
    grid.local_stride = (layout.local_bytes + 63) & ~uint64_t{63};
    grid.cluster_blocks = static_cast<uint32_t>(volume(launch.cluster));
    grid.clusters = volume(launch.grid) / grid.cluster_blocks;
    fill_relocated(grid, *module);
    run_workers(grid, threads);
    children = grid.children.take();
    LockGuard lock(grid.mutex);
    grid.report.warp_instructions = grid.instructions;
    return std::move(grid.report);
}

static Report no_memory(const Transfer& transfer) {
    return {Outcome::illegal_address, "a kernel's copy or fill of " + std::to_string(transfer.bytes) + " bytes", 0};
}

static Report run_family(const Launch& launch, unsigned threads, uint32_t depth) {
    std::vector<ChildGrid> children;
    Report report = run_alone(launch, threads, depth, children);
    for (auto& child : children) {
        if (report.outcome != Outcome::done) break;
        if (child.transfer) {
            if (!run_transfer(*child.transfer, launch)) report = no_memory(*child.transfer);
            continue;
        }
        uint64_t before = report.warp_instructions;
        report = run_family(launch_of(child, launch), threads, depth + 1);
        report.warp_instructions += before;
    }
    return report;
}

Report run(const Launch& launch, unsigned threads) {
    return run_family(launch, threads, 0);
}

}  // namespace tnr::ptx
