// See link.hpp. A symbol is chosen for every name first; then each unit's indexes are renumbered to the whole's, those
// of a declaration to the definition that was chosen for it.
#include "gpu_server/emulated_gpu/ptx/link.hpp"

#include "gpu_server/emulated_gpu/ptx/builtin.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace tnr::ptx {
namespace {

using ast::Linkage;
using ast::nothing;

// A function or a variable of one unit.
struct Symbol {
    bool is_function = false;
    uint32_t unit = 0, index = 0;
    Linkage linkage = Linkage::local;
};

class Linker {
public:
    Linker(std::vector<ast::Unit> units, const std::vector<std::string_view>& names)
        : units_(std::move(units)), names_(names), functions_(units_.size()), variables_(units_.size()) {}

    Result<ast::Unit> run() {
        for (auto& unit : units_) use_own_device_runtime(unit);
        collect();
        if (error_.empty()) number();
        if (error_.empty()) take_over();
        for (auto& function : linked_.functions)
            for (auto& instruction : function.body)
                for (auto& operand : instruction.operands) renumber(operand, function.source, instruction.line);
        check_initial_values();
        if (!error_.empty()) return Error{Error::Kind::not_found, error_};
        return std::move(linked_);
    }

private:
    void fail(const std::string& what) {
        if (error_.empty()) error_ = what;
    }
    std::string unit_name(uint32_t unit) const { return std::string(names_[unit]); }
    static std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

    // Before CUDA 12 the device runtime is code, over functions that only the driver has. What there is of it here takes the
    // code's place.
    static void use_own_device_runtime(ast::Unit& unit) {
        auto is_drivers = [](const ast::Function& f) { return !f.defined && is_of_old_device_runtime(f.name); };
        if (std::none_of(unit.functions.begin(), unit.functions.end(), is_drivers)) return;
        for (auto& function : unit.functions) {
            if (!function.defined || builtin_named(function.name) == Builtin::none) continue;
            function.defined = false;
            function.linkage = Linkage::external;
            function.body.clear();
        }
    }

    static Linkage linkage_of(const ast::Function& function) {
        if (function.linkage == Linkage::local) return Linkage::local;
        if (!function.defined) return Linkage::external;
        return function.linkage == Linkage::external ? Linkage::visible : function.linkage;
    }
    // What only its own function sees is not linked, nor is `.extern .shared x[]`: each kernel's dynamic memory.
    static Linkage linkage_of(const ast::Variable& variable) {
        bool local = variable.function != nothing || (variable.space == Space::shared && variable.size == 0);
        return local ? Linkage::local : variable.linkage;
    }
    static bool can_be_declared(const ast::Variable& variable) {
        return variable.function == nothing && variable.space != Space::param;
    }

    // ---- names

    void collect() {
        locals_.resize(units_.size());
        for (uint32_t unit = 0; unit < units_.size(); ++unit) {
            for (uint32_t i = 0; i < units_[unit].functions.size(); ++i) {
                auto& function = units_[unit].functions[i];
                offer(function.name, {true, unit, i, linkage_of(function)});
            }
            for (uint32_t i = 0; i < units_[unit].variables.size(); ++i) {
                auto& variable = units_[unit].variables[i];
                if (can_be_declared(variable)) offer(variable.name, {false, unit, i, linkage_of(variable)});
            }
        }
    }

    void offer(std::string_view name, const Symbol& candidate) {
        bool local = candidate.linkage == Linkage::local;
        auto& table = local ? locals_[candidate.unit] : symbols_;
        auto [known, is_new] = table.try_emplace(name, candidate);
        if (is_new || local) return;
        auto& chosen = known->second;
        if (chosen.linkage == Linkage::visible && candidate.linkage == Linkage::visible)
            return defined_twice(name, chosen, candidate);
        bool larger = candidate.linkage == Linkage::common && chosen.linkage == Linkage::common &&
                      !candidate.is_function && !chosen.is_function && variable(candidate).size > variable(chosen).size;
        if (candidate.linkage > chosen.linkage || larger) chosen = candidate;
    }
    void defined_twice(std::string_view name, const Symbol& first, const Symbol& second) {
        fail(first.unit == second.unit
                 ? quoted(name) + " is defined twice"
                 : quoted(name) + " is defined in " + unit_name(first.unit) + " and in " + unit_name(second.unit));
    }

    const ast::Function& function(const Symbol& symbol) const { return units_[symbol.unit].functions[symbol.index]; }
    const ast::Variable& variable(const Symbol& symbol) const { return units_[symbol.unit].variables[symbol.index]; }

    // What a name stands for in this unit: its own definition, which may be private, before any other's.
    const Symbol& chosen_for(std::string_view name, const Symbol& mine) const {
        if (mine.linkage == Linkage::local) return mine;
        auto own = locals_[mine.unit].find(name);
        return own != locals_[mine.unit].end() ? own->second : symbols_.find(name)->second;
    }

    // ---- numbers

    void number() {
        for (uint32_t unit = 0; unit < units_.size(); ++unit) {
            functions_[unit].assign(units_[unit].functions.size(), nothing);
            variables_[unit].assign(units_[unit].variables.size(), nothing);
        }
        each_chosen([&](const Symbol& mine, const Symbol& chosen) {
            if (!same(mine, chosen)) return;
            numbers(mine) = mine.is_function ? function_count_++ : variable_count_++;
        });
        each_chosen([&](const Symbol& mine, const Symbol& chosen) {
            if (same(mine, chosen)) return;
            numbers(mine) = numbers(chosen);
            compare(mine, chosen);
        });
    }

    // Calls `use` for all that is kept or replaced; the insides of functions that are dropped are neither.
    template <class Use>
    void each_chosen(Use&& use) {
        for (uint32_t unit = 0; unit < units_.size(); ++unit) {
            auto& all = units_[unit];
            for (uint32_t i = 0; i < all.functions.size(); ++i) {
                Symbol mine{true, unit, i, linkage_of(all.functions[i])};
                use(mine, chosen_for(all.functions[i].name, mine));
            }
            for (uint32_t i = 0; i < all.variables.size(); ++i) {
                if (dropped(unit, all.variables[i].function)) continue;
                Symbol mine{false, unit, i, linkage_of(all.variables[i])};
                use(mine, can_be_declared(all.variables[i]) ? chosen_for(all.variables[i].name, mine) : mine);
            }
        }
    }
    bool dropped(uint32_t unit, uint32_t owner) const {
        if (owner == nothing) return false;
        Symbol mine{true, unit, owner, linkage_of(units_[unit].functions[owner])};
        return !same(mine, chosen_for(units_[unit].functions[owner].name, mine));
    }
    static bool same(const Symbol& a, const Symbol& b) {
        return a.is_function == b.is_function && a.unit == b.unit && a.index == b.index;
    }
    uint32_t& numbers(const Symbol& symbol) {
        return (symbol.is_function ? functions_ : variables_)[symbol.unit][symbol.index];
    }

    // A declaration that says something else than the definition would be read as memory of another shape.
    void compare(const Symbol& mine, const Symbol& chosen) {
        auto name = mine.is_function ? function(mine).name : variable(mine).name;
        if (mine.is_function != chosen.is_function) return disagree(name, mine, chosen);
        if (mine.is_function) {
            if (shape_of(mine) != shape_of(chosen)) disagree(name, mine, chosen);
            return;
        }
        auto &a = variable(mine), &b = variable(chosen);
        bool sizes_differ = mine.linkage == Linkage::external && a.size != 0 && b.size != 0 && a.size != b.size;
        if (a.space != b.space || sizes_differ) disagree(name, mine, chosen);
    }
    std::vector<uint64_t> shape_of(const Symbol& symbol) const {
        auto& all = units_[symbol.unit];
        auto& what = function(symbol);
        std::vector<uint64_t> shape{what.is_entry, what.returns.size()};
        for (auto list : {&what.returns, &what.parameters})
            for (auto index : *list) shape.push_back(all.variables[index].size);
        return shape;
    }
    void disagree(std::string_view name, const Symbol& mine, const Symbol& chosen) {
        fail(quoted(name) + " is declared otherwise in " + unit_name(mine.unit) + " than in " + unit_name(chosen.unit));
    }

    // ---- the whole

    void take_over() {
        if (units_.size() > 1) linked_.sources = names_;
        linked_.functions.resize(function_count_);
        linked_.variables.resize(variable_count_);
        each_chosen([&](const Symbol& mine, const Symbol& chosen) {
            if (!same(mine, chosen)) return;
            if (mine.is_function)
                take_function(mine);
            else
                take_variable(mine);
        });
        for (auto& unit : units_) linked_.target_sm = std::max(linked_.target_sm, unit.target_sm);
    }
    // Copied but for the body: what is asked of the units' functions from here on must still be there.
    void take_function(const Symbol& mine) {
        auto& from = units_[mine.unit].functions[mine.index];
        auto body = std::move(from.body);
        auto& to = linked_.functions[numbers(mine)] = from;
        to.body = std::move(body);
        to.source = mine.unit;
        for (auto list : {&to.parameters, &to.returns})
            for (auto& index : *list) index = variables_[mine.unit][index];
    }
    void take_variable(const Symbol& mine) {
        auto& to = linked_.variables[numbers(mine)] = variable(mine);
        if (to.function != nothing) to.function = functions_[mine.unit][to.function];
        for (auto& relocation : to.relocations) {
            relocation.index = (relocation.is_function ? functions_ : variables_)[mine.unit][relocation.index];
        }
    }

    // ---- uses

    void renumber(ast::Operand& operand, uint32_t unit, uint32_t line) {
        for (auto& part : operand.parts) renumber(part, unit, line);
        bool is_function = operand.kind == ast::Operand::Kind::function;
        if (!is_function && operand.kind != ast::Operand::Kind::variable) return;
        operand.index = (is_function ? functions_ : variables_)[unit][operand.index];
        check_defined(is_function, operand.index, place(unit) + "line " + std::to_string(line) + ": ");
    }
    void check_initial_values() {
        for (auto& variable : linked_.variables)
            for (auto& relocation : variable.relocations)
                check_defined(relocation.is_function, relocation.index,
                              "line " + std::to_string(variable.line) + ": " + quoted(variable.name) + ": ");
    }
    void check_defined(bool is_function, uint32_t index, const std::string& where) {
        if (is_function) {
            auto& used = linked_.functions[index];
            if (!used.defined && builtin_named(used.name) == Builtin::none && !is_of_old_device_runtime(used.name))
                fail(where + "function " + quoted(used.name) + " is declared but not defined");
        } else if (auto& used = linked_.variables[index];
                   used.linkage == Linkage::external && used.space != Space::shared) {
            fail(where + "variable " + quoted(used.name) + " is declared but not defined");
        }
    }
    std::string place(uint32_t unit) const { return names_.size() > 1 ? unit_name(unit) + ", " : ""; }

    std::vector<ast::Unit> units_;
    const std::vector<std::string_view>& names_;
    std::unordered_map<std::string_view, Symbol> symbols_;              // that other units see
    std::vector<std::unordered_map<std::string_view, Symbol>> locals_;  // of each unit
    std::vector<std::vector<uint32_t>> functions_, variables_;          // of each unit: its index to the whole's
    uint32_t function_count_ = 0, variable_count_ = 0;
    ast::Unit linked_;
    std::string error_;
};

}  // namespace

Result<ast::Unit> link(std::vector<ast::Unit> units, const std::vector<std::string_view>& names) {
    return Linker(std::move(units), names).run();
}

}  // namespace tnr::ptx
