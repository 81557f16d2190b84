// What the parser makes of a PTX module: names resolved to registers, variables and functions, everything
// else still in the words of the text. Views point into that text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gpu_server/emulated_gpu/ptx/ptx.hpp"
#include "gpu_server/emulated_gpu/ptx/types.hpp"

namespace tnr::ptx::ast {

inline constexpr uint32_t nothing = ~0u;

// How other units see a name. Where several define one, the later in this list wins; two that are `visible` clash.
enum class Linkage : uint8_t { local, external, common, weak, visible };

struct Operand {
    enum class Kind : uint8_t {
        sink,      // `_`
        reg,       // index: register of the function
        integer,   // value
        real32,    // value: its bits
        real64,    // value: its bits
        variable,  // index into Unit::variables, plus value bytes
        function,  // index into Unit::functions
        special,   // name: "tid.x", "laneid"
        label,     // name, resolved by the decoder
        vector,    // parts: {a, b, ...}
        memory,    // [parts[0] + value]; of a texture or surface [parts[0], parts[1]]
        list,      // (a, b, ...): the arguments of a call
        pair,      // a|b: two results
    };
    Kind kind = Kind::sink;
    bool negated = false;  // !p
    uint8_t part = 0;      // of a video instruction's register: 1 to 4 for .b0 to .b3, 5 and 6 for .h0 and .h1
    uint32_t index = nothing;
    int64_t value = 0;
    std::string_view name;
    std::vector<Operand> parts;
};

struct Instruction {
    std::string_view name;                    // "ld"
    std::vector<std::string_view> modifiers;  // "global", "u32"
    std::vector<Operand> operands;
    uint32_t guard = nothing;  // register of `@p`
    bool guard_negated = false;
    uint32_t line = 0;
    uint32_t scope = 0;  // where its labels are looked up
};

// A part of an initialiser that is an address known only when the module is loaded.
struct Relocation {
    uint64_t offset = 0;
    uint32_t bytes = 8;
    uint32_t shift = 0;  // mask(symbol): which byte of the address
    bool is_function = false;
    uint32_t index = 0;
    int64_t addend = 0;
};

struct Variable {
    std::string_view name;
    Space space = Space::global;
    Type type = Type::none;
    uint32_t align = 1;
    uint64_t size = 0;  // bytes; 0: dynamic shared memory
    Linkage linkage = Linkage::local;
    bool managed = false;  // .attribute(.managed)
    Reference reference = Reference::none;
    uint32_t function = nothing;  // the one it is declared in
    uint32_t scope = 0;           // and in which of its { }
    uint32_t line = 0;
    std::vector<uint8_t> initial;  // the rest is zero
    std::vector<Relocation> relocations;
};

struct Label {
    std::string_view name;
    uint32_t scope = 0;
    uint32_t position = 0;                  // the instruction it stands before
    std::vector<std::string_view> targets;  // of a .branchtargets list
};

struct Function {
    std::string_view name;
    bool is_entry = false;
    bool defined = false;
    Linkage linkage = Linkage::local;
    uint32_t line = 0;
    uint32_t source = 0;                        // index into Unit::sources
    std::vector<uint32_t> parameters, returns;  // Unit::variables
    std::vector<Type> registers;
    std::vector<Instruction> body;
    std::vector<Label> labels;
    std::vector<uint32_t> scope_parents;  // of each { }; the outermost is 0 and its own parent
    uint32_t max_threads = 0;
    uint32_t cluster[3] = {};    // .reqnctapercluster; all zero: not given
    bool needs_cluster = false;  // .explicitcluster: the launch says how large, if nothing here does
};

struct Unit {
    uint32_t target_sm = 0;
    std::vector<std::string_view> sources;  // names of the texts it was linked from; empty: there was one
    std::vector<Variable> variables;
    std::vector<Function> functions;
};

}  // namespace tnr::ptx::ast
