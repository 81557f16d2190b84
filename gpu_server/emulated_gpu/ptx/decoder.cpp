// See decoder.hpp. This file lays out and drives; decode_operands.cpp turns operands into registers.
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"

#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

Handler end_of_function_handler();  // ops_control.cpp

Result<Decoded> decode(const ast::Unit& unit) {
    return Decoder(unit).run();
}

Decoder::Decoder(const ast::Unit& unit) : unit_(unit) {}

Result<Decoded> Decoder::run() {
    lay_out_globals();
    out_.program.functions.resize(unit_.functions.size());
    for (size_t i = 0; i < unit_.functions.size(); ++i) {
        auto& fn = out_.program.functions[i];
        fn.name = unit_.functions[i].name;
        fn.is_entry = unit_.functions[i].is_entry;
        fn.entry_pc = ~0u;
    }
    for (auto& variable : unit_.variables)
        for (auto& relocation : variable.relocations)
            if (relocation.is_function) out_.program.functions[relocation.index].address_taken = true;
    for (uint32_t i = 0; i < unit_.functions.size() && error_.empty(); ++i)
        if (unit_.functions[i].defined) decode_function(i);
    if (!error_.empty()) return Error{Error::Kind::usage, error_};
    return std::move(out_);
}

void Decoder::lay_out_globals() {
    variables_of_.resize(unit_.functions.size());
    out_.parameters.resize(unit_.variables.size());
    for (uint32_t i = 0; i < unit_.variables.size(); ++i) {
        auto& variable = unit_.variables[i];
        if (variable.function != ast::nothing) variables_of_[variable.function].push_back(i);
        if (variable.space != Space::global && variable.space != Space::constant) continue;
        if (variable.linkage == ast::Linkage::external) continue;  // declared and never used, or link() had refused it
        out_.global_of[i] = static_cast<uint32_t>(out_.globals.size());
        out_.globals.push_back(i);
    }
}

RegRef Decoder::allocate(uint32_t bytes) {
    auto& fn = function();
    // Vector loads of 32 lanes like to start at a multiple of their size; predicates need 4 bytes.
    uint32_t align = bytes >= 64 ? 64 : 4;
    uint32_t at = (fn.frame_bytes + align - 1) & ~(align - 1);
    if (at > frame_bytes_max) {
        fail("the function needs more registers than the emulated GPU takes");
        return base_frame;
    }
    fn.frame_bytes = at + bytes;
    return at | base_frame;
}

void Decoder::lay_out_registers() {
    register_refs_.clear();
    has_carry_flag_ = false;
    for (auto type : source_->registers)
        if (type == Type::pred)
            register_refs_.push_back(allocate(4));
        else
            register_refs_.push_back(0);
    for (size_t i = 0; i < register_refs_.size(); ++i)
        if (source_->registers[i] != Type::pred)
            register_refs_[i] = allocate(warp_lanes * size_of(source_->registers[i]));
}

// Parameters, results and .local variables lie one after the other; the arguments of calls come last, and
// those of different calls overlay each other: they live no longer than their { }.
void Decoder::lay_out_local() {
    local_ranges_.clear();
    auto& fn = function();
    uint64_t used = 0, entry_bytes = 0, arguments = 0;
    auto place = [&](uint64_t& cursor, uint32_t index) {
        auto& variable = unit_.variables[index];
        uint64_t align = std::max<uint32_t>(variable.align, 1);
        cursor = (cursor + align - 1) & ~(align - 1);
        ByteRange range{static_cast<uint32_t>(cursor), static_cast<uint32_t>(variable.size)};
        cursor += variable.size;
        if (cursor > local_variable_bytes_max) fail("the function needs more local memory than the emulated GPU has");
        return range;
    };
    for (auto index : source_->parameters) {
        if (fn.is_entry) {
            out_.parameters[index] = place(entry_bytes, index);
        } else {
            fn.parameters.push_back(local_ranges_[index] = place(used, index));
        }
    }
    fn.parameter_bytes = static_cast<uint32_t>(entry_bytes);
    for (auto index : source_->returns) fn.returns.push_back(local_ranges_[index] = place(used, index));
    for (auto index : variables_of_[function_])
        if (unit_.variables[index].space == Space::local) local_ranges_[index] = place(used, index);
    used = (used + 15) & ~uint64_t{15};
    std::unordered_map<uint32_t, uint64_t> cursors;
    uint64_t base = used;
    for (auto index : variables_of_[function_]) {
        auto& variable = unit_.variables[index];
        if (variable.space != Space::param || local_ranges_.count(index) || out_.parameters[index].size) continue;
        bool is_parameter =
            std::find(source_->parameters.begin(), source_->parameters.end(), index) != source_->parameters.end();
        if (is_parameter) continue;
        auto parent = source_->scope_parents[variable.scope];
        bool overlays = variable.scope != 0 && parent == 0;
        auto& cursor = overlays ? cursors.try_emplace(variable.scope, base).first->second : arguments;
        if (!overlays && arguments == 0) arguments = used;
        local_ranges_[index] = place(cursor, index);
        if (!overlays) used = std::max(used, cursor);
    }
    for (auto& [scope, cursor] : cursors) used = std::max(used, cursor);
    fn.local_bytes = static_cast<uint32_t>((used + 15) & ~uint64_t{15});
}

void Decoder::decode_function(uint32_t index) {
    function_ = index;
    source_ = &unit_.functions[index];
    positions_.clear();
    fixups_.clear();
    labels_.clear();
    for (uint32_t k = 0; k < source_->labels.size(); ++k) labels_[source_->labels[k].name].push_back(k);
    lay_out_registers();
    lay_out_local();
    auto& code = out_.program.code;
    function().entry_pc = static_cast<uint32_t>(code.size());
    for (auto& inst : source_->body) {
        positions_.push_back(static_cast<uint32_t>(code.size()));
        instruction(inst);
        if (failed()) return;
    }
    positions_.push_back(static_cast<uint32_t>(code.size()));
    ast::Instruction end;
    end.line = source_->body.empty() ? source_->line : source_->body.back().line;
    inst_ = &end;
    emit(end_of_function_handler());
    inst_ = nullptr;
    resolve_labels();
}

void Decoder::instruction(const ast::Instruction& inst) {
    static constexpr bool (*groups[])(Decoder&) = {
        decode_move,           decode_integer, decode_bits,      decode_carry,    decode_float,      decode_half,
        decode_compare,        decode_select,  decode_convert,   decode_memory,   decode_control,    decode_atomic,
        decode_collective,     decode_barrier, decode_async,     decode_mbarrier, decode_cluster,    decode_matrix,
        decode_matrix_memory,  decode_texture, decode_surface,   decode_video,    decode_tensor_map, decode_multimem,
        decode_launch_control, decode_stack,   decode_warpgroup, decode_absent};
    inst_ = &inst;
    taken_.assign(inst.modifiers.size(), false);
    if (inst.guard != ast::nothing && source_->registers[inst.guard] != Type::pred)
        return fail("the guard is no predicate register");
    for (auto group : groups) {
        if (group(*this)) return failed() ? void() : check_modifiers();
        if (failed()) return;
    }
    unsupported();
}

void Decoder::check_modifiers() {
    for (bool taken : taken_)
        if (!taken) return unsupported();
}

void Decoder::resolve_labels() {
    for (auto& fixup : fixups_) {
        auto pc = positions_[fixup.position];
        if (fixup.in_table)
            out_.program.targets[fixup.at][fixup.entry] = pc;
        else
            out_.program.code[fixup.at].imm = pc;
    }
}

const ast::Label* Decoder::find_label(std::string_view name, uint32_t scope) const {
    auto known = labels_.find(name);
    if (known == labels_.end()) return nullptr;
    for (;; scope = source_->scope_parents[scope]) {
        for (auto index : known->second)
            if (source_->labels[index].scope == scope) return &source_->labels[index];
        if (scope == 0) return nullptr;
    }
}

void Decoder::fix_target(std::string_view name) {
    auto* label = find_label(name, inst_->scope);
    if (!label) return fail("there is no label '" + std::string(name) + "'");
    fixups_.push_back({false, static_cast<uint32_t>(out_.program.code.size() - 1), 0, label->position});
}

uint32_t Decoder::add_targets(const std::vector<std::string_view>& labels) {
    auto at = static_cast<uint32_t>(out_.program.targets.size());
    out_.program.targets.emplace_back(labels.size());
    for (uint32_t i = 0; i < labels.size(); ++i) {
        auto* label = find_label(labels[i], inst_->scope);
        if (!label) {
            fail("there is no label '" + std::string(labels[i]) + "'");
            return at;
        }
        fixups_.push_back({true, at, i, label->position});
    }
    return at;
}

Instr& Decoder::emit(Handler handler) {
    auto& instr = out_.program.code.emplace_back();
    instr.run = handler;
    if (inst_->guard != ast::nothing) {
        instr.guard = register_refs_[inst_->guard];
        instr.guard_kind = inst_->guard_negated ? Guard::if_false : Guard::if_true;
    }
    out_.program.lines.push_back(inst_->line);
    return instr;
}

std::string Decoder::full_name() const {
    std::string name(inst_->name);
    for (auto modifier : inst_->modifiers) name += "." + std::string(modifier);
    return name;
}

std::string Decoder::place(uint32_t line) const {
    std::string unit;
    if (source_ && !unit_.sources.empty()) unit = std::string(unit_.sources[source_->source]) + ", ";
    return unit + "line " + std::to_string(line) + ": ";
}

void Decoder::fail(const std::string& what) {
    if (!error_.empty()) return;
    auto line = inst_ ? inst_->line : source_ ? source_->line : 0;
    error_ = place(line) + (inst_ ? full_name() + ": " : "") + what;
}

void Decoder::unsupported() {
    if (error_.empty()) error_ = place(inst_->line) + full_name() + " is not supported by the emulated GPU";
}

}  // namespace tnr::ptx
