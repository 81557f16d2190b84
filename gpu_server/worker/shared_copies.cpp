// See shared_copies.hpp.
#include "gpu_server/worker/shared_copies.hpp"

#include <algorithm>
#include <optional>

#include "gpu_client/protocol/array_records.hpp"
#include "gpu_client/protocol/call_records.hpp"
#include "gpu_client/protocol/green_records.hpp"
#include "gpu_client/protocol/session_records.hpp"

namespace tnr::worker {

// A client has one in each context: more are none of ours.
static constexpr size_t streams_max = 256;

// Empty: it is another record, or none at all.
template <class Read>
static std::optional<Read> read_as(const wire::Record& record) {
    if (record.op != Read::op) return std::nullopt;
    wire::Reader in(record.payload);
    if (record.flags & wire::record_wants_reply) (void)in.get<uint64_t>();
    Read read;
    return wire::read_field(in, read) ? std::optional(read) : std::nullopt;
}

void SharedCopies::begin() {
    not_mapped_.clear();
    blocked_ = false;
}

void SharedCopies::note(uint64_t stream, uint32_t flags) {
    if ((flags & wire::copy_shared) && streams_.size() < streams_max) streams_.insert(stream);
}

bool SharedCopies::is_there(uint64_t address, uint64_t bytes) const {
    return std::ranges::none_of(not_mapped_,
                                [&](auto& range) { return address < range.second && range.first < address + bytes; });
}

bool SharedCopies::may_go(uint64_t stream, uint32_t flags, uint64_t address, uint64_t bytes) {
    note(stream, flags);
    if (!is_of(stream)) return false;
    blocked_ = !is_there(address, bytes);
    return !blocked_;
}

bool SharedCopies::may_go(const wire::Record& record) {
    if (blocked_) return false;
    if (auto map = read_as<wire::MapMemory<>>(record))
        not_mapped_.emplace_back(map->address, map->address + map->bytes);
    if (auto up = read_as<wire::Upload<>>(record)) return may_go(up->stream, up->flags, up->destination, up->bytes);
    if (auto down = read_as<wire::Download<>>(record))
        return may_go(down->stream, down->flags, down->source, down->bytes);
    // The number may have been one of these streams' before.
    if (auto made = read_as<wire::CreateStream<>>(record)) blocked_ = is_of(made->stream);
    if (auto made = read_as<wire::CreateGreenStream<>>(record)) blocked_ = is_of(made->stream);
    if (auto rows = read_as<wire::CopyRows<>>(record)) blocked_ = is_of(rows->stream);
    if (auto rows = read_as<wire::CopyArrayRows<>>(record)) blocked_ = is_of(rows->stream);
    auto wait = read_as<wire::SynchronizeStream<>>(record);
    return !blocked_ && wait && is_of(wait->named);
}

}  // namespace tnr::worker
