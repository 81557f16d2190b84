// See memory_operand.hpp.
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"

#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

constexpr uint64_t widen_word(uint32_t value) {
    return value;
}

}  // namespace

Space take_space(Decoder& d) {
    if (d.take("global")) return Space::global;
    if (d.take("shared") || d.take("shared::cta") || d.take("shared::cluster")) return Space::shared;
    if (d.take("local")) return Space::local;
    if (d.take("const")) return Space::constant;
    if (d.take("param") || d.take("param::entry") || d.take("param::func")) return Space::param;
    return Space::generic;
}

Address decode_address(Decoder& d, const ast::Operand& memory, Space space) {
    Address result;
    result.offset = memory.value;
    uint32_t bytes = d.address_bytes(memory);
    if (d.failed()) return result;
    const ast::Operand* base = memory.parts.empty() ? nullptr : &memory.parts[0];
    bool variable = base && base->kind == ast::Operand::Kind::variable;
    auto variable_space = variable ? d.unit().variables[base->index].space : Space::generic;
    if (variable && (variable_space == Space::local || variable_space == Space::param)) {
        if (space != variable_space) {
            d.fail("the variable is not in the space that the instruction names");
        } else if (d.is_entry_parameter(base->index)) {
            result.is_entry_parameter = true;
            result.where = Where::param;
            result.offset += d.parameter_offset(base->index);
        } else {
            result.where = Where::frame;
            result.offset += d.local_range(base->index).offset;
        }
        result.base = d.constant(0, 8);
        return result;
    }
    switch (space) {
        case Space::global:
        case Space::constant:
            result.where = Where::global;
            break;
        case Space::shared:
            result.where = Where::shared;
            break;
        case Space::local:
            result.where = Where::local;
            break;
        case Space::param:
            result.where = d.function().is_entry ? Where::param : Where::local;
            break;
        default:
            result.where = Where::generic;
            break;
    }
    if (!base) {
        result.base = d.constant(0, 8);
    } else if (variable) {
        bool shared = variable_space == Space::shared;
        // A shared variable's address is one in the window of shared memory only.
        if (shared != (space == Space::shared)) d.fail("the variable is not in the space that the instruction names");
        ast::Operand address = *base;
        address.value = 0;
        result.base = d.source(address, Type::u64);
    } else if (bytes == 4 && space == Space::shared) {
        result.where = Where::shared32;
        result.base = d.source(*base, Type::u32);
    } else if (bytes == 4) {
        auto narrow = d.source(*base, Type::u32);
        result.base = d.temporary(Type::u64);
        auto& instr = d.emit(unary<uint64_t, uint32_t, widen_word>());
        instr.dst = result.base;
        instr.a = narrow;
    } else {
        result.base = d.source(*base, Type::u64);
    }
    return result;
}

bool take_ordering(Decoder& d) {
    bool strong = d.take("mmio");
    strong |= !d.take_any_of({"volatile", "relaxed", "acquire", "release", "acq_rel", "sc"}).empty();
    d.take_any_of({"cta", "cluster", "gpu", "sys"});
    if (d.take("weak")) strong = false;
    return strong;
}

void take_cache_hints(Decoder& d) {
    while (!d.take_any_of({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"}).empty()) {
    }
    while (d.take_prefix("L1::") || d.take_prefix("L2::")) {
    }
}

}  // namespace tnr::ptx
