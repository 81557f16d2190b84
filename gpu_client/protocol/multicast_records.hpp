// Multicast objects: address ranges whose every byte is memory on each device of a team. An object is named as cuMemCreate's
// memory is, and released, mapped and lent by the records of that. MapAllocation and SetAccess are `sync` for one: mapping
// waits for the team, and only the team's devices may have access.
#pragma once

#include "gpu_client/protocol/exchange_records.hpp"
#include "gpu_client/protocol/ops.hpp"

namespace tnr::wire {

struct CreateMulticast {
    static constexpr uint16_t op = op_cuMulticastCreate;
    static constexpr auto way = CallWay::sync;
    NewNumber allocation = 0;
    uint32_t devices = 0;
    uint64_t bytes = 0;
    uint64_t handle_types = 0;  // CUmemAllocationHandleType
    auto fields() { return std::tie(allocation, devices, bytes, handle_types); }
};
// An object of another process. That it is one is said here: what does not wait for a team is another record's.
struct BorrowMulticast {
    static constexpr uint16_t op = op_borrow_multicast;
    static constexpr auto way = CallWay::sync;
    NewNumber allocation = 0;
    ThingName name{};
    auto fields() { return std::tie(allocation, name); }
};
template <class Side = Numbers>
struct AddToMulticast {
    static constexpr uint16_t op = op_cuMulticastAddDevice;
    static constexpr auto way = CallWay::sync;
    typename Side::Allocation object{};
    typename Side::Device device{};
    auto fields() { return std::tie(object, device); }
};
// cuMulticastBindAddr as well: the client knows what is mapped there. Answered when all devices are in the team; later
// records are replayed meanwhile.
template <class Side = Numbers>
struct BindMulticast {
    static constexpr uint16_t op = op_cuMulticastBindMem;
    static constexpr auto way = CallWay::sync;
    typename Side::Allocation object{};
    uint64_t offset = 0;
    typename Side::Allocation memory{};
    uint64_t memory_offset = 0, bytes = 0;
    auto fields() { return std::tie(object, offset, memory, memory_offset, bytes); }
};
template <class Side = Numbers>
struct UnbindMulticast {
    static constexpr uint16_t op = op_cuMulticastUnbind;
    static constexpr auto way = CallWay::sync;
    typename Side::Allocation object{};
    typename Side::Device device{};
    uint64_t offset = 0, bytes = 0;
    auto fields() { return std::tie(object, device, offset, bytes); }
};

}  // namespace tnr::wire
