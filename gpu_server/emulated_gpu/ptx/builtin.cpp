// See builtin.hpp.
#include "gpu_server/emulated_gpu/ptx/builtin.hpp"

#include <cstdlib>
#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/builtin_call.hpp"
#include "gpu_server/emulated_gpu/ptx/device_runtime.hpp"
#include "gpu_server/emulated_gpu/ptx/node_updates.hpp"

namespace tnr::ptx {
namespace {

// What all launches by kernels that have not begun hold of the host's memory.
constexpr uint64_t parameter_bytes_max = uint64_t{64} << 20;

// What one lane sees: printf's pointers may lead to global, shared or its own local memory.
class LaneSource : public PrintSource {
public:
    LaneSource(Warp& w, uint32_t lane) : warp_(w), lane_(lane) {}
    bool read(uint64_t address, void* to, uint32_t bytes) override {
        auto* p = generic_pointer(warp_, lane_, address, bytes, false);
        if (p) std::memcpy(to, p, bytes);
        return p != nullptr;
    }

private:
    Warp& warp_;
    uint32_t lane_;
};

void print(Warp& w, uint32_t lane, const Call& call) {
    LaneSource source(w, lane);
    std::string text;
    auto format = argument<uint64_t>(w, lane, call, 0), values = argument<uint64_t>(w, lane, call, 1);
    if (!format_print(source, format, values, text)) return memory_fault(w, format, lane, 1, "printf's read", false);
    auto& launch = *w.block->grid->launch;
    if (launch.print) {
        LockGuard lock(w.block->grid->mutex);
        launch.print(launch.print_context, text);
    }
    result(w, lane, call, static_cast<int32_t>(text.size()));
}

std::string text_at(Warp& w, uint32_t lane, uint64_t address) {
    constexpr size_t text_max = 1024;
    std::string text;
    LaneSource source(w, lane);
    for (char c = 0; address && text.size() < text_max && source.read(address++, &c, 1) && c;) text += c;
    return text;
}

// __assertfail(message, file, line, function, char size)
void assert_fail(Warp& w, uint32_t lane, const Call& call) {
    auto message = text_at(w, lane, argument<uint64_t>(w, lane, call, 0));
    auto file = text_at(w, lane, argument<uint64_t>(w, lane, call, 1));
    auto line = argument<uint32_t>(w, lane, call, 2);
    auto function = text_at(w, lane, argument<uint64_t>(w, lane, call, 3));
    auto& launch = *w.block->grid->launch;
    auto tid = [&](uint32_t k) { return std::to_string(k); };
    uint32_t thread = w.index * warp_lanes + lane;
    auto& id = w.block->id;
    auto text = file + ":" + std::to_string(line) + ": " + function + ": block: [" + tid(id.x) + "," + tid(id.y) + "," +
                tid(id.z) + "], thread: [" + tid(thread % launch.block.x) + "," +
                tid(thread / launch.block.x % launch.block.y) + "," + tid(thread / launch.block.x / launch.block.y) +
                "] Assertion `" + message + "` failed.\n";
    if (launch.print) {
        LockGuard lock(w.block->grid->mutex);
        launch.print(launch.print_context, text);
    }
    fault(w, Outcome::assert_failed, lane, "assertion `" + message + "` failed");
}

// cudaGraphSetConditional(handle, value)
void set_condition(Warp& w, uint32_t lane, const Call& call) {
    auto& launch = *w.block->grid->launch;
    if (launch.set_condition)
        launch.set_condition(argument<uint64_t>(w, lane, call, 0), argument<uint32_t>(w, lane, call, 1));
}

// cudaGraphLaunch(instance, stream)
void launch_graph(Warp& w, uint32_t lane, const Call& call) {
    constexpr int32_t error_value = 1;  // cudaErrorInvalidValue
    auto* graph = w.block->grid->launch->graph;
    auto exec = argument<uint64_t>(w, lane, call, 0), stream = argument<uint64_t>(w, lane, call, 1);
    result(w, lane, call, graph ? graph->launch(exec, stream) : error_value);
}

bool long_enough(const Call& call, std::initializer_list<uint32_t> arguments, uint32_t result_bytes) {
    if (call.arguments.size() != arguments.size()) return false;
    size_t k = 0;
    for (auto bytes : arguments)
        if (call.arguments[k++].size < bytes) return false;
    return call.results.empty() || (call.results.size() == 1 && call.results[0].size >= result_bytes);
}

}  // namespace

Builtin builtin_named(std::string_view name) {
    if (name == "vprintf") return Builtin::vprintf;
    if (name == "__assertfail") return Builtin::assert_fail;
    if (name == "cudaGraphSetConditional") return Builtin::set_condition;
    if (name == "cudaGraphLaunch") return Builtin::launch_graph;
    if (name == "malloc") return Builtin::malloc;
    if (auto found = node_update_named(name); found != Builtin::none) return found;
    for (std::string_view prefix : {"__cudaCDP2", "cuda"}) {  // from CUDA 12 on, and before
        if (!name.starts_with(prefix)) continue;
        auto rest = name.substr(prefix.size());
        if (auto found = device_runtime_named(rest); found != Builtin::none) return found;
    }
    return name == "free" ? Builtin::free : Builtin::none;
}

bool builtin_fits(const Call& call) {
    switch (call.builtin) {
        case Builtin::vprintf:
            return long_enough(call, {8, 8}, 4);
        case Builtin::assert_fail:
            return long_enough(call, {8, 8, 4, 8, 8}, 0);
        case Builtin::set_condition:
            return long_enough(call, {8, 4}, 0);
        case Builtin::launch_graph:
            return long_enough(call, {8, 8}, 4);
        case Builtin::node_parameter:
        case Builtin::node_enabled:
        case Builtin::node_grid:
        case Builtin::node_updates:
            return node_update_fits(call);
        case Builtin::malloc:
            return long_enough(call, {8}, 8);
        case Builtin::free:
            return long_enough(call, {8}, 0);
        case Builtin::child_parameters:
            return long_enough(call, {8, 12, 12, 4}, 8);
        case Builtin::child_launch:
            return long_enough(call, {8, 8}, 4);
        case Builtin::child_stream:
            return long_enough(call, {8, 4}, 4);
        case Builtin::child_stream_end:
        case Builtin::child_free:
            return long_enough(call, {8}, 4);
        case Builtin::child_event_record:
            return long_enough(call, {8, 8}, 4);
        case Builtin::child_event_wait:
            return long_enough(call, {8, 8, 4}, 4);
        case Builtin::child_malloc:
            return long_enough(call, {8, 8}, 4);
        case Builtin::child_copy:
            return long_enough(call, {8, 8, 8, 4, 8}, 4);
        case Builtin::child_fill:
            return long_enough(call, {8, 4, 8, 8}, 4);
        case Builtin::child_copy_rows:
            return long_enough(call, {8, 8, 8, 8, 8, 8, 4, 8}, 4);
        case Builtin::child_fill_rows:
            return long_enough(call, {8, 8, 4, 8, 8, 8}, 4);
        case Builtin::child_device:
        case Builtin::child_device_count:
            return long_enough(call, {8}, 4);
        case Builtin::child_device_attribute:
            return long_enough(call, {8, 4, 4}, 4);
        case Builtin::child_last_error:
        case Builtin::child_peek_error:
            return long_enough(call, {}, 4);
        case Builtin::child_error_name:
        case Builtin::child_error_text:
            return long_enough(call, {4}, 8);
        default:
            return false;
    }
}

void call_builtin(Warp& w, const Call& call) {
    refresh_ranges(*w.worker);
    for (uint32_t rest = w.active; rest && !(w.event & event_fault); rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        switch (call.builtin) {
            case Builtin::vprintf:
                print(w, lane, call);
                break;
            case Builtin::assert_fail:
                assert_fail(w, lane, call);
                break;
            case Builtin::set_condition:
                set_condition(w, lane, call);
                break;
            case Builtin::launch_graph:
                launch_graph(w, lane, call);
                break;
            case Builtin::node_parameter:
            case Builtin::node_enabled:
            case Builtin::node_grid:
            case Builtin::node_updates:
                call_node_update(w, lane, call);
                break;
            case Builtin::malloc:
                result(w, lane, call, allocate_in_heap(w, argument<uint64_t>(w, lane, call, 0)));
                break;
            case Builtin::free:
                DeviceHeap::instance().release(argument<uint64_t>(w, lane, call, 0));
                break;
            default:
                call_device_runtime(w, lane, call);
                break;
        }
    }
}

struct DeviceHeap::State {
    // In front of what malloc gives. It is the kernel's to write: nvcc keeps the length of what new[] makes there.
    static constexpr uint64_t lead_bytes = 16;

    Mutex mutex;
    using Account = std::pair<Use, uint64_t>;  // with the owner of a heap
    struct Block {
        uint64_t bytes;
        Account account;
    };
    std::map<uint64_t, Block> blocks TNR_GUARDED_BY(mutex);  // by address, the lead's
    std::map<Account, uint64_t> used TNR_GUARDED_BY(mutex);  // bytes

    // No bytes have a place, too, which is the lead's: C++ wants new T[0] to give one, and nvcc asks malloc for it.
    uint64_t allocate(uint64_t bytes, const Account& account, uint64_t bytes_max) TNR_EXCLUDES(mutex) {
        LockGuard lock(mutex);
        auto& mine = used[account];
        if (mine > bytes_max || bytes > bytes_max - mine) return 0;
        bytes = lead_bytes + ((bytes + 15) & ~uint64_t{15});
        auto address = reinterpret_cast<uint64_t>(std::aligned_alloc(16, bytes));
        if (!address) return 0;
        blocks[address] = {bytes, account};
        mine += bytes;
        return address + lead_bytes;
    }
};

DeviceHeap::DeviceHeap() : state_(std::make_unique<State>()) {}
DeviceHeap::~DeviceHeap() = default;

// Never destroyed: programs destroy contexts in their last destructors, and kernels may still run.
DeviceHeap& DeviceHeap::instance() {
    static DeviceHeap& heap = *new DeviceHeap;
    return heap;
}

uint64_t DeviceHeap::allocate(uint64_t bytes, const Heap& heap) {
    return state_->allocate(bytes, {Use::of_kernel, heap.owner}, heap.bytes_max);
}

uint64_t DeviceHeap::allocate_parameters(uint64_t bytes) {
    return state_->allocate(bytes, {Use::parameters, 0}, parameter_bytes_max);
}

// A pointer that malloc never gave is ignored: hardware would corrupt its heap, we need not.
void DeviceHeap::release(uint64_t address, Use use) {
    LockGuard lock(state_->mutex);
    auto found = state_->blocks.find(address - State::lead_bytes);
    if (found == state_->blocks.end() || found->second.account.first != use) return;
    generation_.fetch_add(1, std::memory_order_acq_rel);
    state_->used[found->second.account] -= found->second.bytes;
    std::free(reinterpret_cast<void*>(found->first));
    state_->blocks.erase(found);
}

void DeviceHeap::end(uint64_t owner) {
    LockGuard lock(state_->mutex);
    const State::Account account{Use::of_kernel, owner};
    if (state_->used.erase(account) == 0) return;
    generation_.fetch_add(1, std::memory_order_acq_rel);
    std::erase_if(state_->blocks, [&](const auto& entry) {
        if (entry.second.account != account) return false;
        std::free(reinterpret_cast<void*>(entry.first));
        return true;
    });
}

void end_heap(uint64_t owner) {
    DeviceHeap::instance().end(owner);
}

Memory::Range DeviceHeap::range_of(uint64_t address) {
    LockGuard lock(state_->mutex);
    auto after = state_->blocks.upper_bound(address);
    if (after == state_->blocks.begin()) return {};
    auto& [begin, block] = *std::prev(after);
    return address - begin < block.bytes ? Memory::Range{begin, begin + block.bytes} : Memory::Range{};
}

}  // namespace tnr::ptx
