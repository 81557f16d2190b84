// The client's numbers and the driver's handles behind them. Used by the dispatcher thread, or while it holds all
// records back (WorkerSession::run_aside).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver_table.hpp"
#include "gpu_server/worker/device.hpp"
#include "gpu_server/worker/events.hpp"
#include "gpu_server/worker/graphs.hpp"
#include "gpu_server/worker/green_contexts.hpp"
#include "gpu_server/worker/memory_accounts.hpp"
#include "gpu_server/worker/tiled_arrays.hpp"
#include "gpu_server/worker/user_objects.hpp"

namespace tnr::worker {

struct Stream {
    CUstream handle = nullptr;
    uint64_t context = 0;  // number of the context it was made in
};

// A kernel of a library; its function in each context is asked for when first needed.
struct Kernel {
    CUkernel handle = nullptr;
    std::unordered_map<CUcontext, CUfunction> functions;
};

struct Library {
    CUlibrary handle = nullptr;
    std::vector<Kernel> kernels;
};

struct Array {
    CUarray handle = nullptr;
    uint64_t context = 0;    // number of the one it was made in
    uint64_t mipmapped = 0;  // number of what it is a level of
    std::shared_ptr<Physical> charged = {};
    std::shared_ptr<TiledArray> tiled = {};  // null: an ordinary array, or a part of another
    bool is_plane = false;
    std::vector<uint64_t> planes = {};  // numbers
};

// Of a module: good for as long as that is loaded.
template <class Handle>
struct Reference {
    Handle handle = nullptr;
    uint64_t library = 0;  // number; 0: of none
};

struct MipmappedArray {
    CUmipmappedArray handle = nullptr;
    uint64_t context = 0;
    std::shared_ptr<Physical> charged = {};
    std::shared_ptr<TiledArray> tiled = {};
};

// A link with its options and log buffers. It never moves: the driver keeps pointers to both.
struct Link;

// The Side of record.hpp that handlers see: each of the client's numbers with what it stands for here. Valid while the
// handler runs, unless a member says otherwise.
struct Resolved {
    struct Context {
        uint64_t number = 0;
        CUcontext handle = nullptr;
    };
    struct Stream {
        uint64_t number = 0;
        CUstream handle = nullptr;
    };
    struct Event {
        uint64_t number = 0;
        CUevent handle = nullptr;
        SharedEvent shared;  // stays valid after the handler has returned
    };
    struct Library {
        uint64_t number = 0;
        CUlibrary handle = nullptr;
    };
    struct Kernel {
        uint64_t number = 0;
        CUkernel handle = nullptr;
    };
    struct Function {  // of a kernel, in the current context
        uint64_t number = 0;
        CUfunction handle = nullptr;
    };
    struct Link {
        uint64_t number = 0;
        std::shared_ptr<worker::Link> object;
    };
    struct Allocation {
        uint64_t number = 0;
        Created* object = nullptr;
    };
    struct Graph {
        uint64_t number = 0;
        CUgraph handle = nullptr;
    };
    struct GraphNode {
        uint64_t number = 0;
        CUgraphNode handle = nullptr;
    };
    struct UserObject {
        uint64_t number = 0;
        CUuserObject handle = nullptr;
    };
    struct Array {  // or none
        uint64_t number = 0;
        CUarray handle = nullptr;
    };
    struct MipmappedArray {  // or none
        uint64_t number = 0;
        CUmipmappedArray handle = nullptr;
    };
    struct TextureReference {
        uint64_t number = 0;
        CUtexref handle = nullptr;
    };
    struct SurfaceReference {
        uint64_t number = 0;
        CUsurfref handle = nullptr;
    };
    struct GraphExec {
        uint64_t number = 0;
        CUgraphExec handle = nullptr;
    };
    struct GreenContext {
        uint64_t number = 0;
        CUgreenCtx handle = nullptr;
    };
    struct ResourceDescription {
        uint64_t number = 0;
        CUdevResourceDesc handle = nullptr;
    };
    struct Device {
        uint32_t number = 0;
        worker::Device* object = nullptr;
    };
};

class Handles {
public:
    explicit Handles(std::vector<Device>& devices) : devices(devices) {}

    std::vector<Device>& devices;
    CUcontext current = nullptr;  // in which records run
    NumberedHandles<CUcontext> contexts{contexts_max};
    NumberedHandles<Stream> streams;
    NumberedHandles<SharedEvent> events;
    NumberedHandles<Library> libraries;
    NumberedHandles<std::shared_ptr<Link>> links{links_max};
    NumberedHandles<Created> allocations;
    GraphBook graphs{devices};
    UserObjects user_objects;
    NumberedHandles<GreenContext> green_contexts;
    // CUDA has no call to destroy one.
    NumberedHandles<CUdevResourceDesc> resource_descriptions{resource_descriptions_max};
    DeviceResources device_resources;
    NumberedHandles<Array> arrays;
    NumberedHandles<MipmappedArray> mipmapped_arrays;
    NumberedHandles<Reference<CUtexref>> texture_references;
    NumberedHandles<Reference<CUsurfref>> surface_references;

    // Fill in what the number stands for, or return what a driver returns for an invalid handle.
    CUresult resolve(Resolved::Context& context);
    CUresult resolve(Resolved::Stream& stream);
    CUresult resolve(Resolved::Event& event);
    CUresult resolve(Resolved::Library& library);
    CUresult resolve(Resolved::Kernel& kernel);
    CUresult resolve(Resolved::Function& function);
    CUresult resolve(Resolved::Link& link);
    CUresult resolve(Resolved::Allocation& allocation);
    CUresult resolve(Resolved::Graph& graph);
    CUresult resolve(Resolved::GraphNode& node);
    CUresult resolve(Resolved::GraphExec& exec);
    CUresult resolve(Resolved::UserObject& object);
    CUresult resolve(Resolved::Array& array);
    CUresult resolve(Resolved::MipmappedArray& array);
    CUresult resolve(Resolved::TextureReference& reference);
    CUresult resolve(Resolved::SurfaceReference& reference);
    CUresult resolve(Resolved::GreenContext& green);
    CUresult resolve(Resolved::ResourceDescription& description);
    CUresult resolve(Resolved::Device& device);

    // The driver has destroyed them, or the context that they were made in.
    // With their planes or levels.
    void forget_array(uint64_t number);
    void forget_mipmapped_array(uint64_t number);
    void forget_arrays_of(uint64_t context);

    // Makes a driver call that destroys. The client has forgotten what it named, except a node that could not be
    // destroyed.
    template <class Destroy>
    CUresult end(const Resolved::Graph& graph, Destroy destroy) {
        graphs.forget_graph(graph.number);
        return destroy();
    }
    template <class Destroy>
    CUresult end(const Resolved::GraphExec& exec, Destroy destroy) {
        graphs.forget_exec(exec.number);
        return destroy();
    }
    template <class Destroy>
    CUresult end(const Resolved::GraphNode& node, Destroy destroy) {
        auto result = destroy();
        if (result == CUDA_SUCCESS) graphs.forget_node(node.number);
        return result;
    }
    // 0: none of the client's.
    uint64_t number_of(CUevent event);

private:
    Kernel* find_kernel(uint64_t function_number);
};

}  // namespace tnr::worker
