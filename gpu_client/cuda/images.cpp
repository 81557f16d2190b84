// See images.hpp.
#include "gpu_client/cuda/images.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gpu_client/cuda/log.hpp"
#include "gpu_client/protocol/bundle.hpp"
#include "gpu_client/protocol/fatbin.hpp"

namespace tnr::cuda {

// The first bytes of a fat binary: its header, followed by entries.
struct ContainerHeader {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t entries_bytes;
};
static_assert(sizeof(ContainerHeader) == 16);

// The entry as it stands in the container, with its own header: still compressed. Empty when it is not there.
static std::span<const std::byte> whole_entry(std::span<const std::byte> container, const fatbin::Entry& entry) {
    size_t at = sizeof(ContainerHeader);
    while (at + 16 <= container.size()) {
        uint32_t header_bytes, payload_bytes;
        std::memcpy(&header_bytes, container.data() + at + 4, sizeof header_bytes);
        std::memcpy(&payload_bytes, container.data() + at + 8, sizeof payload_bytes);
        size_t length = size_t{header_bytes} + payload_bytes;
        if (header_bytes == 0 || length > container.size() - at) return {};
        if (container.data() + at + header_bytes == entry.payload.data()) return container.subspan(at, length);
        at += length;
    }
    return {};
}

static CUresult choose_entry(std::span<const std::byte> container, const Device& device, Image& found) {
    auto entries = fatbin::entries(container);
    if (!entries) {
        log(LogLevel::error, "cannot load code: %s", entries.error().what.c_str());
        return CUDA_ERROR_INVALID_IMAGE;
    }
    auto major = static_cast<unsigned>(device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    auto minor = static_cast<unsigned>(device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    auto* entry =
        device.runs_ptx_only() ? fatbin::choose_ptx(*entries, major, minor) : fatbin::choose(*entries, major, minor);
    if (!entry) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    auto whole = whole_entry(container, *entry);
    if (whole.empty()) return CUDA_ERROR_INVALID_IMAGE;
    ContainerHeader header{fatbin::header_magic, 1, sizeof(ContainerHeader), whole.size()};
    auto made = std::as_bytes(std::span(&header, 1));
    found.made.assign(made.begin(), made.end());
    found.borrowed = whole;
    return CUDA_SUCCESS;
}

static CUresult bare_image_for_device(const void* image, const Device& device, Image& found) {
    auto size = fatbin::image_size(image);
    if (!size) {
        log(LogLevel::info, "cannot load code: %s", size.error().what.c_str());
        return CUDA_ERROR_INVALID_IMAGE;
    }
    std::span all{static_cast<const std::byte*>(image), *size};
    if (fatbin::image_kind(all) == fatbin::Image::header) return choose_entry(all, device, found);
    found.borrowed = all;
    return CUDA_SUCCESS;
}

// For code that nvcc has linked for other GPUs: the worker's driver links its inputs anew. Of each it gets the entry
// that fits; an input without one may not be needed (nvcc adds libcudadevrt).
static CUresult bundle_inputs(const void* linked, const std::vector<const void*>& inputs, const Device& device,
                              Image& found) {
    std::vector<Image> chosen(inputs.size());
    std::vector<std::span<const std::byte>> containers;
    auto size = fatbin::image_size(linked);
    if (!size) return CUDA_ERROR_INVALID_IMAGE;
    containers.emplace_back(static_cast<const std::byte*>(linked), *size);
    for (size_t i = 0; i < inputs.size(); ++i) {
        auto result = bare_image_for_device(inputs[i], device, chosen[i]);
        chosen[i].own();
        if (result == CUDA_SUCCESS)
            containers.emplace_back(chosen[i].made);
        else if (result != CUDA_ERROR_NO_BINARY_FOR_GPU)
            return result;
    }
    if (containers.size() == 1) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    found = Image(fatbin::bundle(containers));
    return CUDA_SUCCESS;
}

static CUresult find_image(const void* image, const Device& device, Image& found) {
    const void* header = fatbin::header_of_wrapper(image);
    auto result = bare_image_for_device(header ? header : image, device, found);
    if (result != CUDA_ERROR_NO_BINARY_FOR_GPU || !header) return result;
    auto inputs = fatbin::inputs_of_wrapper(image);
    return inputs.empty() ? result : bundle_inputs(header, inputs, device, found);
}

static std::string capability_of(const Device& device) {
    return std::to_string(device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)) + "." +
           std::to_string(device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

CUresult image_for_device(const void* image, const Device& device, Image& found) {
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    found = {};
    auto result = find_image(image, device, found);
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
        explain_once("code does not load: there is no " + std::string(device.runs_ptx_only() ? "PTX" : "code") +
                     " in it for a GPU of compute capability " + capability_of(device));
    return result;
}

CUresult read_file(const char* path, wire::Bytes& bytes) {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    if (std::filesystem::is_directory(path)) return CUDA_ERROR_FILE_NOT_FOUND;  // reading it would throw
    std::vector<char> all{std::istreambuf_iterator<char>(file), {}};
    auto read = std::as_bytes(std::span(all));
    bytes.assign(read.begin(), read.end());
    return CUDA_SUCCESS;
}

CUresult image_from_file(const char* path, const Device& device, Image& found) {
    wire::Bytes all;
    if (auto result = read_file(path, all); result != CUDA_SUCCESS) return result;
    // A PTX file need not end in NUL, and the padding keeps image_size() inside for whatever else it is.
    all.resize(all.size() + 64);
    auto result = image_for_device(all.data(), device, found);
    found.own();
    return result;
}

}  // namespace tnr::cuda
