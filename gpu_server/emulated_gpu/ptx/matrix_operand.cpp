// See matrix_operand.hpp.
#include "gpu_server/emulated_gpu/ptx/matrix_operand.hpp"

#include <string>

namespace tnr::ptx {

matrix::Shape take_shape(Decoder& d) {
    for (auto word : d.inst().modifiers) {
        auto shape = matrix::shape_named(word);
        if (shape.m && d.take(word)) return shape;
    }
    d.unsupported();
    return {};
}

std::vector<matrix::Element> take_elements(Decoder& d) {
    std::vector<matrix::Element> found;
    for (auto word : d.inst().modifiers) {
        auto element = matrix::element_named(word);
        if (element != matrix::Element::none && d.take(word)) found.push_back(element);
    }
    return found;
}

uint32_t register_list(Decoder& d, const ast::Operand& operand, uint32_t count, uint32_t bits, Use use) {
    bool braces = operand.kind == ast::Operand::Kind::vector;
    size_t given = braces ? operand.parts.size() : 1;
    if (given != count) {
        d.fail("expected " + std::to_string(count) + " registers, not " + std::to_string(given));
        return 0;
    }
    Type type = bits == 64 ? Type::b64 : Type::b32;
    std::vector<RegRef> registers;
    for (size_t i = 0; i < given; ++i) {
        auto& part = braces ? operand.parts[i] : operand;
        registers.push_back(use == Use::source ? d.source(part, type) : d.dest(part, type));
    }
    return d.add_table(registers);
}

}  // namespace tnr::ptx
