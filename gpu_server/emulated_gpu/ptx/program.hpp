// The decoded form: what the decoder makes of ast::Unit and the machine executes. One Instr is one
// function call for a whole group of lanes; all operands are registers, constants included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu_server/emulated_gpu/ptx/matrix.hpp"
#include "gpu_server/emulated_gpu/ptx/types.hpp"

namespace tnr::ptx {

struct Warp;
struct Instr;
using Handler = void (*)(Warp&, const Instr&);

// Where a register's lanes lie: a byte offset (a multiple of 4), and in its low bits which of the warp's
// bases it counts from. A predicate is one uint32_t, a bit per lane; any other register an array of 32.
using RegRef = uint32_t;
enum Base : uint32_t { base_frame = 0, base_constants = 1, base_relocated = 2 };

enum class Guard : uint8_t { none, if_true, if_false };

struct Instr {
    Handler run = nullptr;
    RegRef dst = 0, a = 0, b = 0, c = 0, d = 0;
    RegRef guard = 0;
    Guard guard_kind = Guard::none;
    uint8_t flags = 0;   // the handler's own: see each group
    uint16_t count = 0;  // the handler's own: elements of a vector, ...
    uint32_t table = 0;  // index into Program::registers, ::calls or ::targets; of a collective, the RegRef of its mask
    int64_t imm = 0;     // address offset, branch target, ...
};

// A value known only at launch: where a variable lies.
struct LaunchConstant {
    bool is_shared = false;
    uint32_t variable = 0;  // is_shared: of ast::Unit, else of Module::globals()
    int64_t addend = 0;
};

struct ByteRange {
    uint32_t offset = 0;
    uint32_t size = 0;
};

struct Function {
    std::string name;
    bool is_entry = false;
    uint32_t entry_pc = 0;
    uint32_t frame_bytes = 0;                    // registers of all lanes
    uint32_t parameter_bytes = 0;                // of an entry
    uint32_t local_bytes = 0;                    // per lane: .local variables, call arguments, own parameters
    std::vector<ByteRange> parameters, returns;  // in local memory; of an entry: unused
    std::vector<uint32_t> callees;               // direct calls
    bool calls_indirectly = false;
    bool address_taken = false;
    std::vector<uint32_t> shared_variables;  // it mentions, of ast::Unit
};

enum class Builtin : uint8_t {
    none,
    vprintf,
    assert_fail,
    set_condition,
    launch_graph,
    node_parameter,
    node_enabled,
    node_grid,
    node_updates,
    malloc,
    free,
    child_parameters,
    child_launch,
    child_stream,
    child_stream_end,
    child_event_record,
    child_event_wait,
    child_malloc,
    child_free,
    child_copy,
    child_fill,
    child_copy_rows,
    child_fill_rows,
    child_device,
    child_device_count,
    child_device_attribute,
    child_last_error,
    child_peek_error,
    child_error_name,
    child_error_text
};

struct Call {
    uint32_t function = ~0u;  // ~0: through register `a` of the Instr
    Builtin builtin = Builtin::none;
    std::vector<ByteRange> arguments, results;  // in the caller's local memory
};

struct Program {
    std::vector<Instr> code;
    std::vector<uint32_t> lines;      // of each Instr
    std::vector<Function> functions;  // same index as in ast::Unit; entry_pc of undefined ones is ~0
    std::vector<RegRef> registers;    // operands of vector instructions
    std::vector<Call> calls;
    std::vector<matrix::Multiply> multiplies;
    std::vector<matrix::WarpgroupMultiply> warpgroup_multiplies;
    std::vector<matrix::Fragment> fragments;
    std::vector<std::vector<uint32_t>> targets;    // brx.idx
    std::vector<std::byte> constants;              // each broadcast to 32 lanes
    std::vector<LaunchConstant> launch_constants;  // each becomes 32 x 8 bytes at launch
    std::vector<std::string> absent;               // names of instructions that are not emulated
    bool uses_reserved_shared = false, uses_alloca = false;
};

// Code addresses as programs see them: no memory lies there, so they can never be mistaken for data.
inline constexpr uint64_t code_window = uint64_t{0x70} << 56;

}  // namespace tnr::ptx
