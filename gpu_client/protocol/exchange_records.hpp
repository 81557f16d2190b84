// What processes of one claim give each other: memory and events. Whoever knows the name of a thing may have it, in the
// same claim; the supervisor keeps the things by their names (gpu_server/supervisor/exchange.hpp).
#pragma once

#include "gpu_client/protocol/call_records.hpp"

namespace tnr::wire {

using ThingName = std::array<uint8_t, 16>;  // random

// Memory that the client has put there (op_memory_map).
struct LendMemory {
    static constexpr uint16_t op = op_cuIpcGetMemHandle;
    static constexpr auto way = CallWay::sync;
    uint64_t address = 0;
    auto fields() { return std::tie(address); }
    struct Reply {
        ThingName name{};
        uint64_t offset = 0;  // of the address in what has this name
        auto fields() { return std::tie(name, offset); }
    };
};

template <uint16_t Op, class Thing>
struct Lend {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    Thing named{};
    auto fields() { return std::tie(named); }
    struct Reply {
        ThingName name{};
        auto fields() { return std::tie(name); }
    };
};
template <class Side = Numbers>
using LendAllocation = Lend<op_cuMemExportToShareableHandle, typename Side::Allocation>;
template <class Side = Numbers>
using LendEvent = Lend<op_cuIpcGetEventHandle, typename Side::Event>;

struct BorrowMemory {
    static constexpr uint16_t op = op_cuMemImportFromShareableHandle;
    static constexpr auto way = CallWay::sync;
    NewNumber allocation = 0;
    ThingName name{};
    auto fields() { return std::tie(allocation, name); }
    struct Reply {
        uint32_t device = 0;
        uint64_t bytes = 0;
        auto fields() { return std::tie(device, bytes); }
    };
};
struct BorrowEvent {
    static constexpr uint16_t op = op_cuIpcOpenEventHandle;
    static constexpr auto way = CallWay::sync;
    NewNumber event = 0;
    ThingName name{};
    auto fields() { return std::tie(event, name); }
};

}  // namespace tnr::wire
