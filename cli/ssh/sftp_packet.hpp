// SFTP's binary format: big-endian numbers, strings with a length in front. Reading checks every length; what is
// cut short or absurd turns `ok` false and yields zeros, never a read beyond the packet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/ssh/sftp.hpp"

namespace tnr::ssh {

namespace packet {
enum Type : uint8_t {
    init = 1,
    version = 2,
    open = 3,
    close = 4,
    read = 5,
    write = 6,
    lstat = 7,
    fstat = 8,
    setstat = 9,
    fsetstat = 10,
    opendir = 11,
    readdir = 12,
    remove = 13,
    mkdir = 14,
    rmdir = 15,
    realpath = 16,
    stat = 17,
    readlink = 19,
    symlink = 20,
    status = 101,
    handle = 102,
    data = 103,
    name = 104,
    attrs = 105,
    extended = 200,
    extended_reply = 201,
};
}  // namespace packet

// What OpenSSH's server sends at most; a larger length is a broken or hostile peer.
inline constexpr size_t sftp_packet_bytes_max = size_t{256} << 10;

struct PacketWriter {
    std::string bytes;

    PacketWriter& number(uint32_t value) {
        for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
        return *this;
    }
    PacketWriter& number64(uint64_t value) {
        return number(static_cast<uint32_t>(value >> 32)).number(static_cast<uint32_t>(value));
    }
    PacketWriter& text(std::string_view value) {
        number(static_cast<uint32_t>(value.size()));
        bytes.append(value);
        return *this;
    }
    PacketWriter& attributes(const Attributes& value);
};

struct PacketReader {
    std::string_view rest;
    bool ok = true;

    uint8_t byte();
    uint32_t number();
    uint64_t number64();
    std::string text();
    Attributes attributes();
};

// The body of a reply, after its type and id.
Reply parse_reply(uint8_t type, PacketReader& in);

}  // namespace tnr::ssh
