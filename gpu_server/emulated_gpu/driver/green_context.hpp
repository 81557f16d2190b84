// Green contexts: views of a device's primary context with some of its multiprocessors. Here they are the primary
// context in everything but their names and numbers: kernels run on the CPU's cores all the same.
#pragma once

#include <atomic>
#include <memory>

#include "gpu_server/emulated_gpu/driver/context.hpp"

namespace tnr::emulated {

// Some multiprocessors of a device, as the private part of a CUdevResource says it.
struct Multiprocessors {
    uint64_t mark = 0;  // tells what we have filled in from what we have not
    int device = -1;
    int first = 0, count = 0;
    uint64_t split = 0;  // in which call they were split off; 0: they are all that a device or a green context has
};

CUdevResource as_resource(const Multiprocessors& some);
// CUDA_ERROR_INVALID_RESOURCE_TYPE or CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION when it is not one of ours.
CUresult read_resource(const CUdevResource& resource, Multiprocessors& some);

// What cuDevResourceGenerateDesc makes. CUDA has no call to destroy one.
class ResourceDescription : public Object {
public:
    static constexpr Kind kind_of = Kind::resource_description;
    explicit ResourceDescription(const Multiprocessors& chosen) : Object(kind_of), some(chosen) {}
    const Multiprocessors some;
};

class GreenContext : public Object {
public:
    static constexpr Kind kind_of = Kind::green_context;

    // A new one, which holds the primary context until it ends.
    static std::shared_ptr<GreenContext> create(Context& primary, const Multiprocessors& some);
    // False if somebody else has ended it. Its streams answer CUDA_ERROR_CONTEXT_IS_DESTROYED from then on.
    bool end();
    void dismiss() override;

    Context& primary;
    const Multiprocessors some;
    const uint64_t id;
    bool alive() const { return alive_; }
    // The CUcontext that stands for it.
    CUcontext converted() const { return reinterpret_cast<CUcontext>(converted_); }

private:
    GreenContext(Context& owner, const Multiprocessors& chosen);

    uint64_t converted_ = 0;  // a second name of the primary context
    std::atomic<bool> alive_{true};
};

// Null if the handle is no green context's converted one.
std::shared_ptr<GreenContext> converted_from(CUcontext handle);
// The one that this thread has made current, or null.
std::shared_ptr<GreenContext> current_green_context();

template <class Call>
CUresult on_green(CUgreenCtx handle, Call&& call) noexcept {
    return initialized([&]() -> CUresult {
        auto green = find<GreenContext>(handle);
        if (!green) return CUDA_ERROR_INVALID_CONTEXT;
        if (!green->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (CUresult error = green->primary.status()) return error;
        return call(green);
    });
}

}  // namespace tnr::emulated
