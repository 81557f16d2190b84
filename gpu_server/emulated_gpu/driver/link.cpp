// cuLink*: PTX in, an image that cuModuleLoadData accepts out. Inputs are checked when they are added and linked when the
// link is completed; the image holds their texts (linked_image.cpp), which are compiled when it is loaded.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "api_client/base/handles.hpp"
#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/emulated_gpu/driver/code_units.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"

namespace tnr::emulated {
namespace {

class Link : public Object {
public:
    static constexpr Kind kind_of = Kind::link;
    Link() : Object(kind_of) {}

    CodeUnits units;
    std::vector<std::byte> image;  // once complete
    // Where the caller wants to read of errors; it promises to keep them until the link is destroyed.
    std::vector<CUjit_option> options;
    void** values = nullptr;

    CUresult report(CUresult result, const std::string& error) {
        if (result == CUDA_SUCCESS) return result;
        set_last_error(error);
        fill_jit_logs(static_cast<unsigned>(options.size()), options.data(), values, error);
        return result;
    }
};

// As add_units_of_image(), but of so many bytes.
CUresult read_input(CUjitInputType type, std::span<const std::byte> data, const std::string& name, CodeUnits& units,
                    std::string& error) {
    switch (type) {
        case CU_JIT_INPUT_PTX:
            if (fatbin::image_kind(data) != fatbin::Image::ptx)
                return error = name + " is no PTX", CUDA_ERROR_INVALID_IMAGE;
            units.push_back({name, {reinterpret_cast<const char*>(data.data()), data.size()}});
            return CUDA_SUCCESS;
        case CU_JIT_INPUT_FATBINARY:
            return add_units_of_container(data, name, units, error);
        case CU_JIT_INPUT_CUBIN:
            return add_units_of_elf(data, units, error);
        case CU_JIT_INPUT_OBJECT:
            return add_units_of_object(data, name, units, error);
        case CU_JIT_INPUT_LIBRARY:
            return add_units_of_archive(data, name, units, error);
        default:
            error = "this is no kind of input that can be linked";
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult add(Link& link, CUjitInputType type, std::span<const std::byte> data, const char* name) {
    std::string error;
    CodeUnits added;
    std::string called = name && *name ? name : "input " + std::to_string(link.units.size() + 1);
    if (CUresult result = read_input(type, data, called, added, error)) return link.report(result, error);
    for (auto& unit : added) {
        unit.text = unit.text.c_str();  // programs may count the NUL at its end
        if (auto sound = ptx::check(unit.text); !sound)
            return link.report(CUDA_ERROR_INVALID_PTX, unit.name + ", " + sound.error().what);
    }
    for (auto& unit : added) link.units.push_back(std::move(unit));
    return CUDA_SUCCESS;
}

CUresult add_file(Link& link, CUjitInputType type, const char* path) {
    UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    std::vector<std::byte> content;
    std::byte piece[65536];
    ssize_t got = 0;
    while ((got = read(file.get(), piece, sizeof piece)) > 0 && content.size() < fatbin::image_bytes_max)
        content.insert(content.end(), piece, piece + got);
    return got < 0 ? CUDA_ERROR_FILE_NOT_FOUND : add(link, type, content, path);
}

CUresult complete(Link& link) {
    Code code;
    std::string error;
    if (CUresult result = compile_units(link.units, code, error)) return link.report(result, error);
    link.image = linked_image(link.units);
    return CUDA_SUCCESS;
}

template <class Call>
CUresult on_link(CUlinkState state, Call&& call) {
    return in_context([&](Context&) -> CUresult {
        auto link = find<Link>(state);
        return link ? call(*link) : CUDA_ERROR_INVALID_HANDLE;
    });
}

}  // namespace
}  // namespace tnr::emulated

using namespace tnr::emulated;

CUresult cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
    return in_context([&](Context& context) -> CUresult {
        if (!state || (count && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
        auto link = driver().registry.add(std::make_shared<Link>());
        if (count) link->options.assign(options, options + count);
        link->values = values;
        context.own(link->handle());
        *state = link->as<CUlinkState>();
        return CUDA_SUCCESS;
    });
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name, unsigned,
                          CUjit_option*, void**) {
    return on_link(state, [&](Link& link) -> CUresult {
        if (!data || size == 0 || !link.image.empty()) return CUDA_ERROR_INVALID_VALUE;
        return add(link, type, {static_cast<const std::byte*>(data), size}, name);
    });
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned, CUjit_option*, void**) {
    return on_link(state, [&](Link& link) -> CUresult {
        if (!path || !link.image.empty()) return CUDA_ERROR_INVALID_VALUE;
        return add_file(link, type, path);
    });
}

CUresult cuLinkComplete(CUlinkState state, void** image, size_t* size) {
    return on_link(state, [&](Link& link) -> CUresult {
        if (!image || link.units.empty()) return CUDA_ERROR_INVALID_VALUE;
        if (link.image.empty())
            if (CUresult error = complete(link)) return error;
        *image = link.image.data();
        if (size) *size = link.image.size();
        return CUDA_SUCCESS;
    });
}

CUresult cuLinkDestroy(CUlinkState state) {
    return on_link(state, [&](Link& link) {
        return driver().registry.remove(link.handle()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    });
}

CUresult cuLinkCreate(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
    return cuLinkCreate_v2(count, options, values, state);
}
CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                       unsigned count, CUjit_option* options, void** values) {
    return cuLinkAddData_v2(state, type, data, size, name, count, options, values);
}
CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned count, CUjit_option* options,
                       void** values) {
    return cuLinkAddFile_v2(state, type, path, count, options, values);
}
