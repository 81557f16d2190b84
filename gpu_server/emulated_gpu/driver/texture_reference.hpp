// Texture and surface references: variables of modules (`.texref`, `.surfref`) that programs of before CUDA 12 bind to
// images. A launch takes along what is bound when it is made.
#pragma once

#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/texture.hpp"

namespace tnr::emulated {

class Module;

struct TextureBinding {
    bool bound = false;
    CUDA_RESOURCE_DESC resource{};
    CUDA_TEXTURE_DESC description{};
    CUarray_format format = CU_AD_FORMAT_FLOAT;  // of the memory it will be bound to
    unsigned channels = 1;
};
struct SurfaceBinding {
    bool bound = false;
    CUDA_RESOURCE_DESC resource{};
};

template <class Binding, Kind K>
class ReferenceObject : public Object {
public:
    static constexpr Kind kind_of = K;
    ReferenceObject() : Object(kind_of) {}

    Binding get() const {
        LockGuard lock(mutex_);
        return binding_;
    }
    // All or nothing.
    template <class Change>
    CUresult change(Change&& change) {
        LockGuard lock(mutex_);
        Binding changed = binding_;
        CUresult result = change(changed);
        if (result == CUDA_SUCCESS) binding_ = changed;
        return result;
    }

private:
    mutable Mutex mutex_;
    Binding binding_ TNR_GUARDED_BY(mutex_);
};
using TextureReference = ReferenceObject<TextureBinding, Kind::texture_reference>;
using SurfaceReference = ReferenceObject<SurfaceBinding, Kind::surface_reference>;

// A module's references by the index of their variable; each is made when it is first asked for.
class ModuleReferences {
public:
    std::shared_ptr<TextureReference> texture(size_t index);
    std::shared_ptr<SurfaceReference> surface(size_t index);
    // What is bound now; null: nothing.
    std::shared_ptr<const BoundReferences> bound(Module& module);
    void unload();

private:
    Mutex mutex_;
    std::map<size_t, std::shared_ptr<TextureReference>> textures_ TNR_GUARDED_BY(mutex_);
    std::map<size_t, std::shared_ptr<SurfaceReference>> surfaces_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::emulated
