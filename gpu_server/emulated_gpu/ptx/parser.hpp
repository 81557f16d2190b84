// PTX text to ast::Unit: the module in parser.cpp, variables in parse_variables.cpp, statements in parse_body.cpp. The
// grammar has no context beyond nested scopes of names, so this is plain recursive descent. The first mistake stops it:
// fail() keeps the message and turns every later token into `end`, which ends every loop.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "api_client/base/result.hpp"
#include "gpu_server/emulated_gpu/ptx/ast.hpp"
#include "gpu_server/emulated_gpu/ptx/lexer.hpp"

namespace tnr::ptx {

// The result's views point into `text`.
Result<ast::Unit> parse(std::string_view text);

class Parser {
public:
    explicit Parser(std::string_view text) : lexer_(text), text_(text) { ahead_ = lexer_.next(), advance(); }
    Result<ast::Unit> unit();

private:
    struct Symbol {
        enum class Kind : uint8_t { reg, registers, vector, variable, variables, function } kind;
        uint32_t index;      // of registers, vector and variables: the first
        uint32_t count = 1;  // of registers and variables: how many are numbered; of vector: its width
    };
    using Scope = std::unordered_map<std::string_view, Symbol>;

    // tokens
    void advance();
    bool accept(char c);
    bool accept_dotted(std::string_view word);
    void expect(char c);
    std::string_view word(const char* what);
    uint64_t integer(const char* what);
    void fail(const std::string& what);
    void fail_at(uint32_t line, const std::string& what);
    void skip_line();
    void skip_to_semicolon();
    void skip_braces();

    // declarations
    void header();
    ast::Linkage linkage();
    void directive();
    void function(bool is_entry, ast::Linkage linkage);
    void parameters(std::vector<uint32_t>& list);
    void performance_directives(ast::Function& function);
    void variable(Space space, ast::Linkage linkage);
    void declarators(Space space, ast::Linkage linkage, bool parameter);  // a parameter stands alone
    void array_size(ast::Variable& variable, uint64_t element);
    void initialiser(ast::Variable& variable);
    void initial_list(ast::Variable& variable, uint64_t& offset, int depth);
    void initial_value(ast::Variable& variable, uint64_t offset);
    int64_t constant();
    int64_t constant_term();
    uint32_t declare_function(std::string_view name, bool is_entry);
    void declare(std::string_view name, Symbol symbol);
    std::optional<Symbol> find(std::string_view name) const;  // %r12 is found where %r<100> is declared

    // statements
    void body();
    void statement();
    void registers();
    void add_register(std::string_view name, Type type, uint32_t width);
    void labelled(std::string_view name);
    void instruction();
    void operands(ast::Instruction& instruction);
    ast::Operand operand(int depth);
    ast::Operand simple_operand(int depth);
    ast::Operand memory_operand();
    ast::Operand group(char close, ast::Operand::Kind kind, int depth);
    ast::Operand named(std::string_view name);
    ast::Operand number(bool minus);

    Lexer lexer_;
    std::string_view text_;
    Token token_, ahead_;
    ast::Unit unit_;
    std::vector<Scope> scopes_{1};
    std::vector<uint32_t> scope_ids_{0};
    uint32_t current_ = ast::nothing;  // the function whose body is read
    std::string error_;
};

}  // namespace tnr::ptx
