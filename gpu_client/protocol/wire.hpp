// How records are laid out in a batch: a Writer that appends and a Reader that never trusts. README.md has the picture.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gpu_client/protocol/limits.hpp"

namespace tnr::wire {

using Bytes = std::vector<std::byte>;

struct BatchHeader {
    uint64_t sequence;      // batches of one direction are numbered from 1; 0: the link's own, see link.hpp
    uint64_t acknowledged;  // the highest sequence of the other direction that the sender has worked off
    uint64_t received;      // the highest that has arrived: it need not be kept for sending it again
    uint32_t record_bytes;  // bytes of records behind this header
    uint32_t bulk_frames;   // frames that follow
};
static_assert(sizeof(BatchHeader) == 32);

enum RecordFlags : uint16_t {
    record_wants_reply = 1,  // the payload starts with a u64 call number
    record_has_bulk = 2,     // the batch's next bulk frame belongs to this record
};

struct RecordHeader {
    uint16_t op;
    uint16_t flags;
    uint32_t payload_bytes;
};
static_assert(sizeof(RecordHeader) == 8);

// Appends plain values and bytes to a buffer that it does not own.
class Writer {
public:
    explicit Writer(Bytes& out) : out_(out) {}

    template <class T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
        put_raw(&value, sizeof value);
    }
    void put_raw(const void* data, size_t size) {
        auto* bytes = static_cast<const std::byte*>(data);
        out_.insert(out_.end(), bytes, bytes + size);
    }
    // u32 length, then the bytes.
    void put_bytes(const void* data, size_t size) {
        put(static_cast<uint32_t>(size));
        put_raw(data, size);
    }
    void put_string(std::string_view text) { put_bytes(text.data(), text.size()); }

    // Opens a record; end_record() writes its length. Records do not nest.
    void begin_record(uint16_t op, uint16_t flags) {
        record_at_ = out_.size();
        put(RecordHeader{op, flags, 0});
    }
    void end_record() {
        auto length = static_cast<uint32_t>(out_.size() - record_at_ - sizeof(RecordHeader));
        std::memcpy(out_.data() + record_at_ + offsetof(RecordHeader, payload_bytes), &length, sizeof length);
    }

private:
    Bytes& out_;
    size_t record_at_ = 0;
};

// Reads values out of foreign bytes. After the first read beyond the end everything reads as zero and ok() stays false,
// so a decoder reads all it expects and asks once, at the end.
class Reader {
public:
    explicit Reader(std::span<const std::byte> in) : in_(in) {}

    template <class T>
    T get() {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
        T value{};
        auto from = raw(sizeof value);
        if (!from.empty()) std::memcpy(&value, from.data(), sizeof value);
        return value;
    }
    // A view into the message: nothing to allocate. Empty when there is less than `size` left.
    std::span<const std::byte> raw(size_t size) {
        if (size > in_.size()) {
            ok_ = false;
            in_ = {};
            return {};
        }
        auto part = in_.first(size);
        in_ = in_.subspan(size);
        return part;
    }
    std::span<const std::byte> bytes() { return raw(get<uint32_t>()); }
    std::string_view string() {
        auto text = bytes();
        return {reinterpret_cast<const char*>(text.data()), text.size()};
    }
    size_t left() const { return in_.size(); }
    bool ok() const { return ok_; }
    bool finished() const { return ok_ && in_.empty(); }  // read all, and all was there

private:
    std::span<const std::byte> in_;
    bool ok_ = true;
};

// One record of a received batch; views into the message.
struct Record {
    uint16_t op = 0;
    uint16_t flags = 0;
    std::span<const std::byte> payload;
};

// Splits frame 0 behind its header. False at the end or when the bytes are no records (malformed() tells which).
class RecordReader {
public:
    explicit RecordReader(std::span<const std::byte> records) : in_(records) {}
    bool next(Record& record);
    bool malformed() const { return malformed_; }
    bool at_end() const { return in_.left() == 0; }

private:
    Reader in_;
    bool malformed_ = false;
};

// Checks a batch's first frame against `bulk_frames`, the number of frames that really came with it. False: not a
// batch.
bool parse_batch(std::span<const std::byte> frame, size_t bulk_frames, BatchHeader& header,
                 std::span<const std::byte>& records);

}  // namespace tnr::wire
