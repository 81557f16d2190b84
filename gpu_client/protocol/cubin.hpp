// What the client needs to know of a cubin (an ELF file of GPU code): its architecture, its kernels, and
// where each kernel's parameters go, since kernelParams says neither how many there are nor their sizes.
//
// Takes untrusted bytes and never reads outside the span; only file_size() has no span.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::cubin {

// CUDA allows 32,764 bytes of parameters, and a parameter has at least one byte.
inline constexpr size_t parameters_max = 32764;

struct Parameter {
    uint32_t offset = 0;
    uint32_t size = 0;
};

struct Kernel {
    std::string name;                   // mangled
    std::vector<Parameter> parameters;  // in order of their ordinal
    uint32_t parameter_bytes = 0;       // of the whole buffer
};

// True for an ELF file for NVIDIA's GPUs (e_machine 190).
bool is_cubin(std::span<const std::byte> image);

// 90 for sm_90.
Result<uint32_t> architecture(std::span<const std::byte> image);

Result<std::vector<Kernel>> kernels(std::span<const std::byte> image);

// The length of the ELF file at `image`: the end of its farthest table. Reads that file's header, and perhaps its
// section table, so it is only for images that a program passed by bare pointer.
Result<uint64_t> file_size(const void* image);

}  // namespace tnr::cubin
