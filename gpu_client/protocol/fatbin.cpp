// The container format: a 16-byte header, then entries of {header, payload}.
#include "gpu_client/protocol/fatbin.hpp"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "gpu_client/protocol/read_at.hpp"

namespace tnr::fatbin {
namespace {

// As they stand in the file (little endian, as every machine we run on).
struct FileHeader {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t entries_bytes;  // of all entries together
};
struct EntryHeader {
    uint16_t kind;  // 1 PTX, 2 ELF
    uint16_t version;
    uint32_t header_bytes;
    uint64_t payload_bytes;  // padded; header_bytes + payload_bytes leads to the next entry
    uint32_t compressed_bytes;
    uint32_t options_offset;
    uint32_t code_version;
    uint32_t sm;
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t reserved;
    uint64_t unpacked_bytes;
};
static_assert(sizeof(FileHeader) == 16 && sizeof(EntryHeader) == 64);

constexpr uint64_t flag_old_compression = 0x1000, flag_lz4 = 0x2000, flag_zstd = 0x8000;
constexpr uint64_t flag_architecture = 0x100000, flag_family = 0x200000;

Error malformed(const std::string& what) {
    return {Error::Kind::usage, "fat binary: " + what};
}

Compression compression_of(const EntryHeader& header) {
    if (header.flags & flag_zstd) return Compression::zstd;
    if (header.flags & flag_lz4) return Compression::lz4;
    if (header.flags & flag_old_compression) return Compression::unsupported;
    return Compression::none;
}

Variant variant_of(uint64_t flags) {
    if (flags & flag_architecture) return Variant::architecture;
    if (flags & flag_family) return Variant::family;
    return Variant::plain;
}

// `bytes` is the entry alone: its header and its padded payload.
Result<Entry> parse_entry(const EntryHeader& header, std::span<const std::byte> bytes) {
    Entry entry;
    entry.kind = header.kind == 1 ? Kind::ptx : header.kind == 2 ? Kind::elf : Kind::other;
    entry.sm = header.sm;
    entry.flags = header.flags;
    entry.variant = variant_of(header.flags);
    entry.compression = compression_of(header);
    entry.payload = bytes.subspan(header.header_bytes);
    if (entry.compression != Compression::none) {
        if (header.compressed_bytes > entry.payload.size()) return malformed("an entry's code ends outside the entry");
        entry.payload = entry.payload.first(header.compressed_bytes);
        entry.unpacked_bytes = header.unpacked_bytes;
    } else {
        entry.unpacked_bytes = entry.payload.size();
    }
    if (header.name_bytes != 0 && header.name_offset < bytes.size() &&
        header.name_bytes <= bytes.size() - header.name_offset)
        entry.name = {reinterpret_cast<const char*>(bytes.data()) + header.name_offset, header.name_bytes};
    return entry;
}

Result<std::span<const std::byte>> entry_bytes(std::span<const std::byte> container) {
    auto whole = first_container(container);
    if (!whole) return whole.error();
    return whole->subspan(read_at<FileHeader>(*whole, 0)->header_bytes);
}

bool runs_on(const Entry& entry, unsigned major, unsigned minor) {
    unsigned entry_major = entry.sm / 10, entry_minor = entry.sm % 10;
    if (entry.variant == Variant::architecture) return entry_major == major && entry_minor == minor;
    bool same_family_only = entry.kind == Kind::elf || entry.variant == Variant::family;
    if (same_family_only) return entry_major == major && entry_minor <= minor;
    return entry.sm <= major * 10 + minor;
}

const Entry* best(std::span<const Entry> entries, Kind kind, unsigned major, unsigned minor) {
    const Entry* found = nullptr;
    for (const Entry& entry : entries)
        if (entry.kind == kind && runs_on(entry, major, minor) && (!found || entry.sm > found->sm)) found = &entry;
    return found;
}

Result<std::vector<std::byte>> decompress(const Entry& entry) {
    if (entry.unpacked_bytes == 0 || entry.unpacked_bytes > unpacked_bytes_max ||
        entry.unpacked_bytes / expansion_max > entry.payload.size())
        return malformed("an entry claims to unpack to " + std::to_string(entry.unpacked_bytes) + " bytes");
    std::vector<std::byte> out(entry.unpacked_bytes);
    uint64_t written = 0;
    if (entry.compression == Compression::zstd) {
        written = ZSTD_decompress(out.data(), out.size(), entry.payload.data(), entry.payload.size());
        if (ZSTD_isError(written)) return malformed(std::string("zstd: ") + ZSTD_getErrorName(written));
    } else {
        int result = LZ4_decompress_safe(reinterpret_cast<const char*>(entry.payload.data()),
                                         reinterpret_cast<char*>(out.data()), static_cast<int>(entry.payload.size()),
                                         static_cast<int>(out.size()));
        if (result < 0) return malformed("an entry's LZ4 block is damaged");
        written = static_cast<uint64_t>(result);
    }
    if (written != out.size()) return malformed("an entry unpacks to a length other than it claims");
    return out;
}

}  // namespace

Result<std::span<const std::byte>> first_container(std::span<const std::byte> bytes) {
    auto header = read_at<FileHeader>(bytes, 0);
    if (!header || header->magic != header_magic) return malformed("no header");
    if (header->header_bytes < sizeof(FileHeader) || header->header_bytes > bytes.size() ||
        header->entries_bytes > bytes.size() - header->header_bytes)
        return malformed("its header promises more bytes than there are");
    return bytes.first(header->header_bytes + header->entries_bytes);
}

Result<std::vector<Entry>> entries(std::span<const std::byte> container) {
    auto rest = entry_bytes(container);
    if (!rest) return rest.error();
    std::vector<Entry> found;
    while (rest->size() >= sizeof(EntryHeader)) {
        if (found.size() == entries_max) return malformed("more than " + std::to_string(entries_max) + " entries");
        auto header = *read_at<EntryHeader>(*rest, 0);
        if (header.header_bytes < sizeof(EntryHeader) || header.header_bytes > rest->size() ||
            header.payload_bytes > rest->size() - header.header_bytes)
            return malformed("entry " + std::to_string(found.size()) + " ends outside the file");
        uint64_t size = header.header_bytes + header.payload_bytes;
        auto entry = parse_entry(header, rest->first(size));
        if (!entry) return entry.error();
        found.push_back(*entry);
        *rest = rest->subspan(size);
    }
    return found;
}

const Entry* choose(std::span<const Entry> entries, unsigned major, unsigned minor) {
    if (const Entry* cubin = best(entries, Kind::elf, major, minor)) return cubin;
    return choose_ptx(entries, major, minor);
}

const Entry* choose_ptx(std::span<const Entry> entries, unsigned major, unsigned minor) {
    return best(entries, Kind::ptx, major, minor);
}

Result<std::vector<std::byte>> unpack(const Entry& entry) {
    if (entry.compression == Compression::unsupported)
        return malformed("compressed in a way that only toolkits before CUDA 11 used");
    auto code = entry.compression == Compression::none
                    ? Result<std::vector<std::byte>>(std::vector(entry.payload.begin(), entry.payload.end()))
                    : decompress(entry);
    if (code && entry.kind == Kind::ptx)
        while (!code->empty() && code->back() == std::byte{0}) code->pop_back();
    return code;
}

}  // namespace tnr::fatbin
