// From what a program hands over to code that the interpreter can run.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "api_client/base/handles.hpp"
#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/emulated_gpu/driver/code_units.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"

namespace tnr::emulated {

static CUresult explained(CUresult result, std::string& error) {
    if (result == CUDA_SUCCESS) {
        error.clear();  // what one way of reading the image lacked, another had
        return result;
    }
    set_last_error(error);
    log_debug("cannot load code: " + error);
    return result;
}

CUresult compile(const void* image, Code& code, std::string& error) {
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    CodeUnits units;
    CUresult result = add_units_of_image(image, units, error);
    if (result == CUDA_SUCCESS) result = compile_units(units, code, error);
    return explained(result, error);
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
        CodeUnits units;
        CUresult result = add_units_of_container(content, path, units, error);
        if (result == CUDA_SUCCESS) result = compile_units(units, code, error);
        return explained(result, error);
    }
    if (fatbin::image_kind(content) == fatbin::Image::wrapper) return CUDA_ERROR_INVALID_IMAGE;  // holds pointers
    return compile(bytes.data(), code, error);
}

void fill_jit_logs(unsigned count, CUjit_option* options, void** values, const std::string& error) {
    bool read = false;
    for (unsigned i = 0; options && values && i < count; ++i)
        read |= options[i] == CU_JIT_ERROR_LOG_BUFFER && values[i];
    if (!read && !error.empty()) say_once("cannot load code: " + error);
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

uint32_t registers_wanted(unsigned count, const CUjit_option* options, void** values) {
    for (unsigned i = 0; options && values && i < count; ++i)
        if (options[i] == CU_JIT_MAX_REGISTERS) return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(values[i]));
    return no_register_limit;
}

}  // namespace tnr::emulated
