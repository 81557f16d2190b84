// CUDA arrays and mipmapped arrays: memory that only copies, textures and surfaces reach.
#pragma once

#include <vector>

#include "gpu_server/emulated_gpu/driver/context.hpp"
#include "gpu_server/emulated_gpu/ptx/image.hpp"

namespace tnr::emulated {

// A limit of arrays and textures, which all devices share.
size_t image_limit(CUdevice_attribute attribute);

// What a format of cuda.h means. False for those whose texels are not made of such numbers: of blocks, and of video.
bool texels_of(CUarray_format format, unsigned channels, ptx::TexelType& type, bool& fractions);

// What an array of that description is, without its levels' addresses. Fails as cuArray3DCreate does.
CUresult image_of(const CUDA_ARRAY3D_DESCRIPTOR& given, ptx::Image& image);

// The memory of an array and all its levels: taken from the device, given back by the last that uses it.
class ArrayMemory {
public:
    ArrayMemory(Device& device, uint64_t address, uint64_t bytes) : device_(device), address_(address), bytes_(bytes) {}
    ~ArrayMemory();
    ArrayMemory(const ArrayMemory&) = delete;
    ArrayMemory& operator=(const ArrayMemory&) = delete;
    uint64_t bytes() const { return bytes_; }

private:
    Device& device_;
    const uint64_t address_, bytes_;
};

class TiledMemory;

class Array : public Object {
public:
    static constexpr Kind kind_of = Kind::array;
    Array(Context& owner, const CUDA_ARRAY3D_DESCRIPTOR& described, ptx::Image whole)
        : Object(kind_of), context(owner), descriptor(described), image(std::move(whole)) {}
    void dismiss() override;

    Context& context;
    const CUDA_ARRAY3D_DESCRIPTOR descriptor;
    const ptx::Image image;                   // of one level; of no use to one in planes
    bool is_part = false;                     // a level or a plane of another, with which it goes
    std::shared_ptr<TiledMemory> tiled = {};  // null: an ordinary array, or a part
    std::vector<std::shared_ptr<Array>> planes = {};

    const ptx::ImageLevel& level() const { return image.levels[0]; }
};

class MipmappedArray : public Object {
public:
    static constexpr Kind kind_of = Kind::mipmapped_array;
    MipmappedArray(Context& owner, const CUDA_ARRAY3D_DESCRIPTOR& described, ptx::Image whole)
        : Object(kind_of), context(owner), descriptor(described), image(std::move(whole)) {}
    void dismiss() override;

    Context& context;
    const CUDA_ARRAY3D_DESCRIPTOR descriptor;
    const ptx::Image image;
    std::shared_ptr<TiledMemory> tiled = {};  // null: an ordinary one

    // The same array each time.
    std::shared_ptr<Array> level(unsigned index);

private:
    Mutex mutex_;
    std::vector<std::shared_ptr<Array>> levels_ TNR_GUARDED_BY(mutex_);
};

// Makes the planes of an array of a video format that has some.
CUresult make_planes(Array& array);

// Lays out `levels` levels and takes memory for them.
CUresult allocate_levels(Device& device, ptx::Image& image, unsigned levels, uint64_t& bytes);
// Lays them out only.
void lay_out_levels(ptx::Image& image, unsigned levels, uint64_t& bytes);

}  // namespace tnr::emulated
