// Texture and surface objects: the descriptors of cuda.h, checked and turned into what the processor samples.
#pragma once

#include "gpu_server/emulated_gpu/driver/array.hpp"

namespace tnr::emulated {

inline bool is_filter(CUfilter_mode mode) {
    return mode == CU_TR_FILTER_MODE_POINT || mode == CU_TR_FILTER_MODE_LINEAR;
}

// Kernels name these by value, so one that the program has destroyed stays until all work that may name it is done.
class KernelObject : public Object {
public:
    KernelObject(Kind kind, Context& owner) : Object(kind), context(owner) {}
    Context& context;
    std::atomic<bool> destroyed{false};
};
// Frees the destroyed objects of the context if it has no work.
void sweep_destroyed(Context& context);
// False if another thread was faster.
bool destroy_later(KernelObject& object);

class TextureObject : public KernelObject {
public:
    static constexpr Kind kind_of = Kind::texture;
    TextureObject(Context& owner, const CUDA_RESOURCE_DESC& of, const CUDA_TEXTURE_DESC& as,
                  const CUDA_RESOURCE_VIEW_DESC* seen_as, std::shared_ptr<const ptx::Texture> built)
        : KernelObject(kind_of, owner),
          resource(of),
          description(as),
          has_view(seen_as != nullptr),
          view(seen_as ? *seen_as : CUDA_RESOURCE_VIEW_DESC{}),
          texture(std::move(built)) {}

    const CUDA_RESOURCE_DESC resource;
    const CUDA_TEXTURE_DESC description;
    const bool has_view;
    const CUDA_RESOURCE_VIEW_DESC view;
    const std::shared_ptr<const ptx::Texture> texture;
};

class SurfaceObject : public KernelObject {
public:
    static constexpr Kind kind_of = Kind::surface;
    SurfaceObject(Context& owner, const CUDA_RESOURCE_DESC& of, std::shared_ptr<const ptx::Image> built)
        : KernelObject(kind_of, owner), resource(of), image(std::move(built)) {}

    const CUDA_RESOURCE_DESC resource;
    const std::shared_ptr<const ptx::Image> image;
};

// `view` may be null. Fails as cuTexObjectCreate does.
CUresult make_texture(Context& context, const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& description,
                      const CUDA_RESOURCE_VIEW_DESC* view, std::shared_ptr<const ptx::Texture>& texture);
CUresult make_surface(const CUDA_RESOURCE_DESC& resource, std::shared_ptr<const ptx::Image>& image);

}  // namespace tnr::emulated
