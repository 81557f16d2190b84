// The first ten bytes of a ZMTP 3 connection: 0xff, eight that ZMTP 3 has no use for, 0x7f. ZeroMQ puts a length of ZMTP 1 into
// the eight, between 1 and 256. Where a server has one port for everything, a client puts a number there that says whom it
// wants: the one it was told for its session's worker (gpu_server/supervisor/front_door.hpp).
//
// A worker says there whose it is, before it is asked for anything. So a client that dials again learns that the port is another
// worker's by now: that one closes the connection, as a failing path would, for it cannot even read the client's handshake.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tnr::wire {

inline constexpr size_t greeting_start_bytes = 10;
inline constexpr unsigned char greeting_first_byte = 0xff, greeting_last_byte = 0x7f;
// Smaller ones are ZeroMQ's own.
inline constexpr uint64_t first_greeting_number = uint64_t{1} << 62;

using GreetingStart = std::array<unsigned char, greeting_start_bytes>;

inline GreetingStart greeting_with(uint64_t number) {
    GreetingStart start{greeting_first_byte};
    for (size_t i = 0; i < 8; ++i) start[1 + i] = static_cast<unsigned char>(number >> (56 - 8 * i));
    start.back() = greeting_last_byte;
    return start;
}

// Nothing: these are not the first bytes of ZMTP 3.
inline std::optional<uint64_t> number_in_greeting(const GreetingStart& start) {
    if (start.front() != greeting_first_byte || start.back() != greeting_last_byte) return std::nullopt;
    uint64_t number = 0;
    for (size_t i = 0; i < 8; ++i) number = number << 8 | start[1 + i];
    return number;
}

// What the worker of this session says. The id is a secret where nothing is encrypted: its 128 bits cannot be told from these 62
// (FNV-1a).
constexpr uint64_t greeting_of_worker(std::string_view session) {
    uint64_t hash = 0xcbf29ce484222325;
    for (char c : session) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash >> 2 | first_greeting_number;
}

// An endpoint may end in such a number: "tcp://HOST:PORT#NUMBER". What ZeroMQ is to be told of it, and the number; 0: none.
struct Dialling {
    std::string endpoint;
    uint64_t number = 0;
};
inline Dialling parse_dialling(const std::string& text) {
    Dialling parts{text.substr(0, text.find('#'))};
    if (parts.endpoint.size() < text.size())
        (void)std::from_chars(text.data() + parts.endpoint.size() + 1, text.data() + text.size(), parts.number);
    return parts;
}

// libzmq's option for it, an uint64_t: of our own patch, packaging/third_party/libzmq.patch.
inline constexpr int greeting_number_option = 4004;

}  // namespace tnr::wire
