// See texture_reference.hpp.
#include "gpu_server/emulated_gpu/driver/texture_reference.hpp"

#include "gpu_server/emulated_gpu/driver/module.hpp"

namespace tnr::emulated {

std::shared_ptr<TextureReference> ModuleReferences::texture(size_t index) {
    LockGuard lock(mutex_);
    auto& known = textures_[index];
    if (!known) known = driver().registry.add(std::make_shared<TextureReference>());
    return known;
}

std::shared_ptr<SurfaceReference> ModuleReferences::surface(size_t index) {
    LockGuard lock(mutex_);
    auto& known = surfaces_[index];
    if (!known) known = driver().registry.add(std::make_shared<SurfaceReference>());
    return known;
}

// A binding to an array that is gone, or to memory that was freed, is none.
std::shared_ptr<const BoundReferences> ModuleReferences::bound(Module& module) {
    LockGuard lock(mutex_);
    if (textures_.empty() && surfaces_.empty()) return nullptr;
    auto result = std::make_shared<BoundReferences>();
    for (auto& [index, reference] : textures_) {
        auto binding = reference->get();
        std::shared_ptr<const ptx::Texture> texture;
        bool usable = binding.bound && make_texture(module.context, binding.resource, binding.description, nullptr,
                                                    texture) == CUDA_SUCCESS;
        if (usable) result->textures[module.global_addresses[index]] = std::move(texture);
    }
    for (auto& [index, reference] : surfaces_) {
        auto binding = reference->get();
        std::shared_ptr<const ptx::Image> image;
        if (binding.bound && make_surface(binding.resource, image) == CUDA_SUCCESS)
            result->surfaces[module.global_addresses[index]] = std::move(image);
    }
    return result;
}

void ModuleReferences::unload() {
    LockGuard lock(mutex_);
    for (auto& [index, reference] : textures_) driver().registry.remove(reference->handle());
    for (auto& [index, reference] : surfaces_) driver().registry.remove(reference->handle());
    textures_.clear();
    surfaces_.clear();
}

}  // namespace tnr::emulated
