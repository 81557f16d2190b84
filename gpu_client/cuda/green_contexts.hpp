// Green contexts. On the GPU each is a part of the primary context with some of its multiprocessors. Here it is the
// primary context under another name: a program converts it to a CUcontext, and that handle stands for the primary
// context wherever one is named (context_behind()). What runs on its multiprocessors alone are the streams that were
// made in it and do not wait for the null stream.
#pragma once

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

struct Device;

struct GreenContext {
    uint64_t number = 0;  // on the wire
    uint64_t handle = 0;
    uint64_t converted = 0;  // handle of the CUcontext that stands for it
    uint64_t id = 0;         // never reused
    uint64_t context = 0;    // handle of the primary context, which it holds
    int device = 0;
};
struct ConvertedContext {
    uint64_t green = 0;  // handle
};
// What cuDevResourceGenerateDesc makes. CUDA has no call to destroy one.
struct ResourceDescription {
    uint64_t number = 0;
    int device = 0;
};

using GreenContexts = HandleRegistry<GreenContext, HandleKind::green_context>;
using ConvertedContexts = HandleRegistry<ConvertedContext, HandleKind::converted_context>;
using ResourceDescriptions = HandleRegistry<ResourceDescription, HandleKind::resource_description>;
GreenContexts& green_contexts();
ResourceDescriptions& resource_descriptions();

inline GreenContext* find_green_context(CUgreenCtx handle) {
    return green_contexts().find(value_of(handle));
}
// The one that a converted context stands for; null: it is an ordinary context, or none.
GreenContext* green_context_behind(CUcontext handle);
// The one that this thread has made current, or null.
GreenContext* current_green_context();

// A handle and a number for one that is about to be made of the device's primary context.
GreenContext& enter_green_context(const Device& device);
// False: somebody else has done it.
bool forget_green_context(const GreenContext& green);
// Forgets those of a primary context that ends.
void forget_green_contexts_of(const Context& context);

}  // namespace tnr::cuda
