// Memory that graphs allocate when they run. The worker's driver chooses its address: a graph's memory is the driver's,
// like the graph. The client learns the address with the node, and keeps it free in its own process.
#pragma once

#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::wire {

inline constexpr uint32_t peers_max = 64;  // GPUs of a session

template <class Side = Numbers>
struct AllocationWork {
    typename Side::Device device{};
    uint64_t bytes = 0;
    List<uint32_t, peers_max> peers;  // devices that may use it, too
    auto fields() { return std::tie(device, bytes, peers); }
};
struct AddressReply {
    uint64_t address = 0;
    auto fields() { return std::tie(address); }
};
template <class Side = Numbers>
struct AddAllocationNode : AddNode<op_cuGraphAddMemAllocNode, Side, AllocationWork<Side>> {
    using Reply = AddressReply;
};
struct ShownAllocation {
    AllocationWork<Numbers> work;
    uint64_t address = 0;
    auto fields() { return std::tie(work, address); }
};
template <class Side = Numbers>
using GetAllocationNode = GetNode<op_cuGraphMemAllocNodeGetParams, Side, ShownAllocation>;

// Of a stream that is being captured.
template <class Side = Numbers>
struct CaptureAllocation {
    static constexpr uint16_t op = op_cuMemAllocAsync;
    static constexpr auto way = CallWay::sync;
    typename Side::Stream stream{};
    uint64_t bytes = 0;
    auto fields() { return std::tie(stream, bytes); }
    using Reply = AddressReply;
};
// Memory of a graph: in a stream, captured or not, or now.
template <class Side = Numbers>
struct FreeGraphMemory {
    static constexpr uint16_t op = op_cuMemFreeAsync;
    static constexpr auto way = CallWay::sync;
    typename Side::Stream stream{};
    uint64_t address = 0;
    auto fields() { return std::tie(stream, address); }
};
struct FreeGraphMemoryNow {
    static constexpr uint16_t op = op_cuMemFree_v2;
    static constexpr auto way = CallWay::sync;
    uint64_t address = 0;
    auto fields() { return std::tie(address); }
};

template <class Side = Numbers>
struct GetGraphMemory {
    static constexpr uint16_t op = op_cuDeviceGetGraphMemAttribute;
    static constexpr auto way = CallWay::sync;
    typename Side::Device device{};
    uint32_t attribute = 0;
    auto fields() { return std::tie(device, attribute); }
    struct Reply {
        uint64_t value = 0;
        auto fields() { return std::tie(value); }
    };
};
template <class Side = Numbers>
struct SetGraphMemory {
    static constexpr uint16_t op = op_cuDeviceSetGraphMemAttribute;
    static constexpr auto way = CallWay::sync;
    typename Side::Device device{};
    uint32_t attribute = 0;
    uint64_t value = 0;
    auto fields() { return std::tie(device, attribute, value); }
};

}  // namespace tnr::wire
