// See code_units.hpp.
#include "gpu_server/emulated_gpu/driver/code_units.hpp"

#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/emulated_gpu/driver/device.hpp"

namespace tnr::emulated {

CUresult add_units_of_container(std::span<const std::byte> container, const std::string& name, CodeUnits& units,
                                std::string& error) {
    auto entries = fatbin::entries(container);
    if (!entries) {
        error = entries.error().what;
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const fatbin::Entry* entry = fatbin::choose_ptx(*entries, compute_major, compute_minor);
    if (!entry) {
        error =
            "the fat binary has no PTX for compute capability 12.0 or lower; build with -gencode "
            "arch=compute_XX,code=compute_XX (the emulated GPU runs PTX only, no cubin)";
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    auto text = fatbin::unpack(*entry);
    if (!text) {
        error = text.error().what;
        return CUDA_ERROR_INVALID_IMAGE;
    }
    units.push_back({entry->name.empty() ? name : std::string(entry->name),
                     {reinterpret_cast<const char*>(text->data()), text->size()}});
    return CUDA_SUCCESS;
}

static CUresult add_units_of_bare_image(const void* image, const std::string& name, CodeUnits& units,
                                        std::string& error) {
    auto size = fatbin::image_size(image);
    if (!size) {
        error = size.error().what;
        return CUDA_ERROR_INVALID_IMAGE;
    }
    auto bytes = std::span(static_cast<const std::byte*>(image), *size);
    switch (fatbin::image_kind(bytes)) {
        case fatbin::Image::header:
            return add_units_of_container(bytes, name, units, error);
        case fatbin::Image::ptx:
            units.push_back({name, {static_cast<const char*>(image), *size - 1}});
            return CUDA_SUCCESS;
        case fatbin::Image::elf:
            return add_units_of_elf(bytes, units, error);
        default:
            error = "this is no CUDA code";
            return CUDA_ERROR_INVALID_IMAGE;
    }
}

CUresult add_units_of_image(const void* image, CodeUnits& units, std::string& error) {
    const void* header = fatbin::header_of_wrapper(image);
    auto result = add_units_of_bare_image(header ? header : image, "the module", units, error);
    if (!header || result != CUDA_ERROR_NO_BINARY_FOR_GPU) return result;
    // What nvcc has linked is for other GPUs only: link its inputs, as a driver does. One without a fitting entry may not
    // be needed (nvcc adds libcudadevrt); if it is, linking tells what is missing.
    auto inputs = fatbin::inputs_of_wrapper(image);
    for (size_t i = 0; i < inputs.size(); ++i) {
        auto added = add_units_of_bare_image(inputs[i], "unit " + std::to_string(i + 1), units, error);
        if (added != CUDA_SUCCESS && added != CUDA_ERROR_NO_BINARY_FOR_GPU) return added;
    }
    return units.empty() ? result : CUDA_SUCCESS;
}

CUresult compile_units(const CodeUnits& units, std::shared_ptr<const ptx::Module>& code, std::string& error) {
    std::vector<ptx::Source> sources;
    for (auto& unit : units) sources.push_back({unit.name, unit.text});
    auto loaded = ptx::load(sources);
    if (loaded) {
        code = *loaded;
        return CUDA_SUCCESS;
    }
    error = loaded.error().what;
    bool unfitting = units.size() > 1 && loaded.error().kind == Error::Kind::not_found;
    return unfitting ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_PTX;
}

}  // namespace tnr::emulated
