// Statements: see parser.hpp.
#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/parser.hpp"

namespace tnr::ptx {

using ast::Linkage;
using ast::Operand;

void Parser::body() {
    expect('{');
    uint32_t depth = 1;
    while (token_.kind != Token::Kind::end) {
        if (accept('{')) {
            if (++depth > static_cast<uint32_t>(nesting_max)) return fail("scopes nested too deeply");
            auto& parents = unit_.functions[current_].scope_parents;
            parents.push_back(scope_ids_.back());
            scope_ids_.push_back(static_cast<uint32_t>(parents.size() - 1));
            scopes_.emplace_back();
        } else if (token_.is('}')) {
            if (--depth > 0) scopes_.pop_back(), scope_ids_.pop_back();
            advance();
            if (depth == 0) return;
        } else {
            statement();
        }
    }
    fail("the function's body has no end");
}

void Parser::statement() {
    if (accept(';')) return;
    if (accept_dotted("reg")) return registers();
    if (accept_dotted("param")) return variable(Space::param, Linkage::local);
    if (accept_dotted("local")) return variable(Space::local, Linkage::local);
    if (accept_dotted("shared")) return variable(Space::shared, Linkage::local);
    if (accept_dotted("global")) return variable(Space::global, Linkage::local);
    if (accept_dotted("const")) return variable(Space::constant, Linkage::local);
    if (accept_dotted("extern")) {
        if (!accept_dotted("shared")) return fail("only .extern .shared is supported inside a function");
        return variable(Space::shared, Linkage::external);
    }
    if (token_.is_dotted("loc") || token_.is_dotted("file")) return skip_line();
    if (accept_dotted("pragma")) return skip_to_semicolon();
    if (token_.kind == Token::Kind::word && ahead_.is(':')) {
        auto name = token_.text;
        advance(), advance();
        return labelled(name);
    }
    if (token_.kind == Token::Kind::word || token_.is('@')) return instruction();
    fail("'" + std::string(token_.kind == Token::Kind::dotted ? "." : "") + std::string(token_.text.substr(0, 40)) +
         "' is not supported here by the emulated GPU");
}

void Parser::labelled(std::string_view name) {
    auto& fn = unit_.functions[current_];
    ast::Label label{name, scope_ids_.back(), static_cast<uint32_t>(fn.body.size()), {}};
    if (accept_dotted("branchtargets")) {
        do label.targets.push_back(word("a label"));
        while (accept(',') && label.targets.size() < operands_max);
        expect(';');
    } else if (accept_dotted("callprototype")) {
        return skip_to_semicolon();  // a call copies what the function itself declares
    } else if (token_.is_dotted("calltargets")) {
        return skip_to_semicolon();
    }
    fn.labels.push_back(std::move(label));
}

// .reg .b32 %r<10>, %x;   .reg .v4 .f32 %v;
void Parser::registers() {
    uint32_t width = 1;
    if (accept_dotted("v2"))
        width = 2;
    else if (accept_dotted("v4"))
        width = 4;
    auto type = token_.kind == Token::Kind::dotted ? type_named(token_.text) : std::nullopt;
    if (!type) return fail("not a register type the emulated GPU knows");
    advance();
    do add_register(word("a register's name"), *type, width);
    while (accept(','));
    expect(';');
}

void Parser::add_register(std::string_view name, Type type, uint32_t width) {
    if (!error_.empty()) return;
    auto& all = unit_.functions[current_].registers;
    auto first = static_cast<uint32_t>(all.size());
    uint64_t count = 1;
    bool numbered = accept('<');
    if (numbered) {
        count = integer("how many registers");
        expect('>');
    }
    if (count > registers_max || all.size() + count * width > registers_max)
        return fail("more registers than the emulated GPU takes");
    if (numbered && width != 1) return fail("numbered vector registers are not supported by the emulated GPU");
    all.resize(all.size() + count * width, type);
    auto kind = numbered ? Symbol::Kind::registers : width > 1 ? Symbol::Kind::vector : Symbol::Kind::reg;
    scopes_.back()[name] = {kind, first, numbered ? static_cast<uint32_t>(count) : width};
}

void Parser::instruction() {
    ast::Instruction added;
    added.line = token_.line;
    added.scope = scope_ids_.back();
    if (accept('@')) {
        added.guard_negated = accept('!');
        auto name = word("a predicate");
        auto symbol = find(name);
        if (!symbol || symbol->kind != Symbol::Kind::reg)
            return fail("'" + std::string(name) + "' is no predicate register");
        added.guard = symbol->index;
    }
    added.line = token_.kind == Token::Kind::end ? added.line : token_.line;
    added.name = word("an instruction");
    while (token_.kind == Token::Kind::dotted) {
        added.modifiers.push_back(token_.text);
        advance();
    }
    if (!token_.is(';')) operands(added);
    expect(';');
    if (!error_.empty()) return;
    auto& body = unit_.functions[current_].body;
    if (body.size() >= instructions_max) return fail("more instructions than the emulated GPU takes");
    body.push_back(std::move(added));
}

void Parser::operands(ast::Instruction& instruction) {
    do {
        if (instruction.operands.size() >= operands_max) return fail("too many operands");
        auto first = operand(0);
        if (accept('|')) {
            Operand pair;
            pair.kind = Operand::Kind::pair;
            pair.parts.push_back(std::move(first));
            pair.parts.push_back(operand(0));
            first = std::move(pair);
        }
        instruction.operands.push_back(std::move(first));
    } while (accept(','));
}

Operand Parser::operand(int depth) {
    if (accept('!')) {
        auto inner = simple_operand(depth);
        inner.negated = true;
        return inner;
    }
    return simple_operand(depth);
}

Operand Parser::simple_operand(int depth) {
    if (depth > nesting_max) {
        fail("operands nested too deeply");
        return {};
    }
    if (accept('{')) return group('}', Operand::Kind::vector, depth + 1);
    if (accept('(')) return group(')', Operand::Kind::list, depth + 1);
    if (accept('[')) return memory_operand();
    if (accept('-')) return number(true);
    if (token_.kind == Token::Kind::word) return named(word("a name"));
    return number(false);
}

Operand Parser::group(char close, Operand::Kind kind, int depth) {
    Operand result;
    result.kind = kind;
    while (!token_.is(close) && token_.kind != Token::Kind::end) {
        if (result.parts.size() >= operands_max) {
            fail("too many operands");
            break;
        }
        result.parts.push_back(operand(depth));
        if (!accept(',')) break;
    }
    expect(close);
    return result;
}

Operand Parser::number(bool minus) {
    Operand result;
    auto flip = [&](uint64_t sign) { return static_cast<int64_t>(minus ? token_.value ^ sign : token_.value); };
    if (token_.kind == Token::Kind::integer) {
        result.kind = Operand::Kind::integer;
        result.value = static_cast<int64_t>(minus ? 0 - token_.value : token_.value);
    } else if (token_.kind == Token::Kind::real32) {
        result.kind = Operand::Kind::real32;
        result.value = flip(0x80000000u);
    } else if (token_.kind == Token::Kind::real64) {
        result.kind = Operand::Kind::real64;
        result.value = flip(uint64_t{1} << 63);
    } else {
        fail("expected an operand before '" + std::string(token_.text.substr(0, 40)) + "'");
        return result;
    }
    advance();
    return result;
}

// [%rd1], [%rd1+8], [%rd1+-4], [symbol+4], [4096], [%rd1, {%f1, %f2}]
Operand Parser::memory_operand() {
    Operand result;
    result.kind = Operand::Kind::memory;
    if (token_.kind == Token::Kind::integer || token_.is('-')) {
        result.value = constant();
    } else {
        result.parts.push_back(named(word("an address")));
        result.value = result.parts[0].kind == Operand::Kind::variable ? result.parts[0].value : 0;
        while (token_.is('+') || token_.is('-')) {
            bool minus = token_.is('-');
            advance();
            auto term = static_cast<uint64_t>(constant_term());
            auto sum = static_cast<uint64_t>(result.value);
            result.value = static_cast<int64_t>(minus ? sum - term : sum + term);
        }
    }
    if (accept(',')) result.parts.push_back(operand(1));  // coordinates
    expect(']');
    return result;
}

Operand Parser::named(std::string_view name) {
    Operand result;
    result.name = name;
    if (name == "_") return result;
    auto symbol = find(name);
    if (symbol && symbol->kind == Symbol::Kind::reg) {
        result.kind = Operand::Kind::reg;
        result.index = symbol->index;
        static constexpr std::string_view parts[] = {"b0", "b1", "b2", "b3", "h0", "h1"};
        auto* part =
            token_.kind == Token::Kind::dotted ? std::find(parts, std::end(parts), token_.text) : std::end(parts);
        if (part != std::end(parts)) {
            result.part = static_cast<uint8_t>(part - parts + 1);
            advance();
        }
    } else if (symbol && symbol->kind == Symbol::Kind::vector) {
        if (token_.kind == Token::Kind::dotted) {
            auto at = std::string_view("xyzwrgba").find(token_.text);
            if (at == std::string_view::npos || token_.text.size() != 1 || at % 4 >= symbol->count)
                fail("not an element of a vector register");
            result.kind = Operand::Kind::reg;
            result.index = symbol->index + static_cast<uint32_t>(at % 4);
            advance();
        } else {
            result.kind = Operand::Kind::vector;
            for (uint32_t i = 0; i < symbol->count; ++i) {
                result.parts.emplace_back();
                result.parts.back().kind = Operand::Kind::reg;
                result.parts.back().index = symbol->index + i;
            }
        }
    } else if (symbol && (symbol->kind == Symbol::Kind::variable || symbol->kind == Symbol::Kind::function)) {
        result.kind = symbol->kind == Symbol::Kind::function ? Operand::Kind::function : Operand::Kind::variable;
        result.index = symbol->index;
        if (result.kind == Operand::Kind::variable && (token_.is('+') || token_.is('-'))) {  // GCC writes b+-3
            accept('+');
            result.value = constant_term();
        } else if (result.kind == Operand::Kind::variable && accept('[')) {  // the address of an element
            result.value = constant() * size_of(unit_.variables[result.index].type);
            expect(']');
        }
    } else if (!name.empty() && name[0] == '%') {
        result.kind = Operand::Kind::special;
        // %tid.x: the lexer gave two tokens that lie beside each other in the text.
        if (token_.kind == Token::Kind::dotted) {
            result.name = std::string_view(name.data(), static_cast<size_t>(token_.text.end() - name.begin()));
            advance();
        }
    } else {
        result.kind = Operand::Kind::label;
    }
    return result;
}

}  // namespace tnr::ptx
