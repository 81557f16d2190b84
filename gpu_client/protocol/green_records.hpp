// Green contexts: parts of a device's primary context with some of its multiprocessors, and the resources that they are
// made of.
//
// What a CUdevResource holds means something to the driver only, and may be its own addresses. So the worker keeps each
// one that its driver has told, and the client has the number of it and the part that programs may read.
#pragma once

#include "gpu_client/protocol/call_records.hpp"

namespace tnr::wire {

inline constexpr size_t resource_told_bytes = 48;      // RESOURCE_ABI_EXTERNAL_BYTES
inline constexpr uint32_t resource_groups_max = 1024;  // of one split; no GPU has as many multiprocessors

struct DeviceResource {
    uint64_t number = 0;  // 0: nothing is left
    uint32_t type = 0;
    std::array<std::byte, resource_told_bytes> told{};
    auto fields() { return std::tie(number, type, told); }
};
struct ResourceReply {
    DeviceResource resource;
    auto fields() { return std::tie(resource); }
};

// Of a device, a context or a green context.
template <uint16_t Op, class Thing>
struct GetResource {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    Thing of{};
    uint32_t type = 0;
    auto fields() { return std::tie(of, type); }
    using Reply = ResourceReply;
};
template <class Side = Numbers>
using GetDeviceResource = GetResource<op_cuDeviceGetDevResource, typename Side::Device>;
template <class Side = Numbers>
using GetContextResource = GetResource<op_cuCtxGetDevResource, typename Side::Context>;
template <class Side = Numbers>
using GetGreenResource = GetResource<op_cuGreenCtxGetDevResource, typename Side::GreenContext>;

template <class Side = Numbers>
struct SplitResource {
    static constexpr uint16_t op = op_cuDevSmResourceSplitByCount;
    static constexpr auto way = CallWay::sync;
    uint64_t input = 0;   // number
    uint32_t counts = 0;  // 1: only say how many groups there would be
    uint32_t groups = 0;  // that the program has room for
    uint32_t flags = 0, least = 0;
    auto fields() { return std::tie(input, counts, groups, flags, least); }
    struct Reply {
        uint32_t count = 0;
        List<DeviceResource, resource_groups_max> groups;
        DeviceResource remaining;
        auto fields() { return std::tie(count, groups, remaining); }
    };
};

template <class Side = Numbers>
struct DescribeResources {
    static constexpr uint16_t op = op_cuDevResourceGenerateDesc;
    static constexpr auto way = CallWay::sync;
    NewNumber description = 0;
    List<uint64_t, resource_groups_max + 1> resources;  // numbers
    auto fields() { return std::tie(description, resources); }
};

template <class Side = Numbers>
struct CreateGreenContext {
    static constexpr uint16_t op = op_cuGreenCtxCreate;
    static constexpr auto way = CallWay::sync;
    NewNumber green = 0;
    typename Side::ResourceDescription description{};
    typename Side::Device device{};
    uint32_t flags = 0;
    auto fields() { return std::tie(green, description, device, flags); }
};
template <class Side = Numbers>
using DestroyGreenContext = Names<op_cuGreenCtxDestroy, CallWay::async_, typename Side::GreenContext>;

// A stream that does not wait for the null stream; there are no others in a green context.
template <class Side = Numbers>
struct CreateGreenStream {
    static constexpr uint16_t op = op_cuGreenCtxStreamCreate;
    static constexpr auto way = CallWay::async_;
    NewNumber stream = 0;
    typename Side::GreenContext green{};
    int32_t priority = 0;
    auto fields() { return std::tie(stream, green, priority); }
};

}  // namespace tnr::wire
