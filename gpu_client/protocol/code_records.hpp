// The records that carry code: libraries (a module is one, too: the worker loads with cuLibraryLoadData in either case)
// and links. Images travel ahead of the call that uses them, as ImageOffer or ImagePieces with the same number.
#pragma once

#include "gpu_client/protocol/call_records.hpp"
#include "gpu_client/protocol/image_hash.hpp"
#include "gpu_client/protocol/ops.hpp"

namespace tnr::wire {

// The answer to a load whose image was only offered and is not there: CUDA_ERROR_FILE_NOT_FOUND, which a driver returns
// for files only, and no load names one.
inline constexpr int image_is_unknown = 301;

// Kernels per library: far above any (the largest cubins of cuBLASLt hold a few thousand).
inline constexpr unsigned function_index_bits = 24;
constexpr uint64_t function_number(uint64_t library, uint64_t index) {
    return library << function_index_bits | index;
}

// Options of the compiler whose value is a number; the others hold addresses, which mean nothing on the other side.
constexpr bool is_plain_jit_option(uint32_t option) {
    for (uint32_t plain : {0u, 1u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 30u, 31u, 32u, 33u})
        if (option == plain) return true;
    return false;
}
inline constexpr uint32_t jit_options_max = 64;      // cuda.h 13.0 names 36
inline constexpr uint32_t library_options_max = 16;  // and 3

struct Option {
    uint32_t number = 0;
    uint64_t value = 0;
    auto fields() { return std::tie(number, value); }
};
using JitOptions = List<Option, jit_options_max>;
using LibraryOptions = List<Option, library_options_max>;

// What the driver's compiler had to say.
struct JitLogs {
    std::string_view errors, information;
    auto fields() { return std::tie(errors, information); }
};

// ---- images ----

struct ImageOffer {
    static constexpr uint16_t op = op_image_offer;
    static constexpr auto way = CallWay::async_;
    uint64_t image = 0, total = 0;
    ImageHash hash{};
    auto fields() { return std::tie(image, total, hash); }
};
// Bulk: the piece.
struct ImagePiece {
    static constexpr uint16_t op = op_image_piece;
    static constexpr auto way = CallWay::async_;
    uint64_t image = 0, offset = 0, total = 0;
    auto fields() { return std::tie(image, offset, total); }
};

// ---- libraries ----

struct KernelParameter {
    uint32_t offset = 0, size = 0;
    auto fields() { return std::tie(offset, size); }
};
// Parameters of one kernel; real kernels have under 100.
inline constexpr uint32_t kernel_parameters_max = 4096;
inline constexpr uint32_t function_attributes = 16;

struct KernelDescription {
    std::string_view name;
    List<KernelParameter, kernel_parameters_max> parameters;
    List<int32_t, function_attributes> attributes;  // CUfunction_attribute 0, 1, …
    auto fields() { return std::tie(name, parameters, attributes); }
};
// worker → client; belongs to the LoadLibrary that is being answered.
struct KernelsDescribed {
    static constexpr uint16_t op = op_kernels_described;
    uint64_t call = 0;  // number of the LoadLibrary
    List<KernelDescription, (uint32_t{1} << function_index_bits)> kernels;
    auto fields() { return std::tie(call, kernels); }
};

// The library's number is the image's. KernelsDescribed records precede the reply.
struct LoadLibrary {
    static constexpr uint16_t op = op_cuLibraryLoadData;
    static constexpr auto way = CallWay::sync;
    NewNumber library = 0;
    uint64_t image_bytes = 0;
    LibraryOptions options;
    JitOptions compiler;
    auto fields() { return std::tie(library, image_bytes, options, compiler); }
    struct Reply {
        uint32_t kernels = 0;
        JitLogs logs;
        auto fields() { return std::tie(kernels, logs); }
    };
};
template <class Side = Numbers>
using UnloadLibrary = Names<op_cuLibraryUnload, CallWay::async_, typename Side::Library>;

template <class Side = Numbers>
struct GetGlobal {
    static constexpr uint16_t op = op_cuLibraryGetGlobal;
    static constexpr auto way = CallWay::sync;
    typename Side::Library library{};
    std::string_view name;
    auto fields() { return std::tie(library, name); }
    struct Reply {
        uint64_t address = 0, bytes = 0;
        auto fields() { return std::tie(address, bytes); }
    };
};

// A managed variable. It lies among others of its code in a block that holds nothing else; the program gets all of it.
template <class Side = Numbers>
struct GetManaged {
    static constexpr uint16_t op = op_cuLibraryGetManaged;
    static constexpr auto way = CallWay::sync;
    typename Side::Library library{};
    std::string_view name;
    auto fields() { return std::tie(library, name); }
    struct Reply {
        uint64_t address = 0, bytes = 0;
        uint64_t block = 0, block_bytes = 0;
        auto fields() { return std::tie(address, bytes, block, block_bytes); }
    };
};

// ---- links ----

struct CreateLink {
    static constexpr uint16_t op = op_cuLinkCreate_v2;
    static constexpr auto way = CallWay::async_;
    NewNumber link = 0;
    JitOptions compiler;
    auto fields() { return std::tie(link, compiler); }
};
struct AddToLink {
    static constexpr uint16_t op = op_cuLinkAddData_v2;
    static constexpr auto way = CallWay::sync;
    uint64_t link = 0;  // a number on the worker's side, too: where it stands for nothing, the image must still go
    uint64_t image = 0, total = 0;
    uint32_t type = 0;  // CUjitInputType
    std::string_view name;
    JitOptions compiler;
    auto fields() { return std::tie(link, image, total, type, name, compiler); }
    using Reply = JitLogs;
};

inline constexpr size_t linked_piece_bytes_max = size_t{512} << 10;  // half of a record

// Fetches a piece of the linked image, from `offset` on.
template <class Side = Numbers>
struct CompleteLink {
    static constexpr uint16_t op = op_cuLinkComplete;
    static constexpr auto way = CallWay::sync;
    typename Side::Link link{};
    uint64_t offset = 0;
    auto fields() { return std::tie(link, offset); }
    struct Reply {
        uint64_t total = 0;
        Data piece;
        JitLogs logs;
        auto fields() { return std::tie(total, piece, logs); }
    };
};
template <class Side = Numbers>
using DestroyLink = Names<op_cuLinkDestroy, CallWay::async_, typename Side::Link>;

}  // namespace tnr::wire
