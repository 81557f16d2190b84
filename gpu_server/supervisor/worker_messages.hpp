// What a worker says to the supervisor, out of the bytes of a packet; workers.hpp lists it, and what is answered.
//
// A worker has been fed by a stranger, who may have taken it over: these are foreign bytes. What is not exactly of this form
// is nonsense, and ends the worker. A number is whole, and none is negative; a text is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpu_client/protocol/device_description.hpp"
#include "gpu_client/protocol/image_hash.hpp"

namespace tnr::server {

struct WorkerReady {
    std::vector<DeviceDescription> devices;
};
struct ClientConnected {};
struct ClientAway {
    bool away = false;
};
// Since it serves. Each within claim_use_max.
struct WorkerUse {
    int64_t bytes_up = 0, bytes_down = 0;
    int64_t busy_ms = 0;
};
struct MemoryWish {
    size_t device = 0;  // of the worker's own; it may have none of that number
    uint64_t bytes = 0;
    uint64_t ticket = 0;
    bool exactly = false;  // nothing on top
};
struct MemoryBack {
    size_t device = 0;  // as in MemoryWish
    uint64_t bytes = 0;
};
struct LastWord {
    std::string why;  // for people
};

// exchange.hpp says what these are for. Names are those of things: 32 hexadecimal digits.
enum class ThingKind { memory, multicast, event };
struct Lend {
    std::string name;
    ThingKind kind = ThingKind::memory;
    size_t device = 0;   // but of events: as in MemoryWish
    uint64_t bytes = 0;  // likewise
    uint64_t ticket = 0;
};
struct Borrow {
    std::string name;
    ThingKind kind = ThingKind::memory;
    uint64_t ticket = 0;
};
struct Withdraw {
    std::string name;
    uint64_t ticket = 0;
};
struct Return {
    std::string name;
};
using ExchangeMessage = std::variant<Lend, Borrow, Withdraw, Return>;

struct FindImage {
    wire::ImageHash hash;
    uint64_t bytes = 0;
    uint64_t ticket = 0;
};
struct KeepImage {
    wire::ImageHash hash;
    uint64_t bytes = 0;
};
struct DamagedImage {
    wire::ImageHash hash;
};
using ImageMessage = std::variant<FindImage, KeepImage, DamagedImage>;

using WorkerMessage = std::variant<WorkerReady, ClientConnected, ClientAway, WorkerUse, MemoryWish, MemoryBack,
                                   LastWord, ExchangeMessage, ImageMessage>;

// Nothing: it makes no sense.
std::optional<WorkerMessage> parse_worker_message(std::string_view text);

}  // namespace tnr::server
