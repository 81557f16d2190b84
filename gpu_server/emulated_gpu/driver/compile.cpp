// From what a program hands over to code that the interpreter can run.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "api_client/base/handles.hpp"
#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"

namespace tnr::emulated {
namespace {

CUresult compile_ptx(std::string_view text, Code& code, std::string& error) {
    auto loaded = ptx::load(text);
    if (!loaded) {
        error = loaded.error().what;
        return CUDA_ERROR_INVALID_PTX;
    }
    code = *loaded;
    return CUDA_SUCCESS;
}

CUresult compile_container(std::span<const std::byte> container, Code& code, std::string& error) {
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
    return compile_ptx({reinterpret_cast<const char*>(text->data()), text->size()}, code, error);
}

CUresult compile_image(const void* image, Code& code, std::string& error) {
    if (const void* header = fatbin::header_of_wrapper(image)) image = header;
    auto size = fatbin::image_size(image);
    if (!size) {
        error = size.error().what;
        return CUDA_ERROR_INVALID_IMAGE;
    }
    auto bytes = std::span(static_cast<const std::byte*>(image), *size);
    switch (fatbin::image_kind(bytes)) {
        case fatbin::Image::header:
            return compile_container(bytes, code, error);
        case fatbin::Image::ptx:
            return compile_ptx({static_cast<const char*>(image), *size - 1}, code, error);
        case fatbin::Image::elf:
            error = "this is a cubin: the emulated GPU runs PTX only";
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
        default:
            error = "this is no CUDA code";
            return CUDA_ERROR_INVALID_IMAGE;
    }
}

}  // namespace

CUresult compile(const void* image, Code& code, std::string& error) {
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = compile_image(image, code, error);
    if (result == CUDA_SUCCESS) return result;
    set_last_error(error);
    log_debug("cannot load code: " + error);
    return result;
}

CUresult compile_file(const char* path, Code& code, std::string& error) {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
    struct stat status;
    if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return CUDA_ERROR_FILE_NOT_FOUND;
    if (static_cast<uint64_t>(status.st_size) > fatbin::image_bytes_max) return CUDA_ERROR_INVALID_IMAGE;
    // Behind the file's bytes come zeros: they end a text, and are what reading past a truncated header finds.
    constexpr size_t padding = 4096;
    std::vector<char> bytes(static_cast<size_t>(status.st_size) + padding);
    size_t size = 0;
    while (size < static_cast<size_t>(status.st_size)) {
        ssize_t got = read(file.get(), bytes.data() + size, static_cast<size_t>(status.st_size) - size);
        if (got <= 0) return CUDA_ERROR_INVALID_IMAGE;
        size += static_cast<size_t>(got);
    }
    auto content = std::as_bytes(std::span(bytes).first(size));
    if (fatbin::image_kind(content) == fatbin::Image::header) {
        CUresult result = compile_container(content, code, error);
        if (result != CUDA_SUCCESS) set_last_error(error);
        return result;
    }
    if (fatbin::image_kind(content) == fatbin::Image::wrapper) return CUDA_ERROR_INVALID_IMAGE;  // holds pointers
    return compile(bytes.data(), code, error);
}

void fill_jit_logs(unsigned count, CUjit_option* options, void** values, const std::string& error) {
    if (!options || !values) return;
    auto fill = [&](CUjit_option buffer_option, CUjit_option size_option, const std::string& text) {
        char* buffer = nullptr;
        size_t* size = nullptr;
        for (unsigned i = 0; i < count; ++i) {
            if (options[i] == buffer_option) buffer = static_cast<char*>(values[i]);
            if (options[i] == size_option) size = reinterpret_cast<size_t*>(&values[i]);  // in and out
        }
        if (!buffer || !size || *size == 0) return;
        size_t length = std::min(text.size(), *size - 1);
        std::memcpy(buffer, text.data(), length);
        buffer[length] = 0;
        *size = length;
    };
    fill(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error);
    fill(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
}

}  // namespace tnr::emulated
