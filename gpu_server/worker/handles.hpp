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
#include "gpu_server/worker/memory_accounts.hpp"

namespace tnr::worker {

// Live handles of one kind per session: far above what programs use (PyTorch: some thousand events), and a bound on
// what a hostile client can make us remember.
inline constexpr size_t handles_max = size_t{1} << 20;

template <class T>
class NumberedHandles {
public:
    // Null when the number is unknown.
    T* find(uint64_t number) {
        auto found = map_.find(number);
        return found == map_.end() ? nullptr : &found->second;
    }
    bool add(uint64_t number, T handle) {
        return map_.size() < handles_max && map_.emplace(number, std::move(handle)).second;
    }
    void remove(uint64_t number) { map_.erase(number); }
    auto begin() { return map_.begin(); }
    auto end() { return map_.end(); }

private:
    std::unordered_map<uint64_t, T> map_;
};

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
    NumberedHandles<CUcontext> contexts;
    NumberedHandles<Stream> streams;
    NumberedHandles<SharedEvent> events;
    NumberedHandles<Library> libraries;
    NumberedHandles<std::shared_ptr<Link>> links;
    NumberedHandles<Created> allocations;

    // Fill in what the number stands for, or return what a driver returns for an invalid handle.
    CUresult resolve(Resolved::Context& context);
    CUresult resolve(Resolved::Stream& stream);
    CUresult resolve(Resolved::Event& event);
    CUresult resolve(Resolved::Library& library);
    CUresult resolve(Resolved::Kernel& kernel);
    CUresult resolve(Resolved::Function& function);
    CUresult resolve(Resolved::Link& link);
    CUresult resolve(Resolved::Allocation& allocation);
    CUresult resolve(Resolved::Device& device);

private:
    Kernel* find_kernel(uint64_t function_number);
};

}  // namespace tnr::worker
