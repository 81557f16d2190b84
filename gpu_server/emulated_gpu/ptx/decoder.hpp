// ast::Unit to Program. The Decoder (decoder.cpp) lays out registers, constants and local memory and
// gives each instruction group (ops_*.cpp) what it needs to choose a handler: operands as registers of a
// checked size, and the modifiers, each of which must be understood. A group's decode function returns
// false when the instruction is not among its own.
//
// To support an instruction: add it to its group's decode function and test it in tests/gpu_server/ptx.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "api_client/base/result.hpp"
#include "gpu_server/emulated_gpu/ptx/ast.hpp"
#include "gpu_server/emulated_gpu/ptx/program.hpp"

namespace tnr::ptx {

struct Decoded {
    Program program;
    std::vector<uint32_t> globals;                     // Module::globals() to Unit::variables
    std::unordered_map<uint32_t, uint32_t> global_of;  // and back
    std::vector<ByteRange> parameters;                 // of every entry's parameter variable, by Unit::variables
};

Result<Decoded> decode(const ast::Unit& unit);

class Decoder {
public:
    explicit Decoder(const ast::Unit& unit);
    Result<Decoded> run();

    // Modifiers of the current instruction. What nobody took is an unsupported modifier.
    bool take(std::string_view modifier);
    bool take_prefix(std::string_view prefix);  // ".L2::128B"
    Type take_type();                           // the next type in order; Type::none where there is none
    Type last_type() const;                     // likewise the last; words may stand behind it (max.s32.relu)
    std::string_view take_any_of(std::initializer_list<std::string_view> words);

    // Operands of the current instruction.
    size_t operand_count() const { return inst_->operands.size(); }
    const ast::Operand& operand(size_t index);  // fails and gives a sink where there is none
    RegRef source(const ast::Operand& operand, Type type);
    RegRef source(size_t index, Type type) { return source(operand(index), type); }
    RegRef dest(const ast::Operand& operand, Type type);
    RegRef dest(size_t index, Type type) { return dest(operand(index), type); }
    // A register at least as wide as `type` (ld, st, cvt); `bytes` gets its width.
    RegRef loose_source(const ast::Operand& operand, Type type, uint32_t& bytes);
    RegRef loose_dest(const ast::Operand& operand, Type type, uint32_t& bytes);
    RegRef predicate(const ast::Operand& operand);  // as a source; negation is resolved
    RegRef special(const ast::Operand& operand, Type type,
                   RegRef to);  // a special register's value in `to`; gives `to`
    RegRef predicate_dest(const ast::Operand& operand);
    uint32_t address_bytes(const ast::Operand& memory);  // width of the base register, 8 where there is none
    RegRef constant(uint64_t value, uint32_t bytes);
    RegRef predicate_constant(bool value);
    RegRef launch_constant(const LaunchConstant& constant, uint32_t bytes);
    RegRef temporary(Type type);
    RegRef carry_flag();  // of the function
    Type type_of(const ast::Operand& reg) const;

    // Emits with the guard and line of the current instruction.
    Instr& emit(Handler handler);
    void fail(const std::string& what);
    void unsupported();  // "tex.2d.v4.f32 is not supported by the emulated GPU"
    bool failed() const { return !error_.empty(); }
    std::string full_name() const;  // of the current instruction: "tex.2d.v4.f32"

    const ast::Unit& unit() const { return unit_; }
    const ast::Instruction& inst() const { return *inst_; }
    Function& function() { return out_.program.functions[function_]; }
    Program& program() { return out_.program; }
    // The last emitted Instr's imm becomes the label's place once that is known.
    void fix_target(std::string_view name);
    const ast::Label* find_label(std::string_view name, uint32_t scope) const;
    // Where a .local or .param variable lies in the function's part of local memory.
    ByteRange local_range(uint32_t variable);
    uint32_t parameter_offset(uint32_t variable);  // of an entry's parameter
    bool is_entry_parameter(uint32_t variable) const;
    uint32_t global_index(uint32_t variable);
    uint32_t add_table(const std::vector<RegRef>& registers);
    uint32_t add_targets(const std::vector<std::string_view>& labels);

private:
    struct Fixup {
        bool in_table;
        uint32_t at;     // in Program::code or ::targets
        uint32_t entry;  // in that table
        uint32_t position;
    };
    void lay_out_globals();
    void decode_function(uint32_t index);
    void lay_out_registers();
    void lay_out_local();
    void instruction(const ast::Instruction& inst);
    void check_modifiers();
    void resolve_labels();
    RegRef allocate(uint32_t bytes);
    RegRef address_of_variable(const ast::Operand& operand, uint32_t bytes);
    RegRef literal(const ast::Operand& operand, Type type);
    std::string place(uint32_t line) const;

    const ast::Unit& unit_;
    Decoded out_;
    std::vector<std::vector<uint32_t>> variables_of_;  // each function's
    uint32_t function_ = 0;
    const ast::Function* source_ = nullptr;
    const ast::Instruction* inst_ = nullptr;
    std::vector<bool> taken_;  // of the modifiers
    std::vector<RegRef> register_refs_;
    RegRef carry_flag_ = 0;
    bool has_carry_flag_ = false;
    std::unordered_map<uint32_t, ByteRange> local_ranges_;
    std::map<std::pair<uint64_t, uint32_t>, RegRef> constants_;
    std::map<std::tuple<uint32_t, bool, int64_t>, RegRef> launch_constants_;
    std::unordered_map<std::string_view, std::vector<uint32_t>> labels_;  // of the function, by name
    std::vector<uint32_t> positions_;  // where each ast instruction begins in the code
    std::vector<Fixup> fixups_;
    ast::Operand sink_;
    std::string error_;
};

// The groups, one file each.
bool decode_absent(Decoder& d);
bool decode_integer(Decoder& d);
bool decode_bits(Decoder& d);
bool decode_carry(Decoder& d);
bool decode_video(Decoder& d);
bool decode_float(Decoder& d);
bool decode_half(Decoder& d);
bool decode_compare(Decoder& d);
bool decode_select(Decoder& d);
bool decode_convert(Decoder& d);
bool decode_move(Decoder& d);
bool decode_memory(Decoder& d);
bool decode_atomic(Decoder& d);
bool decode_multimem(Decoder& d);
bool decode_collective(Decoder& d);
bool decode_barrier(Decoder& d);
bool decode_control(Decoder& d);
bool decode_stack(Decoder& d);
bool decode_async(Decoder& d);
bool decode_mbarrier(Decoder& d);
bool decode_cluster(Decoder& d);
bool decode_launch_control(Decoder& d);
bool decode_matrix(Decoder& d);
bool decode_matrix_memory(Decoder& d);
bool decode_warpgroup(Decoder& d);
bool decode_texture(Decoder& d);
bool decode_surface(Decoder& d);
bool decode_tensor_map(Decoder& d);

// Code that faults: `name` is what the emulated GPU does not have.
void emit_absent(Decoder& d, std::string name);
// mov dst, source for one register; used by several groups.
Handler move_handler(uint32_t bytes);
// dst = the frame's part of local memory + imm.
Handler local_address_handler(uint32_t bytes);
Handler special_handler(std::string_view name, Type& type);  // nullptr: no such register
Handler not_predicate_handler();

}  // namespace tnr::ptx
