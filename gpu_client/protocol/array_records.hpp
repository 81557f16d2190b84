// The records of calls about arrays, textures and surfaces. Arrays have numbers; a texture or surface object is the
// driver's own value, since kernels get it as a parameter. record.hpp explains `Side`.
#pragma once

#include "gpu_client/protocol/call_records.hpp"
#include "gpu_client/protocol/ops.hpp"
#include "gpu_client/protocol/tiled_arrays.hpp"

namespace tnr::wire {

// CUDA_ARRAY3D_DESCRIPTOR, and what the array is charged to the session's memory.
struct ArrayShape {
    uint64_t width = 0, height = 0, depth = 0;
    uint32_t format = 0, channels = 0, flags = 0;
    uint64_t charged_bytes = 0;
    auto fields() { return std::tie(width, height, depth, format, channels, flags, charged_bytes); }

    CUDA_ARRAY3D_DESCRIPTOR described() const {
        return {width, height, depth, static_cast<CUarray_format>(format), channels, flags};
    }
};
inline ArrayShape shape_of(const CUDA_ARRAY3D_DESCRIPTOR& described, uint64_t charged_bytes) {
    return {described.Width,       described.Height, described.Depth, static_cast<uint32_t>(described.Format),
            described.NumChannels, described.Flags,  charged_bytes};
}

template <class Side = Numbers>
struct CreateArray {
    static constexpr uint16_t op = op_cuArray3DCreate_v2;
    static constexpr auto way = CallWay::sync;
    NewNumber array = 0;
    typename Side::Device device{};
    ArrayShape shape;
    auto fields() { return std::tie(array, device, shape); }
};
template <class Side = Numbers>
struct CreateMipmappedArray {
    static constexpr uint16_t op = op_cuMipmappedArrayCreate;
    static constexpr auto way = CallWay::sync;
    NewNumber array = 0;
    typename Side::Device device{};
    ArrayShape shape;
    uint32_t levels = 0;
    auto fields() { return std::tie(array, device, shape, levels); }
};
// Levels go with what they are levels of.
template <class Side = Numbers>
struct GetArrayLevel {
    static constexpr uint16_t op = op_cuMipmappedArrayGetLevel;
    static constexpr auto way = CallWay::async_;
    NewNumber array = 0;
    typename Side::MipmappedArray of{};
    uint32_t level = 0;
    auto fields() { return std::tie(array, of, level); }
};
// Planes go with what they are planes of. What they look like the driver tells.
template <class Side = Numbers>
struct GetArrayPlane {
    static constexpr uint16_t op = op_cuArrayGetPlane;
    static constexpr auto way = CallWay::sync;
    NewNumber array = 0;
    typename Side::Array of{};
    uint32_t plane = 0;
    auto fields() { return std::tie(array, of, plane); }
    using Reply = ArrayShape;
};
template <class Side = Numbers>
using DestroyArray = Names<op_cuArrayDestroy, CallWay::async_, typename Side::Array>;
template <class Side = Numbers>
using DestroyMipmappedArray = Names<op_cuMipmappedArrayDestroy, CallWay::async_, typename Side::MipmappedArray>;

struct ArrayRequirements {
    uint64_t size = 0, alignment = 0;
    auto fields() { return std::tie(size, alignment); }
};
template <uint16_t Op, class Thing, class Device>
struct GetRequirements {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    Thing array{};
    Device device{};
    auto fields() { return std::tie(array, device); }
    using Reply = ArrayRequirements;
};
template <class Side = Numbers>
using GetArrayRequirements =
    GetRequirements<op_cuArrayGetMemoryRequirements, typename Side::Array, typename Side::Device>;
template <class Side = Numbers>
using GetMipmapRequirements =
    GetRequirements<op_cuMipmappedArrayGetMemoryRequirements, typename Side::MipmappedArray, typename Side::Device>;

// ---- sparse arrays, and those that are mapped later ----

// CUDA_ARRAY_SPARSE_PROPERTIES
struct SparseProperties {
    std::array<uint32_t, 3> tile{};
    uint32_t first_tail_level = 0, flags = 0;
    uint64_t tail_bytes = 0;
    auto fields() { return std::tie(tile, first_tail_level, flags, tail_bytes); }
};
template <uint16_t Op, class Thing>
struct GetSparse {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    Thing named{};
    auto fields() { return std::tie(named); }
    using Reply = SparseProperties;
};
template <class Side = Numbers>
using GetSparseArray = GetSparse<op_cuArrayGetSparseProperties, typename Side::Array>;
template <class Side = Numbers>
using GetSparseMipmap = GetSparse<op_cuMipmappedArrayGetSparseProperties, typename Side::MipmappedArray>;

// Memory of cuMemCreate for tiles of arrays.
template <class Side = Numbers>
struct CreateTilePool {
    static constexpr uint16_t op = op_create_tile_pool;
    static constexpr auto way = CallWay::sync;
    NewNumber allocation = 0;
    typename Side::Device device{};
    uint64_t bytes = 0;
    auto fields() { return std::tie(allocation, device, bytes); }
};
// One of cuMemMapArrayAsync's list: in an array or a mipmapped one.
template <class Side = Numbers>
struct MapTiles {
    static constexpr uint16_t op = op_cuMemMapArrayAsync;
    static constexpr auto way = CallWay::async_;
    typename Side::Array array{};
    typename Side::MipmappedArray mipmapped{};
    TileRegion region;
    typename Side::Device device{};
    typename Side::Stream stream{};
    typename Side::Allocation memory{};
    uint64_t offset = 0;
    auto fields() { return std::tie(array, mipmapped, region, device, stream, memory, offset); }
};
template <class Side = Numbers>
struct UnmapTiles {
    static constexpr uint16_t op = op_unmap_tiles;
    static constexpr auto way = CallWay::async_;
    typename Side::Array array{};
    typename Side::MipmappedArray mipmapped{};
    TileRegion region;
    typename Side::Device device{};
    typename Side::Stream stream{};
    auto fields() { return std::tie(array, mipmapped, region, device, stream); }
};

// ---- copies ----

// Where rows begin: in an array, or (number 0) in the device's memory, or, packed, in the data of the record.
template <class Side = Numbers>
struct RowsPlace {
    typename Side::Array array{};
    uint64_t x_bytes = 0, y = 0, z = 0;
    uint64_t address = 0, pitch = 0;
    auto fields() { return std::tie(array, x_bytes, y, z, address, pitch); }
};

// Rows of which at least one side is in an array. The data travels as CopyRows' does.
template <class Side = Numbers>
struct CopyArrayRows {
    static constexpr uint16_t op = op_cuMemcpy3DAsync_v2;
    static constexpr auto way = CallWay::async_;
    static constexpr bool open_end = true;
    RowsPlace<Side> to, from;
    uint64_t width = 0, rows = 0;
    typename Side::Stream stream{};
    CopyDirection direction = CopyDirection::on_device;
    uint32_t flags = 0;
    auto fields() { return std::tie(to, from, width, rows, stream, direction, flags); }
};

// ---- textures and surfaces ----

// CUDA_RESOURCE_DESC: `width` is the bytes of linear memory.
template <class Side = Numbers>
struct TextureResource {
    uint32_t type = 0;  // CUresourcetype
    typename Side::Array array{};
    typename Side::MipmappedArray mipmapped{};
    uint64_t address = 0;
    uint32_t format = 0, channels = 0;
    uint64_t width = 0, height = 0, pitch = 0;
    auto fields() { return std::tie(type, array, mipmapped, address, format, channels, width, height, pitch); }
};

// CUDA_TEXTURE_DESC
struct TextureDescription {
    std::array<uint32_t, 3> addressing{};
    uint32_t filter = 0, flags = 0, anisotropy = 0, level_filter = 0;
    float level_bias = 0, level_min = 0, level_max = 0;
    std::array<float, 4> border{};
    auto fields() {
        return std::tie(addressing, filter, flags, anisotropy, level_filter, level_bias, level_min, level_max, border);
    }
};

// CUDA_RESOURCE_VIEW_DESC
struct TextureView {
    uint8_t given = 0;
    uint32_t format = 0;
    uint64_t width = 0, height = 0, depth = 0;
    uint32_t first_level = 0, last_level = 0, first_layer = 0, last_layer = 0;
    auto fields() {
        return std::tie(given, format, width, height, depth, first_level, last_level, first_layer, last_layer);
    }
};

struct ImageObjectReply {
    uint64_t object = 0;
    auto fields() { return std::tie(object); }
};
template <class Side = Numbers>
struct CreateTexture {
    static constexpr uint16_t op = op_cuTexObjectCreate;
    static constexpr auto way = CallWay::sync;
    TextureResource<Side> resource;
    TextureDescription description;
    TextureView view;
    auto fields() { return std::tie(resource, description, view); }
    using Reply = ImageObjectReply;
};
template <class Side = Numbers>
struct CreateSurface {
    static constexpr uint16_t op = op_cuSurfObjectCreate;
    static constexpr auto way = CallWay::sync;
    typename Side::Array array{};
    auto fields() { return std::tie(array); }
    using Reply = ImageObjectReply;
};
// In the current context.
using DestroyTexture = Names<op_cuTexObjectDestroy, CallWay::async_, uint64_t>;
using DestroySurface = Names<op_cuSurfObjectDestroy, CallWay::async_, uint64_t>;

// ---- texture and surface references: variables of modules, from before CUDA 12 ----

template <uint16_t Op, class Library>
struct GetReference {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    NewNumber reference = 0;
    Library library{};
    std::string_view name;
    auto fields() { return std::tie(reference, library, name); }
};
template <class Side = Numbers>
using GetTextureReference = GetReference<op_cuModuleGetTexRef, typename Side::Library>;
template <class Side = Numbers>
using GetSurfaceReference = GetReference<op_cuModuleGetSurfRef, typename Side::Library>;
// One of no module.
using CreateTextureReference = Names<op_cuTexRefCreate, CallWay::sync, NewNumber>;
template <class Side = Numbers>
using DestroyTextureReference = Names<op_cuTexRefDestroy, CallWay::sync, typename Side::TextureReference>;

template <class Side = Numbers>
struct SetReferenceAddress {
    static constexpr uint16_t op = op_cuTexRefSetAddress_v2;
    static constexpr auto way = CallWay::sync;
    typename Side::TextureReference reference{};
    uint64_t address = 0, bytes = 0;
    auto fields() { return std::tie(reference, address, bytes); }
    struct Reply {
        uint64_t offset = 0;
        auto fields() { return std::tie(offset); }
    };
};
template <class Side = Numbers>
struct SetReferenceBorder {
    static constexpr uint16_t op = op_cuTexRefSetBorderColor;
    static constexpr auto way = CallWay::sync;
    typename Side::TextureReference reference{};
    std::array<float, 4> color{};
    auto fields() { return std::tie(reference, color); }
};
template <class Side = Numbers>
struct GetReferenceBorder : Names<op_cuTexRefGetBorderColor, CallWay::sync, typename Side::TextureReference> {
    struct Reply {
        std::array<float, 4> color{};
        auto fields() { return std::tie(color); }
    };
};

}  // namespace tnr::wire
