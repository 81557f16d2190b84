// cuLink*: one PTX text in, an image that cuModuleLoadData accepts out. What comes out is the PTX itself: it
// is compiled when it is loaded. Several inputs would need a linker, which the emulation does not have.
#include <cstring>

#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"

namespace tnr::emulated {
namespace {

class Link : public Object {
public:
    static constexpr Kind kind_of = Kind::link;
    Link() : Object(kind_of) {}

    std::string text;  // with its NUL once complete
    bool any = false, complete = false;
    // Where the caller wants to read of errors; it promises to keep them until the link is destroyed.
    std::vector<CUjit_option> options;
    void** values = nullptr;

    void report(const std::string& error) {
        set_last_error(error);
        fill_jit_logs(static_cast<unsigned>(options.size()), options.data(), values, error);
    }
};

CUresult add(Link& link, CUjitInputType type, std::string_view text) {
    if (type != CU_JIT_INPUT_PTX) {
        link.report("the emulated GPU links PTX only");
        return type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_FATBINARY || type == CU_JIT_INPUT_OBJECT ||
                       type == CU_JIT_INPUT_LIBRARY
                   ? CUDA_ERROR_NO_BINARY_FOR_GPU
                   : CUDA_ERROR_INVALID_VALUE;
    }
    if (link.any) {
        link.report("the emulated GPU cannot link several inputs");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    while (!text.empty() && text.back() == 0) text.remove_suffix(1);
    auto checked = ptx::load(text);
    if (!checked) {
        link.report(checked.error().what);
        return CUDA_ERROR_INVALID_PTX;
    }
    link.text = text;
    link.any = true;
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

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char*, unsigned,
                          CUjit_option*, void**) {
    return on_link(state, [&](Link& link) -> CUresult {
        if (!data || size == 0 || link.complete) return CUDA_ERROR_INVALID_VALUE;
        return add(link, type, {static_cast<const char*>(data), size});
    });
}

CUresult cuLinkComplete(CUlinkState state, void** image, size_t* size) {
    return on_link(state, [&](Link& link) -> CUresult {
        if (!image || !link.any) return CUDA_ERROR_INVALID_VALUE;
        link.complete = true;
        *image = link.text.data();
        if (size) *size = link.text.size() + 1;
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
