// load(): text to Module. What a kernel needs (shared memory, local memory) is the sum over the functions it
// can reach, so it is worked out here once.
#include "gpu_server/emulated_gpu/ptx/module.hpp"

#include <algorithm>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/builtin.hpp"
#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/link.hpp"
#include "gpu_server/emulated_gpu/ptx/parser.hpp"

namespace tnr::ptx {
namespace {

// Every function that can run when `entry` is launched, callees before their callers.
std::vector<uint32_t> reachable(const Program& program, uint32_t entry, bool& recursive) {
    enum : uint8_t { unseen, open, closed };
    std::vector<uint8_t> state(program.functions.size(), unseen);
    std::vector<uint32_t> all;
    std::vector<std::pair<uint32_t, size_t>> stack;  // function, next callee
    bool indirect = false;
    auto visit = [&](uint32_t first) {
        if (state[first] != unseen) return;
        stack.push_back({first, 0});
        state[first] = open;
        while (!stack.empty()) {
            auto& [function, next] = stack.back();
            auto& callees = program.functions[function].callees;
            if (next == callees.size()) {
                indirect |= program.functions[function].calls_indirectly;
                all.push_back(function);
                state[function] = closed;
                stack.pop_back();
                continue;
            }
            auto callee = callees[next++];
            if (state[callee] == open) recursive = true;
            if (state[callee] != unseen) continue;
            state[callee] = open;
            stack.push_back({callee, 0});
        }
    };
    visit(entry);
    for (uint32_t i = 0; indirect && i < program.functions.size(); ++i)
        if (program.functions[i].address_taken) visit(i);
    recursive |= indirect;  // a pointer may lead anywhere, back too
    return all;
}

// The deepest chain of calls without recursion, in bytes of local memory.
uint64_t deepest(const Program& program, const std::vector<uint32_t>& callees_first) {
    std::unordered_map<uint32_t, uint64_t> depth;
    uint64_t most = 0;
    for (auto index : callees_first) {
        uint64_t below = 0;
        for (auto callee : program.functions[index].callees) below = std::max(below, depth[callee]);
        most = std::max(most, depth[index] = below + program.functions[index].local_bytes);
    }
    return most;
}

void note_builtin(Builtin called, Kernel& kernel) {
    kernel.prints |= called == Builtin::vprintf;
    kernel.uses_heap |= called == Builtin::malloc || called == Builtin::free;
}

}  // namespace

LoadedModule::LoadedModule(const ast::Unit& unit, Decoded decoded)
    : program_(std::move(decoded.program)), target_sm_(unit.target_sm) {
    for (auto index : decoded.globals) {
        auto& variable = unit.variables[index];
        globals_.push_back({std::string(variable.name), variable.size, variable.align,
                            variable.space == Space::constant, variable.managed, variable.reference});
        initial_.push_back({variable.initial, variable.relocations});
        for (auto& relocation : initial_.back().relocations)
            if (!relocation.is_function) relocation.index = decoded.global_of.at(relocation.index);
    }
    for (uint32_t i = 0; i < unit.functions.size(); ++i)
        if (unit.functions[i].is_entry && unit.functions[i].defined) add_kernel(unit, decoded, i);
}

void LoadedModule::add_kernel(const ast::Unit& unit, const Decoded& decoded, uint32_t function) {
    auto& source = unit.functions[function];
    Kernel kernel;
    kernel.name = source.name;
    for (auto index : source.parameters) {
        auto range = decoded.parameters[index];
        kernel.parameters.push_back({range.offset, range.size, unit.variables[index].align});
    }
    kernel.parameter_bytes = program_.functions[function].parameter_bytes;
    kernel.max_threads_per_block = source.max_threads;
    std::copy_n(source.cluster, 3, kernel.cluster);
    kernel.needs_cluster = source.needs_cluster;
    kernel.index = static_cast<uint32_t>(kernels_.size());
    KernelLayout layout;
    layout.function = function;
    bool recursive = false;
    auto functions = reachable(program_, function, recursive);
    uint64_t shared = 0, local = 0;
    uint32_t dynamic_align = 16;
    for (auto index : functions) {
        local += program_.functions[index].local_bytes;
        if (auto& called = unit.functions[index]; !called.defined) note_builtin(builtin_named(called.name), kernel);
        for (auto variable : program_.functions[index].shared_variables) {
            auto& shared_variable = unit.variables[variable];
            if (shared_variable.size == 0 || shared_variable.linkage == ast::Linkage::external) {
                layout.dynamic_shared.push_back(variable);
                dynamic_align = std::max(dynamic_align, shared_variable.align);
                continue;
            }
            if (layout.shared.count(variable)) continue;
            shared = (shared + shared_variable.align - 1) & ~uint64_t{shared_variable.align - 1};
            layout.shared[variable] = shared;
            shared += shared_variable.size;
        }
    }
    layout.local_bytes = recursive ? local + local_stack_bytes : deepest(program_, functions);
    if (program_.uses_alloca) layout.local_bytes += alloca_bytes_max;
    layout.dynamic_at = (shared + dynamic_align - 1) & ~uint64_t{dynamic_align - 1};
    kernel.static_shared_bytes = static_cast<uint32_t>(std::min<uint64_t>(shared, ~0u));
    kernel.local_bytes = program_.functions[function].local_bytes;
    // ptxas would need fewer than PTX names; occupancy calculators want something plausible.
    uint32_t words = program_.functions[function].frame_bytes / (warp_lanes * 4);
    kernel.registers = std::clamp<uint32_t>(words / 3, 16, 128);
    kernels_.push_back(std::move(kernel));
    layouts_.push_back(std::move(layout));
}

void LoadedModule::initialise(size_t index, std::span<const uint64_t> addresses, std::span<std::byte> bytes) const {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    auto& initial = initial_[index];
    auto given = std::min(bytes.size(), initial.bytes.size());
    std::transform(initial.bytes.begin(), initial.bytes.begin() + static_cast<ptrdiff_t>(given), bytes.begin(),
                   [](uint8_t byte) { return std::byte{byte}; });
    for (auto& relocation : initial.relocations) {
        uint64_t value = relocation.is_function ? code_window | relocation.index : addresses[relocation.index];
        value = (value + static_cast<uint64_t>(relocation.addend)) >> relocation.shift;
        if (relocation.offset + relocation.bytes <= bytes.size() && relocation.bytes <= 8)
            std::memcpy(bytes.data() + relocation.offset, &value, relocation.bytes);
    }
}

Result<std::shared_ptr<const Module>> load(std::span<const Source> sources) {
    if (sources.size() > sources_max) return Error{Error::Kind::usage, "more units than the emulated GPU links"};
    std::vector<ast::Unit> units;
    std::vector<std::string_view> names;
    for (auto& source : sources) {
        auto unit = parse(source.text);
        if (!unit && sources.size() == 1) return unit.error();
        if (!unit) return Error{Error::Kind::usage, std::string(source.name) + ", " + unit.error().what};
        units.push_back(std::move(*unit));
        names.push_back(source.name);
    }
    auto linked = link(std::move(units), names);
    if (!linked) return linked.error();
    auto decoded = decode(*linked);
    if (!decoded) return decoded.error();
    return std::shared_ptr<const Module>(std::make_shared<LoadedModule>(*linked, std::move(*decoded)));
}

Result<std::shared_ptr<const Module>> load(std::string_view text) {
    Source only{"the module", text};
    return load(std::span(&only, 1));
}

Result<> check(std::string_view text) {
    auto unit = parse(text);
    if (!unit) return unit.error();
    auto decoded = decode(*unit);
    if (!decoded) return decoded.error();
    return Ok{};
}

}  // namespace tnr::ptx
