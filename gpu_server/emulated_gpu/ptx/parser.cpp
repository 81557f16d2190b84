// The module, its directives and its functions: see parser.hpp.
#include "gpu_server/emulated_gpu/ptx/parser.hpp"

#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/limits.hpp"

namespace tnr::ptx {

using ast::Linkage;

Result<ast::Unit> parse(std::string_view text) {
    if (text.size() > text_bytes_max) return Error{Error::Kind::usage, "line 1: the PTX text is longer than 64 MiB"};
    while (!text.empty() && text.back() == '\0') text.remove_suffix(1);  // drivers are given C strings
    return Parser(text).unit();
}

void Parser::advance() {
    if (!error_.empty()) {
        token_ = Token{};
        return;
    }
    token_ = ahead_;
    ahead_ = lexer_.next();
    if (token_.kind == Token::Kind::bad) fail("'" + std::string(token_.text.substr(0, 40)) + "' is not PTX");
}

void Parser::fail(const std::string& what) {
    fail_at(token_.line, what);
}

void Parser::fail_at(uint32_t line, const std::string& what) {
    if (error_.empty()) error_ = "line " + std::to_string(line) + ": " + what;
    token_ = Token{};
}

bool Parser::accept(char c) {
    if (!token_.is(c)) return false;
    advance();
    return true;
}

bool Parser::accept_dotted(std::string_view word) {
    if (!token_.is_dotted(word)) return false;
    advance();
    return true;
}

void Parser::expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "' before '" + std::string(token_.text.substr(0, 40)) + "'");
}

std::string_view Parser::word(const char* what) {
    if (token_.kind != Token::Kind::word) fail(std::string("expected ") + what);
    auto text = token_.text;
    advance();
    return text;
}

uint64_t Parser::integer(const char* what) {
    if (token_.kind != Token::Kind::integer) fail(std::string("expected ") + what);
    auto value = token_.value;
    advance();
    return value;
}

// .loc and .file have no semicolon: they end with their line.
void Parser::skip_line() {
    uint32_t line = token_.line;
    while (token_.kind != Token::Kind::end && token_.line == line) advance();
}

void Parser::skip_to_semicolon() {
    while (token_.kind != Token::Kind::end && !token_.is(';')) advance();
    expect(';');
}

void Parser::skip_braces() {
    expect('{');
    for (uint32_t depth = 1; depth > 0 && token_.kind != Token::Kind::end; advance()) {
        if (token_.is('{')) ++depth;
        if (token_.is('}')) --depth;
    }
}

Result<ast::Unit> Parser::unit() {
    header();
    while (token_.kind != Token::Kind::end) directive();
    if (!error_.empty()) return Error{Error::Kind::usage, error_};
    return std::move(unit_);
}

void Parser::header() {
    if (!accept_dotted("version")) return fail("a PTX module begins with .version");
    advance();
    while (token_.kind != Token::Kind::end) {
        if (accept_dotted("target")) {
            auto name = word("a target such as sm_80");
            if (name.substr(0, 3) != "sm_") return fail("'" + std::string(name) + "' is no target such as sm_80");
            for (char c : name.substr(3, 3))
                if (c >= '0' && c <= '9') unit_.target_sm = unit_.target_sm * 10 + static_cast<uint32_t>(c - '0');
            while (accept(',')) word("a target option");
        } else if (accept_dotted("address_size")) {
            uint32_t line = token_.line;
            if (integer("64") != 64) return fail_at(line, ".address_size 32 is not supported by the emulated GPU");
        } else {
            break;
        }
    }
    if (unit_.target_sm == 0) fail("a PTX module names its .target");
}

Linkage Parser::linkage() {
    static constexpr std::pair<std::string_view, Linkage> words[] = {{"extern", Linkage::external},
                                                                     {"visible", Linkage::visible},
                                                                     {"weak", Linkage::weak},
                                                                     {"common", Linkage::common}};
    auto found = Linkage::local;
    for (auto [word, meaning] : words)
        if (accept_dotted(word)) found = meaning;
    return found;
}

void Parser::directive() {
    auto seen = linkage();
    if (accept_dotted("entry")) return function(true, seen);
    if (accept_dotted("func")) return function(false, seen);
    if (accept_dotted("global")) return variable(Space::global, seen);
    if (accept_dotted("const")) return variable(Space::constant, seen);
    if (accept_dotted("shared")) return variable(Space::shared, seen);
    if (token_.is_dotted("file") || token_.is_dotted("loc")) return skip_line();
    if (accept_dotted("section")) {
        advance();
        return skip_braces();
    }
    if (accept_dotted("pragma")) return skip_to_semicolon();
    if (accept_dotted("alias")) return fail(".alias is not supported by the emulated GPU");
    if (token_.is('@')) return skip_line();  // @@DWARF of old compilers
    if (accept(';')) return;
    fail("'" + std::string(token_.kind == Token::Kind::dotted ? "." : "") + std::string(token_.text.substr(0, 40)) +
         "' is not supported here by the emulated GPU");
}

uint32_t Parser::declare_function(std::string_view name, bool is_entry) {
    auto known = scopes_[0].find(name);
    if (known != scopes_[0].end()) {
        if (known->second.kind != Symbol::Kind::function) {
            fail("'" + std::string(name) + "' is declared twice");
            return 0;
        }
        return known->second.index;
    }
    auto index = static_cast<uint32_t>(unit_.functions.size());
    if (index >= functions_max) fail("more functions than the emulated GPU takes");
    auto& added = unit_.functions.emplace_back();
    added.name = name;
    added.is_entry = is_entry;
    scopes_[0][name] = {Symbol::Kind::function, index};
    return index;
}

void Parser::function(bool is_entry, Linkage linkage) {
    uint32_t line = token_.line;
    scopes_.emplace_back();  // parameters belong to the body's outermost scope
    std::vector<uint32_t> returns, takes;
    if (!is_entry && token_.is('(')) parameters(returns);
    auto name = word("a function's name");
    if (!error_.empty()) return;
    current_ = declare_function(name, is_entry);
    if (token_.is('(')) parameters(takes);
    if (!error_.empty()) return;
    auto& fn = unit_.functions[current_];
    fn.linkage = std::max(fn.linkage, linkage);  // a prototype may say `.extern` of what is defined further down
    performance_directives(fn);
    bool has_body = token_.is('{');
    for (auto list : {&returns, &takes})
        for (auto index : *list) unit_.variables[index].function = has_body ? current_ : ast::nothing;
    if (has_body) {
        if (fn.defined) return fail("function '" + std::string(name) + "' is defined twice");
        fn.defined = true;
        fn.scope_parents = {0};
        scope_ids_ = {0};
        body();
    } else {
        accept(';');
    }
    auto& done = unit_.functions[current_];
    if (done.line == 0 || has_body) {  // a later repetition of the prototype changes nothing
        done.line = line;
        done.parameters = std::move(takes);
        done.returns = std::move(returns);
    }
    scopes_.resize(1);
    current_ = ast::nothing;
}

void Parser::parameters(std::vector<uint32_t>& list) {
    expect('(');
    while (!token_.is(')') && token_.kind != Token::Kind::end) {
        if (accept_dotted("reg")) return fail(".reg parameters are not supported by the emulated GPU");
        if (!accept_dotted("param")) return fail("expected .param");
        list.push_back(static_cast<uint32_t>(unit_.variables.size()));
        declarators(Space::param, Linkage::local, true);
        if (!accept(',')) break;
    }
    expect(')');
}

void Parser::performance_directives(ast::Function& fn) {
    while (token_.kind == Token::Kind::dotted) {
        bool threads = token_.text == "maxntid" || token_.text == "reqntid";
        if (token_.text == "noreturn") {
            advance();
            continue;
        }
        if (!threads && token_.text != "minnctapersm" && token_.text != "maxnctapersm" && token_.text != "maxnreg" &&
            token_.text != "pragma" && token_.text != "explicitcluster" && token_.text != "reqnctapercluster" &&
            token_.text != "maxclusterrank" && token_.text != "abi_preserve" && token_.text != "abi_preserve_control" &&
            token_.text != "noinline")
            return fail("." + std::string(token_.text) + " is not supported by the emulated GPU");
        bool pragma = token_.text == "pragma", cluster = token_.text == "reqnctapercluster";
        fn.needs_cluster |= cluster || token_.text == "explicitcluster";
        if (cluster) std::fill_n(fn.cluster, 3, 1);
        advance();
        if (pragma) {
            skip_to_semicolon();
            continue;
        }
        uint64_t product = 1;
        for (size_t dimension = 0; token_.kind == Token::Kind::integer; ++dimension) {
            product *= std::min<uint64_t>(token_.value, 1024);
            if (cluster && dimension < 3)
                fn.cluster[dimension] = static_cast<uint32_t>(std::min<uint64_t>(token_.value, 1024));
            advance();
            if (!accept(',')) break;
        }
        if (threads) fn.max_threads = static_cast<uint32_t>(std::min<uint64_t>(product, 1024));
    }
}

std::optional<Parser::Symbol> Parser::find(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
        if (auto found = scope->find(name); found != scope->end()) return found->second;
        // %r12 is number 12 of `%r<100>`; the prefix itself may end in digits, so try every split.
        uint64_t number = 0, scale = 1;
        for (size_t at = name.size(); at > 1 && name[at - 1] >= '0' && name[at - 1] <= '9' && scale <= 10'000'000;) {
            --at;
            number += scale * static_cast<uint64_t>(name[at] - '0');
            scale *= 10;
            auto found = scope->find(name.substr(0, at));
            if (found == scope->end()) continue;
            auto kind = found->second.kind;
            if (kind != Symbol::Kind::registers && kind != Symbol::Kind::variables) continue;
            if (number >= found->second.count || (name[at] == '0' && at + 1 < name.size())) continue;
            return Symbol{kind == Symbol::Kind::registers ? Symbol::Kind::reg : Symbol::Kind::variable,
                          found->second.index + static_cast<uint32_t>(number)};
        }
    }
    return std::nullopt;
}

}  // namespace tnr::ptx
