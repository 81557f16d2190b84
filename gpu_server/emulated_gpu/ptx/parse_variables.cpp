// Variables and their initial values: see parser.hpp.
#include <bit>

#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/parser.hpp"

namespace tnr::ptx {

using ast::Linkage;

// .param .align 8 .b8 name[16], .global .u32 a, b = 3; .param .u64 %P<2>;
void Parser::variable(Space space, Linkage linkage) {
    declarators(space, linkage, false);
    expect(';');
}

void Parser::declarators(Space space, Linkage linkage, bool parameter) {
    uint32_t align = 0, width = 1;
    bool managed = false;
    auto type = Type::none;
    auto reference = Reference::none;
    while (token_.kind == Token::Kind::dotted) {
        if (accept_dotted("align")) {
            auto value = integer("an alignment");
            if (value == 0 || value > align_max || !std::has_single_bit(value)) return fail("not an alignment");
            align = static_cast<uint32_t>(value);
            continue;
        }
        if (accept_dotted("attribute")) {  // (.managed), (.unified(a, b)), or both
            expect('(');
            for (int depth = 1; depth > 0 && error_.empty();) {
                managed |= token_.text == "managed";
                depth += token_.is('(') ? 1 : token_.is(')') ? -1 : 0;
                if (token_.kind == Token::Kind::end) return fail("expected )");
                advance();
            }
            continue;
        }
        if (space == Space::global && (token_.text == "texref" || token_.text == "surfref")) {
            reference = token_.text == "texref" ? Reference::texture : Reference::surface;
            type = Type::b64;
        } else if (token_.text == "v2" || token_.text == "v4") {
            width = token_.text == "v2" ? 2 : 4;
        } else if (token_.text == "ptr" || token_.text == "global" || token_.text == "const" ||
                   token_.text == "shared" || token_.text == "local" || token_.text == "generic" ||
                   token_.text == "managed" || token_.text == "unified") {
            // .ptr .global .align 16: what a pointer parameter points to; the alignment is not the parameter's.
            bool pointer = token_.text == "ptr";
            advance();
            if (pointer && token_.kind == Token::Kind::dotted && token_.text != "align") advance();
            if (pointer && accept_dotted("align")) integer("an alignment");
            continue;
        } else {
            auto named = type_named(token_.text);
            if (!named || size_of(*named) == 0)
                return fail("." + std::string(token_.text) + " is not supported by the emulated GPU");
            type = *named;
        }
        advance();
    }
    if (type == Type::none) return fail("expected a type");
    do {
        ast::Variable added;
        added.line = token_.line;
        added.name = word("a variable's name");
        added.space = space;
        added.type = type;
        added.linkage = linkage;
        added.managed = managed && space == Space::global;
        added.reference = reference;
        added.function = current_;
        added.scope = current_ == ast::nothing ? 0 : scope_ids_.back();
        uint64_t element = uint64_t{size_of(type)} * width;
        added.align = align ? align : static_cast<uint32_t>(element);
        uint64_t count = 1;
        bool numbered = space == Space::param && !parameter && accept('<');
        if (numbered) {
            count = integer("how many variables");
            expect('>');
        }
        array_size(added, element);
        if (accept('=')) initialiser(added);
        if (!error_.empty()) return;
        auto index = static_cast<uint32_t>(unit_.variables.size());
        if (count > variables_max - index) return fail("more variables than the emulated GPU takes");
        auto name = added.name;
        unit_.variables.resize(index + count, added);
        // `.extern` and the definition may both appear; the later one wins.
        auto kind = numbered ? Symbol::Kind::variables : Symbol::Kind::variable;
        scopes_.back()[name] = {kind, index, static_cast<uint32_t>(count)};
        if (parameter) return;
    } while (accept(','));
}

void Parser::array_size(ast::Variable& variable, uint64_t element) {
    uint64_t size = element;
    while (accept('[')) {
        if (token_.is(']')) {  // extern shared, or counted by its initialiser
            size = 0;
        } else {
            auto count = static_cast<uint64_t>(constant());
            if (count > variable_bytes_max / std::max<uint64_t>(size, 1))
                return fail("an array larger than the emulated GPU takes");
            size *= count;
        }
        expect(']');
    }
    variable.size = size;
    uint64_t limit = variable.space == Space::global ? variable_bytes_max : local_variable_bytes_max;
    if (size > limit) fail("a variable larger than the emulated GPU takes");
    if (size == 0 && variable.linkage != Linkage::external && variable.space == Space::shared)
        fail("a shared array without a size");
}

void Parser::initialiser(ast::Variable& variable) {
    if (variable.space != Space::global && variable.space != Space::constant)
        return fail("only .global and .const variables have initial values");
    uint64_t offset = 0;
    bool counted = variable.size == 0;
    if (counted) variable.size = variable_bytes_max;
    if (token_.is('{'))
        initial_list(variable, offset, 0);
    else
        initial_value(variable, 0), offset = size_of(variable.type);
    if (counted) variable.size = offset;
}

void Parser::initial_list(ast::Variable& variable, uint64_t& offset, int depth) {
    if (depth > nesting_max) return fail("lists nested too deeply");
    expect('{');
    while (!token_.is('}') && token_.kind != Token::Kind::end) {
        if (token_.is('{')) {
            initial_list(variable, offset, depth + 1);
        } else {
            initial_value(variable, offset);
            offset += size_of(variable.type);
        }
        if (!accept(',')) break;
    }
    expect('}');
}

// 3, -1.5, symbol+8, generic(symbol), 0xff00(symbol)
void Parser::initial_value(ast::Variable& variable, uint64_t offset) {
    uint32_t bytes = size_of(variable.type);
    if (offset + bytes > variable.size) return fail("more initial values than the variable has room for");
    ast::Relocation relocation{offset, bytes, 0, false, 0, 0};
    uint64_t value = 0;
    bool symbol = false;
    auto take_symbol = [&] {
        auto name = word("a symbol");
        auto found = find(name);
        if (!found) return fail("'" + std::string(name) + "' is not declared");
        symbol = true;
        relocation.is_function = found->kind == Symbol::Kind::function;
        relocation.index = found->index;
        if (relocation.is_function) return;
        auto space = unit_.variables[found->index].space;
        if (found->kind != Symbol::Kind::variable || (space != Space::global && space != Space::constant))
            fail("'" + std::string(name) + "' has no constant address");
    };
    if (token_.kind == Token::Kind::integer && ahead_.is('(')) {
        uint64_t mask = token_.value;
        advance(), advance();
        take_symbol();
        expect(')');
        relocation.shift = mask ? static_cast<uint32_t>(std::countr_zero(mask)) : 0;
    } else if (token_.is_word("generic") && ahead_.is('(')) {
        advance(), advance();
        take_symbol();
        expect(')');
    } else if (token_.kind == Token::Kind::word) {
        take_symbol();
    } else {
        bool minus = token_.is('-') && (ahead_.kind == Token::Kind::real32 || ahead_.kind == Token::Kind::real64);
        if (minus) advance();
        if (token_.kind == Token::Kind::real32 || token_.kind == Token::Kind::real64) {
            bool single = token_.kind == Token::Kind::real32;
            value = token_.value;
            if (minus) value ^= single ? 0x80000000u : uint64_t{1} << 63;
            if (single && bytes == 8)
                value = std::bit_cast<uint64_t>(double{std::bit_cast<float>(static_cast<uint32_t>(value))});
            if (!single && bytes == 4)
                value = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(value)));
            advance();
        } else {
            value = static_cast<uint64_t>(constant());
        }
    }
    if (symbol) {
        if (token_.is('+') || token_.is('-')) relocation.addend = constant();
        variable.relocations.push_back(relocation);
        return;
    }
    if (!error_.empty() || value == 0) return;
    if (offset + bytes > variable.initial.size()) variable.initial.resize(offset + bytes);
    for (uint32_t i = 0; i < bytes && i < 8; ++i) variable.initial[offset + i] = static_cast<uint8_t>(value >> (8 * i));
}

// A sum of products: all that compilers write.
int64_t Parser::constant() {
    auto sum = static_cast<uint64_t>(token_.is('+') ? 0 : constant_term());
    while (token_.is('+') || token_.is('-')) {
        bool minus = token_.is('-');
        advance();
        auto term = static_cast<uint64_t>(constant_term());
        sum = minus ? sum - term : sum + term;
    }
    return static_cast<int64_t>(sum);
}

int64_t Parser::constant_term() {
    bool minus = accept('-');
    auto value = integer("a number");
    while (accept('*')) value *= integer("a number");
    return static_cast<int64_t>(minus ? 0 - value : value);
}

}  // namespace tnr::ptx
