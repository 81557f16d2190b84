// What load() gives: the program and, per kernel, how its shared and local memory are laid out.
#pragma once

#include <unordered_map>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::ptx {

struct KernelLayout {
    uint32_t function = 0;
    std::unordered_map<uint32_t, uint64_t> shared;  // variable of ast::Unit to its offset
    std::vector<uint32_t> dynamic_shared;           // variables that begin at dynamic_at
    uint64_t dynamic_at = 0;
    uint64_t local_bytes = 0;  // per thread, calls included
};

class LoadedModule : public Module {
public:
    LoadedModule(const ast::Unit& unit, Decoded decoded);
    const std::vector<Kernel>& kernels() const override { return kernels_; }
    const std::vector<Global>& globals() const override { return globals_; }
    uint32_t target_sm() const override { return target_sm_; }
    void initialise(size_t index, std::span<const uint64_t> addresses, std::span<std::byte> bytes) const override;

    const Program& program() const { return program_; }
    const KernelLayout& layout(uint32_t kernel) const { return layouts_[kernel]; }

private:
    struct Initial {
        std::vector<uint8_t> bytes;
        std::vector<ast::Relocation> relocations;
    };
    void add_kernel(const ast::Unit& unit, const Decoded& decoded, uint32_t function);

    Program program_;
    uint32_t target_sm_;
    std::vector<Kernel> kernels_;
    std::vector<KernelLayout> layouts_;
    std::vector<Global> globals_;
    std::vector<Initial> initial_;
};

}  // namespace tnr::ptx
