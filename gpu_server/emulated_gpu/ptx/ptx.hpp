// PTX text to something that runs on the CPU: the emulated GPU's processor. It knows nothing of the
// driver API; gpu_server/emulated_gpu/driver/ builds contexts, streams and modules on top of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::ptx {

struct Image;
struct Texture;

// One kernel parameter; offsets follow PTX's natural layout (each aligned to its own `align`).
struct Parameter {
    uint32_t offset = 0;
    uint32_t size = 0;
    uint32_t align = 1;
};

struct Kernel {
    std::string name;  // mangled, as in the PTX
    std::vector<Parameter> parameters;
    uint32_t parameter_bytes = 0;
    uint32_t static_shared_bytes = 0;
    uint32_t local_bytes = 0;            // per thread
    uint32_t max_threads_per_block = 0;  // .maxntid / .reqntid product; 0: not given
    uint32_t cluster[3] = {};            // .reqnctapercluster; all zero: not given
    bool needs_cluster = false;          // .explicitcluster
    uint32_t registers = 0;              // an estimate, for attributes only
    bool uses_heap = false;              // calls malloc or free, itself or through what it calls
    bool prints = false;                 // likewise printf
    uint32_t index = 0;                  // position in Module::kernels()
};

// A variable of type .texref or .surfref: what is bound to it, Memory knows by its address.
enum class Reference : uint8_t { none, texture, surface };

// A module-scope variable in .global or .const space. The caller gives it an address (Launch::global_addresses).
struct Global {
    std::string name;
    uint64_t size = 0;
    uint32_t align = 1;
    bool is_const = false;
    bool managed = false;  // the program uses it at the same address
    Reference reference = Reference::none;
};

// A parsed, checked and decoded translation unit. Immutable: may be shared between threads.
class Module {
public:
    virtual ~Module() = default;
    virtual const std::vector<Kernel>& kernels() const = 0;
    virtual const std::vector<Global>& globals() const = 0;
    virtual uint32_t target_sm() const = 0;  // 80 for `.target sm_80`
    // Fills `bytes` (Global::size long) with the initial value of global `index`. `addresses` holds the
    // device address of every global, in order: initialisers may contain the address of another one.
    virtual void initialise(size_t index, std::span<const uint64_t> addresses, std::span<std::byte> bytes) const = 0;
};

// Error::what names the line and, for an unsupported one, the instruction: "line 42: tex.2d is not
// supported by the emulated GPU". Its kind is not_found when names cannot be resolved, else usage. Never throws, whatever
// the text.
Result<std::shared_ptr<const Module>> load(std::string_view text);

// One translation unit of several; its name stands before the line in messages.
struct Source {
    std::string_view name, text;
};
// The units linked: what one declares `.extern` another has to define.
Result<std::shared_ptr<const Module>> load(std::span<const Source> sources);
// Whether a unit is sound as far as can be told without the others.
Result<> check(std::string_view text);

// What a kernel may touch. Device addresses are host addresses: an access inside a range goes straight
// to memory. Called from several threads at once; allocations may change while a kernel runs.
class Memory {
public:
    struct Range {
        uint64_t begin = 0;
        uint64_t end = 0;  // one past the last byte; begin == end: nothing is mapped there
    };
    virtual ~Memory() = default;
    virtual Range range_of(uint64_t address) const = 0;
    // What a texture or surface object stands for, or what is bound to the reference at that address. Null: nothing.
    virtual std::shared_ptr<const Texture> texture(uint64_t) const { return nullptr; }
    virtual std::shared_ptr<const Image> surface(uint64_t) const { return nullptr; }
    // What a multicast address stands for: the same stretch of memory once on each device of a team. Only multimem
    // and ordinary stores reach it; to range_of() nothing is there.
    struct Team {
        Range range;                                     // of addresses
        std::vector<std::shared_ptr<std::byte>> copies;  // each from range.begin on, for as long as they are held
    };
    virtual Team team_of(uint64_t) const { return {}; }

    // Workers remember the last ranges they saw. Count this up whenever a range goes away or shrinks,
    // before its memory is reused: they look again at their next access. (New ranges need nothing.)
    std::atomic<uint64_t> generation{0};
};

struct Dim3 {
    uint32_t x = 1, y = 1, z = 1;
};

// The graph that a kernel runs in.
class GraphAround {
public:
    virtual ~GraphAround() = default;
    // What %current_graph_exec reads; 0: no graph that kernels may launch.
    virtual uint64_t exec() const = 0;
    // cudaGraphLaunch. A cudaError. Called from any thread.
    virtual int32_t launch(uint64_t exec, uint64_t stream) = 0;
};

// What a kernel changes of a kernel in a graph, for its launches from then on (cudaGraphKernelNodeUpdatesApply).
struct NodeUpdate {
    enum class Field : int32_t { grid = 1, parameter = 2, enabled = 3 };  // as cudaGraphKernelNodeField
    uint64_t node = 0;                                                    // as the program has given it to the kernel
    Field field = Field::parameter;
    int32_t device = 0;  // that the kernel runs on
    Dim3 grid;
    uint64_t offset = 0;               // among the parameters, of
    std::span<const std::byte> value;  // the new bytes
    bool enabled = false;
};

// The device that a kernel runs on, as kernels ask for it; and others, by number. A cudaError.
class DeviceAround {
public:
    virtual ~DeviceAround() = default;
    virtual int32_t number() const = 0;
    virtual int32_t count(int32_t& count) const = 0;
    virtual int32_t attribute(int32_t attribute, int32_t device, int32_t& value) const = 0;
};

// The heap that kernels' malloc takes from: a context's, until end_heap().
struct Heap {
    uint64_t owner = 0;                      // what is allocated under one number counts together
    uint64_t bytes_max = uint64_t{8} << 20;  // CU_LIMIT_MALLOC_HEAP_SIZE
};
// Frees what kernels have left in it.
void end_heap(uint64_t owner);

struct Launch {
    const Module* module = nullptr;
    uint32_t kernel = 0;                         // index into Module::kernels()
    std::span<const uint64_t> global_addresses;  // as for Module::initialise
    Dim3 grid, block;
    Dim3 cluster;  // in blocks; divides the grid. They run together and reach each other's shared memory
    uint32_t dynamic_shared_bytes = 0;
    std::span<const std::byte> parameters;  // Kernel::parameter_bytes long
    bool cooperative = false;               // all blocks must be able to wait for each other
    uint64_t resident_blocks = 0;           // without that: so many, as a device holds them at once, may; 0: a few
    uint32_t clock_khz = 1'000'000;         // what %clock counts
    Memory* memory = nullptr;
    Heap heap;
    // Receives what device printf wrote, whole lines in order per thread. Called from any thread.
    void (*print)(void* context, std::string_view text) = nullptr;
    void* print_context = nullptr;
    // Called for cudaGraphSetConditional, from any thread.
    void (*set_condition)(uint64_t handle, uint32_t value) = nullptr;
    // Called for NodeUpdates, from any thread. False: there is no such node or update.
    bool (*update_node)(const NodeUpdate& update) = nullptr;
    GraphAround* graph = nullptr;          // null: the kernel runs in none
    const DeviceAround* device = nullptr;  // null: kernels cannot ask
    const bool* cancelled = nullptr;       // read with atomic_ref now and then; true: stop early
};

// `deadlock`: no thread of a block can ever run again (a barrier that cannot be reached); hardware would hang.
enum class Outcome {
    done,
    illegal_address,
    misaligned_address,
    trap,
    assert_failed,
    illegal_instruction,
    cancelled,
    deadlock
};

struct Report {
    Outcome outcome = Outcome::done;
    std::string detail;  // "kernel _Z4sinkPi, line 31: read of 4 bytes at 0x0 by block (0,0,0) thread (5,0,0)"
    uint64_t warp_instructions = 0;  // how many were executed, for benchmarks
};

// Runs the whole grid and returns. Uses up to `threads` host threads (0: as many as there are cores).
Report run(const Launch& launch, unsigned threads = 0);

}  // namespace tnr::ptx
