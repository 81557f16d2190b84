// Device and pinned memory: who may use what, and how it is taken and given back.
#pragma once

#include <map>

#include "gpu_server/emulated_gpu/driver/address_map.hpp"
#include "gpu_server/emulated_gpu/driver/addresses.hpp"
#include "gpu_server/emulated_gpu/driver/context.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::emulated {

// Takes `size` bytes of the device's memory. `like` says whose it is; begin and size are filled in.
CUresult allocate_device(Device& device, uint64_t size, Allocation like, uint64_t& address);
// The same for memory that the device's budget has been charged for already.
CUresult place_on_device(Device& device, uint64_t size, Allocation like, uint64_t& address);
// What an allocation takes of the device's memory: its size, rounded up.
uint64_t granules(uint64_t size);
// Gives back what allocate_device or the host functions have taken; `allocation` is already off the map.
void give_back(const Allocation& allocation);
// Managed memory is gone: managed_memory.cpp.
void forget_advice(const Allocation& allocation);
inline constexpr uint64_t managed_alignment = 4096;
// Everything that dies with the context.
void free_memory_of(Context& context);

// May kernels and copies of `context` use this memory?
// Pinned memory, which kernels may use at its address; `like` says whose it is.
CUresult place_on_host(uint64_t size, Allocation like, uint64_t& address);

bool accessible(Context& context, const Allocation& allocation);
// Is every byte of the range there, and may the context use it? An empty range always is.
bool usable(Context& context, uint64_t address, uint64_t size);
// Is the memory something that the driver allocated or pinned? Else it is an ordinary host pointer.
bool known(uint64_t address);

// What a module's texture and surface references stood for when a kernel of it was launched, by their variables'
// addresses.
struct BoundReferences {
    std::map<uint64_t, std::shared_ptr<const ptx::Texture>> textures;
    std::map<uint64_t, std::shared_ptr<const ptx::Image>> surfaces;
};

// What the interpreter asks while a kernel of `context` runs.
class KernelMemory : public ptx::Memory {
public:
    KernelMemory(Context& context, const BoundReferences* bound) : context_(context), bound_(bound) {}
    Range range_of(uint64_t address) const override;
    Team team_of(uint64_t address) const override;
    std::shared_ptr<const ptx::Texture> texture(uint64_t handle) const override;
    std::shared_ptr<const ptx::Image> surface(uint64_t handle) const override;

private:
    Context& context_;
    const BoundReferences* bound_;  // null: none
};

}  // namespace tnr::emulated
