// Taking received batches apart. Everything here reads foreign bytes; tests/fuzz/wire_fuzz.cpp feeds it nonsense.
#include "gpu_client/protocol/wire.hpp"

namespace tnr::wire {

bool RecordReader::next(Record& record) {
    if (malformed_ || in_.left() == 0) return false;
    auto header = in_.get<RecordHeader>();
    record.op = header.op;
    record.flags = header.flags;
    record.payload = in_.raw(header.payload_bytes);
    malformed_ = !in_.ok() || header.payload_bytes > record_bytes_max;
    return !malformed_;
}

// How many records of a batch claim a bulk frame; -1 when they are not records at all.
static long count_bulk_records(std::span<const std::byte> records) {
    long count = 0;
    RecordReader reader(records);
    for (Record record; reader.next(record);) count += (record.flags & record_has_bulk) != 0;
    return reader.malformed() ? -1 : count;
}

bool parse_batch(std::span<const std::byte> frame, size_t bulk_frames, BatchHeader& header,
                 std::span<const std::byte>& records) {
    if (frame.size() > batch_bytes_max || bulk_frames > batch_frames_max) return false;
    Reader reader(frame);
    header = reader.get<BatchHeader>();
    records = reader.raw(header.record_bytes);
    if (!reader.finished() || header.bulk_frames != bulk_frames) return false;
    return count_bulk_records(records) == static_cast<long>(bulk_frames);
}

}  // namespace tnr::wire
