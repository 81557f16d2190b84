// Operands to registers: see decoder.hpp. Every register is checked to be as wide as the handler will
// take it to be, so handlers need not check anything.
#include <algorithm>
#include <bit>
#include <utility>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

using Kind = ast::Operand::Kind;

bool Decoder::take(std::string_view modifier) {
    for (size_t i = 0; i < taken_.size(); ++i)
        if (!taken_[i] && inst_->modifiers[i] == modifier) return taken_[i] = true;
    return false;
}

bool Decoder::take_prefix(std::string_view prefix) {
    for (size_t i = 0; i < taken_.size(); ++i)
        if (!taken_[i] && inst_->modifiers[i].substr(0, prefix.size()) == prefix) return taken_[i] = true;
    return false;
}

std::string_view Decoder::take_any_of(std::initializer_list<std::string_view> words) {
    for (auto word : words)
        if (take(word)) return word;
    return {};
}

Type Decoder::take_type() {
    for (size_t i = 0; i < taken_.size(); ++i) {
        auto type = taken_[i] ? std::nullopt : type_named(inst_->modifiers[i]);
        if (!type) continue;
        taken_[i] = true;
        return *type;
    }
    return Type::none;
}

Type Decoder::last_type() const {
    auto last = Type::none;
    for (auto word : inst_->modifiers) last = type_named(word).value_or(last);
    return last;
}

const ast::Operand& Decoder::operand(size_t index) {
    if (index < inst_->operands.size()) return inst_->operands[index];
    fail("an operand is missing");
    return sink_;
}

Type Decoder::type_of(const ast::Operand& reg) const {
    return reg.kind == Kind::reg ? source_->registers[reg.index] : Type::none;
}

RegRef Decoder::constant(uint64_t value, uint32_t bytes) {
    if (bytes > sizeof value) return fail("there are no constants of 128 bits"), 0;
    if (bytes < 8) value &= (uint64_t{1} << (8 * bytes)) - 1;
    auto [found, added] = constants_.try_emplace({value, bytes}, 0);
    if (!added) return found->second;
    auto& pool = out_.program.constants;
    size_t at = (pool.size() + 63) & ~size_t{63};
    pool.resize(at + warp_lanes * bytes);
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) std::memcpy(&pool[at + lane * bytes], &value, bytes);
    return found->second = static_cast<RegRef>(at) | base_constants;
}

RegRef Decoder::predicate_constant(bool value) {
    auto ref = constant(value ? ~uint64_t{0} : 0, 4);  // lane 0's word is the whole mask
    return ref;
}

RegRef Decoder::launch_constant(const LaunchConstant& constant, uint32_t bytes) {
    if (bytes != 4 && bytes != 8) fail("an address needs a register of 32 or 64 bits");
    auto [found, added] = launch_constants_.try_emplace({constant.variable, constant.is_shared, constant.addend}, 0);
    if (added) {
        auto& all = out_.program.launch_constants;
        found->second = static_cast<RegRef>(all.size() * warp_lanes * 12) | base_relocated;
        all.push_back(constant);
    }
    return found->second + (bytes == 4 ? warp_lanes * 8 : 0);  // 32 x 64 bits, then the low halves once more
}

RegRef Decoder::temporary(Type type) {
    return allocate(type == Type::pred ? 4 : warp_lanes * size_of(type));
}

RegRef Decoder::carry_flag() {
    if (!std::exchange(has_carry_flag_, true)) carry_flag_ = temporary(Type::pred);
    return carry_flag_;
}

uint32_t Decoder::global_index(uint32_t variable) {
    auto found = out_.global_of.find(variable);
    return found == out_.global_of.end() ? ~0u : found->second;
}

bool Decoder::is_entry_parameter(uint32_t variable) const {
    return source_->is_entry && unit_.variables[variable].space == Space::param && !local_ranges_.count(variable);
}

uint32_t Decoder::parameter_offset(uint32_t variable) {
    return out_.parameters[variable].offset;
}

ByteRange Decoder::local_range(uint32_t variable) {
    auto found = local_ranges_.find(variable);
    if (found != local_ranges_.end()) return found->second;
    fail("'" + std::string(unit_.variables[variable].name) + "' is not in local memory");
    return {};
}

uint32_t Decoder::add_table(const std::vector<RegRef>& registers) {
    auto& all = out_.program.registers;
    auto at = static_cast<uint32_t>(all.size());
    all.insert(all.end(), registers.begin(), registers.end());
    return at;
}

RegRef Decoder::address_of_variable(const ast::Operand& operand, uint32_t bytes) {
    auto& variable = unit_.variables[operand.index];
    switch (variable.space) {
        case Space::global:
        case Space::constant:
            return launch_constant({false, global_index(operand.index), operand.value}, bytes);
        case Space::shared: {
            auto& used = function().shared_variables;
            if (std::find(used.begin(), used.end(), operand.index) == used.end()) used.push_back(operand.index);
            return launch_constant({true, operand.index, operand.value}, bytes);
        }
        default:
            break;
    }
    if (bytes != 4 && bytes != 8) {
        fail("an address needs a register of 32 or 64 bits");
        return 0;
    }
    if (is_entry_parameter(operand.index))
        return constant(static_cast<uint64_t>(operand.value) + parameter_offset(operand.index), bytes);
    auto offset = local_range(operand.index).offset + operand.value;
    auto temp = temporary(bytes == 8 ? Type::u64 : Type::u32);
    auto& instr = emit(local_address_handler(bytes));
    instr.dst = temp;
    instr.imm = offset;
    return temp;
}

RegRef Decoder::literal(const ast::Operand& operand, Type type) {
    auto bits = static_cast<uint64_t>(operand.value);
    bool wide = type == Type::f64, narrow = type == Type::f32 || type == Type::tf32;
    if (operand.kind == Kind::real32 && wide) {
        bits = std::bit_cast<uint64_t>(double{std::bit_cast<float>(static_cast<uint32_t>(bits))});
    } else if (operand.kind == Kind::real64 && narrow) {
        bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    } else if (operand.kind == Kind::integer && wide) {
        bits = std::bit_cast<uint64_t>(static_cast<double>(operand.value));
    } else if (operand.kind == Kind::integer && narrow) {
        bits = std::bit_cast<uint32_t>(static_cast<float>(operand.value));
    }
    return constant(bits, size_of(type));
}

RegRef Decoder::source(const ast::Operand& operand, Type type) {
    if (type == Type::pred) return predicate(operand);
    uint32_t bytes = size_of(type);
    if (operand.negated) fail("`!` is for predicates only");
    switch (operand.kind) {
        case Kind::reg: {
            auto actual = type_of(operand);
            if (actual == Type::pred || size_of(actual) != bytes) fail("an operand's register does not fit the type");
            return register_refs_[operand.index];
        }
        case Kind::integer:
        case Kind::real32:
        case Kind::real64:
            return literal(operand, type);
        case Kind::variable:
            return address_of_variable(operand, bytes);
        case Kind::function:
            out_.program.functions[operand.index].address_taken = true;
            return constant(code_window | operand.index, bytes);
        case Kind::special:
            return special(operand, type, temporary(type));
        case Kind::label:
            if (operand.name == "WARP_SZ") return constant(warp_lanes, bytes);
            fail("'" + std::string(operand.name) + "' is not declared");
            return 0;
        default:
            fail("an operand is not a register or a constant");
            return 0;
    }
}

RegRef Decoder::special(const ast::Operand& operand, Type type, RegRef to) {
    auto actual = Type::none;
    auto handler = special_handler(operand.name, actual);
    if (!handler) return fail("there is no register '" + std::string(operand.name) + "'"), 0;
    if (size_of(actual) != size_of(type)) return fail("an operand's register does not fit the type"), 0;
    program().uses_reserved_shared |= operand.name.starts_with("%reserved_smem_");
    emit(handler).dst = to;
    return to;
}

RegRef Decoder::dest(const ast::Operand& operand, Type type) {
    if (type == Type::pred) return predicate_dest(operand);
    if (operand.kind == Kind::sink) return temporary(type);
    auto actual = type_of(operand);
    if (actual == Type::none || actual == Type::pred || size_of(actual) != size_of(type))
        fail("the result's register does not fit the type");
    return failed() ? 0 : register_refs_[operand.index];
}

RegRef Decoder::loose_source(const ast::Operand& operand, Type type, uint32_t& bytes) {
    bytes = size_of(type);
    auto actual = type_of(operand);
    if (actual == Type::none) return source(operand, type);
    if (actual == Type::pred || size_of(actual) < bytes) fail("an operand's register does not fit the type");
    bytes = size_of(actual);
    return register_refs_[operand.index];
}

RegRef Decoder::loose_dest(const ast::Operand& operand, Type type, uint32_t& bytes) {
    bytes = size_of(type);
    if (operand.kind == Kind::sink) return temporary(type);
    auto actual = type_of(operand);
    if (actual == Type::none || actual == Type::pred || size_of(actual) < bytes)
        fail("the result's register does not fit the type");
    if (failed()) return 0;
    bytes = size_of(actual);
    return register_refs_[operand.index];
}

RegRef Decoder::predicate(const ast::Operand& operand) {
    if (operand.kind == Kind::integer) return predicate_constant((operand.value != 0) != operand.negated);
    bool is_special = operand.kind == Kind::special;
    if (!is_special && type_of(operand) != Type::pred) return fail("expected a predicate"), 0;
    auto ref = is_special ? special(operand, Type::pred, temporary(Type::pred)) : register_refs_[operand.index];
    if (!operand.negated) return ref;
    auto temp = temporary(Type::pred);
    auto& instr = emit(not_predicate_handler());
    instr.dst = temp;
    instr.a = ref;
    return temp;
}

RegRef Decoder::predicate_dest(const ast::Operand& operand) {
    if (operand.kind == Kind::sink) return temporary(Type::pred);
    if (type_of(operand) == Type::pred && !operand.negated) return register_refs_[operand.index];
    fail("expected a predicate register for the result");
    return 0;
}

uint32_t Decoder::address_bytes(const ast::Operand& memory) {
    if (memory.kind != Kind::memory) {
        fail("expected an address in [ ]");
        return 8;
    }
    if (memory.parts.size() > 1) fail("only textures and surfaces have coordinates");
    if (memory.parts.empty() || memory.parts[0].kind != Kind::reg) return 8;
    auto type = type_of(memory.parts[0]);
    if (type != Type::pred && (size_of(type) == 4 || size_of(type) == 8)) return size_of(type);
    fail("an address register has 32 or 64 bits");
    return 8;
}

}  // namespace tnr::ptx
