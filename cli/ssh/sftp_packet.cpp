// Attributes and replies, to and from bytes.
#include "cli/ssh/sftp_packet.hpp"

namespace tnr::ssh {
namespace {

constexpr uint32_t has_size = 1, has_owner = 2, has_mode = 4, has_times = 8, has_extended = 0x80000000;

Reply malformed() {
    Reply reply;
    reply.status = Status::failure;
    reply.message = "the server's reply makes no sense";
    return reply;
}

}  // namespace

PacketWriter& PacketWriter::attributes(const Attributes& value) {
    number((value.size ? has_size : 0) | (value.mode ? has_mode : 0) | (value.mtime ? has_times : 0));
    if (value.size) number64(*value.size);
    if (value.mode) number(*value.mode);
    if (value.mtime) number(*value.mtime).number(*value.mtime);  // access time, then modification time
    return *this;
}

uint8_t PacketReader::byte() {
    if (rest.empty()) return ok = false, uint8_t{0};
    auto value = static_cast<uint8_t>(rest[0]);
    rest.remove_prefix(1);
    return value;
}

uint32_t PacketReader::number() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return value;
}

uint64_t PacketReader::number64() {
    uint64_t high = number();
    return high << 32 | number();
}

std::string PacketReader::text() {
    uint32_t length = number();
    if (!ok || length > rest.size()) return ok = false, "";
    std::string value{rest.substr(0, length)};
    rest.remove_prefix(length);
    return value;
}

Attributes PacketReader::attributes() {
    Attributes value;
    uint32_t flags = number();
    if (flags & has_size) value.size = number64();
    if (flags & has_owner) number(), number();
    if (flags & has_mode) value.mode = number();
    if (flags & has_times) number(), value.mtime = number();
    if (flags & has_extended)
        for (uint32_t left = number(); left > 0 && ok; --left) text(), text();
    return value;
}

Reply parse_reply(uint8_t type, PacketReader& in) {
    Reply reply;
    if (type == packet::status) {
        reply.status = static_cast<Status>(in.number());
        if (!in.rest.empty()) reply.message = in.text();
    } else if (type == packet::handle || type == packet::data) {
        reply.bytes = in.text();
    } else if (type == packet::attrs) {
        reply.attributes = in.attributes();
    } else if (type == packet::extended_reply) {
        reply.bytes = std::string(in.rest);
    } else if (type == packet::name) {
        for (uint32_t left = in.number(); left > 0 && in.ok; --left) {
            Entry entry;
            entry.name = in.text();
            in.text();  // the same entry as `ls -l` would show it
            entry.attributes = in.attributes();
            if (in.ok) reply.names.push_back(std::move(entry));
        }
    } else {
        return malformed();
    }
    return in.ok ? reply : malformed();
}

}  // namespace tnr::ssh
