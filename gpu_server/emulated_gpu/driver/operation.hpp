// The things a stream can be told to do. Calls, graph nodes and stream capture all make these, so each kind
// of work is performed in exactly one place.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "gpu_server/emulated_gpu/driver/context.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"

namespace tnr::emulated {

class Array;
class Function;
class Module;

// An array as one side of a copy, kept while the copy waits: where in it the copy begins. Null: the side is memory.
struct ArrayPlace {
    std::shared_ptr<Array> array;
    size_t x_bytes = 0, y = 0, z = 0;
};

// A box of `depth` slices of `height` rows of `width` bytes.
struct Copy {
    uint64_t destination = 0, source = 0;
    size_t width = 0, height = 1, depth = 1;
    size_t destination_pitch = 0, source_pitch = 0;        // bytes from row to row
    size_t destination_slice = 0, source_slice = 0;        // bytes from slice to slice
    ArrayPlace destination_array = {}, source_array = {};  // whose address and pitches are above, too
    bool of_peers = false;                                 // each end is for a context of its own, not the stream's

    bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

// `height` rows of `width` elements, each of `element` (1, 2 or 4) bytes.
struct Fill {
    uint64_t destination = 0;
    size_t pitch = 0;
    unsigned value = 0;
    unsigned element = 1;
    size_t width = 0, height = 1;
};

class UpdatableNode;

struct KernelLaunch {
    std::shared_ptr<Function> function;  // keeps its module's code and memory
    CUfunction handle = nullptr;         // as the caller gave it: a function's or a kernel's
    ptx::Dim3 grid, block;
    unsigned dynamic_shared_bytes = 0;
    bool cooperative = false;
    ptx::Dim3 cluster;
    std::vector<std::byte> parameters;
    std::shared_ptr<const BoundReferences> bound;
    std::vector<CUlaunchAttribute> attributes;  // kept for graphs; what changes the result is above
    std::shared_ptr<UpdatableNode> updatable;   // of a graph's node that kernels may change
};

struct HostCall {
    CUhostFn function = nullptr;
    void* data = nullptr;
};

// The limit that cuda.h gives for a batch.
inline constexpr unsigned value_operations_max = 255;

// Words written to memory and waited for in it, one after another.
struct ValueOperations {
    std::vector<CUstreamBatchMemOpParams> list;
};

using Operation = std::variant<Copy, Fill, KernelLaunch, HostCall, ValueOperations>;

// Each does its work now, on this thread. After a fault of the context they do nothing; a faulting kernel fails the
// context.
void perform(Context& context, const Copy& copy);
void perform(Context& context, const Fill& fill);
// `graph`: which it runs in; null: none.
void perform(Context& context, const KernelLaunch& launch, ptx::GraphAround* graph = nullptr);
void perform(Context& context, const HostCall& call);
void perform(Context& context, const ValueOperations& operations);

// Fails unless every word may be used by the context and every operation is known.
CUresult check_values(Context& context, const ValueOperations& operations);

// Appends it to the stream, or to the graph that the stream is being captured into.
CUresult enqueue(Stream& stream, Operation operation);
// The same and waits; while capturing it is an error, since nothing would ever be done.
CUresult enqueue_and_wait(Stream& stream, Operation operation);

}  // namespace tnr::emulated
