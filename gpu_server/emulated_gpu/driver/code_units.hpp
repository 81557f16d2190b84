// From what a program hands over as code to PTX: one text, or several that are linked when they are loaded.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu_server/emulated_gpu/driver/abi.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::emulated {

struct CodeUnit {
    std::string name;  // for messages
    std::string text;
};
using CodeUnits = std::vector<CodeUnit>;

// Each adds to `units`, or says in `error` why it cannot.
// PTX text, a fat binary, a wrapper around one (with what it was linked from), or what cuLinkComplete gave.
CUresult add_units_of_image(const void* image, CodeUnits& units, std::string& error);
// A fat binary: its newest PTX that the emulated GPU can run.
CUresult add_units_of_container(std::span<const std::byte> container, const std::string& name, CodeUnits& units,
                                std::string& error);
// An ELF file: what cuLinkComplete gave, no cubin.
CUresult add_units_of_elf(std::span<const std::byte> image, CodeUnits& units, std::string& error);
// A host's object, with GPU code in its sections; and a library of such, of which those without code that fits are left out.
CUresult add_units_of_object(std::span<const std::byte> object, const std::string& name, CodeUnits& units,
                             std::string& error);
CUresult add_units_of_archive(std::span<const std::byte> archive, const std::string& name, CodeUnits& units,
                              std::string& error);

// What cuLinkComplete gives: an ELF file for NVIDIA's machine, as a cubin is, with PTX where that has machine code.
std::vector<std::byte> linked_image(const CodeUnits& units);

// Links and compiles. CUDA_ERROR_INVALID_PTX, or of several units that do not fit together NO_BINARY_FOR_GPU.
CUresult compile_units(const CodeUnits& units, std::shared_ptr<const ptx::Module>& code, std::string& error);

}  // namespace tnr::emulated
