// See node_updates.hpp.
#include "gpu_server/emulated_gpu/ptx/node_updates.hpp"

#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/builtin_call.hpp"

namespace tnr::ptx {
namespace {

constexpr int32_t updated = 0, refused = 1;  // of cudaError
constexpr uint64_t value_bytes_max = 32764;  // no kernel has more parameters

// cudaGraphKernelNodeUpdate, as it lies in memory.
struct GivenUpdate {
    uint64_t node;
    int32_t field, unused;
    union {
        uint32_t grid[3];
        struct {
            uint64_t value, offset, bytes;
        } parameter;
        uint32_t enabled;
    };
};
static_assert(sizeof(GivenUpdate) == 40);

struct Update : NodeUpdate {
    uint64_t value_address = 0, value_bytes = 0;  // of a parameter
};

Update update_of(uint64_t node, NodeUpdate::Field field) {
    Update update;
    update.node = node;
    update.field = field;
    return update;
}

// Null: the kernel may not read there, and has faulted.
const std::byte* read(Warp& w, uint32_t lane, uint64_t address, uint64_t bytes) {
    auto* found = generic_pointer(w, lane, address, static_cast<uint32_t>(bytes), false);
    if (!found) memory_fault(w, address, lane, static_cast<uint32_t>(bytes), "an update of a node's read", false);
    return found;
}

int32_t apply(Warp& w, uint32_t lane, Update update) {
    auto& launch = *w.block->grid->launch;
    if (!launch.update_node || !launch.device) return refused;
    if (update.field == NodeUpdate::Field::parameter && update.value_bytes != 0) {
        if (update.value_bytes > value_bytes_max) return refused;
        auto* value = read(w, lane, update.value_address, update.value_bytes);
        if (!value) return refused;
        update.value = {value, update.value_bytes};
    }
    update.device = launch.device->number();
    return launch.update_node(update) ? updated : refused;
}

int32_t apply_all(Warp& w, uint32_t lane, uint64_t address, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        GivenUpdate given;
        auto* found = read(w, lane, address + i * sizeof given, sizeof given);
        if (!found) return refused;
        std::memcpy(&given, found, sizeof given);
        auto update = update_of(given.node, NodeUpdate::Field{given.field});
        update.grid = {given.grid[0], given.grid[1], given.grid[2]};
        update.enabled = given.enabled != 0;
        update.offset = given.parameter.offset;
        update.value_address = given.parameter.value;
        update.value_bytes = given.parameter.bytes;
        if (auto result = apply(w, lane, update); result != updated) return result;
    }
    return updated;
}

struct GridArgument {
    uint32_t x, y, z;
};

}  // namespace

Builtin node_update_named(std::string_view name) {
    if (name == "cudaGraphKernelNodeSetParam") return Builtin::node_parameter;
    if (name == "cudaGraphKernelNodeSetEnabled") return Builtin::node_enabled;
    if (name == "cudaGraphKernelNodeSetGridDim") return Builtin::node_grid;
    return name == "cudaGraphKernelNodeUpdatesApply" ? Builtin::node_updates : Builtin::none;
}

bool node_update_fits(const Call& call) {
    auto has = [&](std::initializer_list<uint32_t> bytes) {
        return std::ranges::equal(call.arguments, bytes,
                                  [](const ByteRange& given, uint32_t least) { return given.size >= least; });
    };
    bool fits = call.builtin == Builtin::node_parameter ? has({8, 8, 8, 8})
                : call.builtin == Builtin::node_enabled ? has({8, 1})
                : call.builtin == Builtin::node_grid    ? has({8, 12})
                                                        : has({8, 8});
    return fits && (call.results.empty() || (call.results.size() == 1 && call.results[0].size >= 4));
}

void call_node_update(Warp& w, uint32_t lane, const Call& call) {
    const auto node = argument<uint64_t>(w, lane, call, 0);  // of the last: the updates
    if (call.builtin == Builtin::node_updates)
        return result(w, lane, call, apply_all(w, lane, node, argument<uint64_t>(w, lane, call, 1)));
    auto update = update_of(node, NodeUpdate::Field::parameter);
    if (call.builtin == Builtin::node_parameter) {
        update.offset = argument<uint64_t>(w, lane, call, 1);
        update.value_address = argument<uint64_t>(w, lane, call, 2);
        update.value_bytes = argument<uint64_t>(w, lane, call, 3);
    } else if (call.builtin == Builtin::node_enabled) {
        update.field = NodeUpdate::Field::enabled;
        update.enabled = argument<uint8_t>(w, lane, call, 1) != 0;
    } else {
        const auto grid = argument<GridArgument>(w, lane, call, 1);
        update.field = NodeUpdate::Field::grid;
        update.grid = {grid.x, grid.y, grid.z};
    }
    result(w, lane, call, apply(w, lane, update));
}

}  // namespace tnr::ptx
