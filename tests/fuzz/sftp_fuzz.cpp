// Foreign bytes as an SFTP server's packet: no machine may make us read beyond it, or keep more than it has sent.
#include <cstddef>
#include <cstdint>

#include "cli/ssh/sftp_packet.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tnr::ssh;
    PacketReader in{{reinterpret_cast<const char*>(data), size}};
    uint8_t type = in.byte();
    Reply reply = parse_reply(type, in);
    size_t kept = reply.message.size() + reply.bytes.size();
    for (const auto& entry : reply.names) kept += entry.name.size() + 12;  // its three lengths, at least
    if (kept > size && reply.ok()) __builtin_trap();
    return 0;
}
