// How a record's payload is written and read: by one list of its fields, on both sides. A record is a struct like
//
//     template <class Side = Numbers>
//     struct RecordEvent {
//         static constexpr uint16_t op = op_cuEventRecordWithFlags;
//         static constexpr auto way = CallWay::async_;
//         typename Side::Event event{};
//         typename Side::Stream stream{};
//         uint32_t flags = 0;
//         auto fields() { return std::tie(event, stream, flags); }
//     };
//
// `Side` says what the names of things are. In the client they are Numbers. The worker reads the same bytes into
// RecordEvent<Resolved> (gpu_server/worker/handles.hpp), where they are the driver's handles: its handlers never see a
// number that stands for nothing.
//
// A field is a plain value, a text, bytes (a view into the message), a List, or a struct with fields of its own. What a
// call answers is its `Reply`. A record with `open_end = true` is followed by data that it describes.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "gpu_client/protocol/wire.hpp"

namespace tnr::wire {

struct Numbers {
    using Context = uint64_t;
    using Stream = uint64_t;  // 0 (null) and 1 (legacy) are the driver's own; minted ones start at first_minted_stream
    using Event = uint64_t;
    using Library = uint64_t;
    using Kernel = uint64_t;  // function_number()
    using Link = uint64_t;
    using Allocation = uint64_t;
    using Graph = uint64_t;
    using GraphNode = uint64_t;
    using GraphExec = uint64_t;
    using UserObject = uint64_t;
    using GreenContext = uint64_t;
    using ResourceDescription = uint64_t;
    using TextureReference = uint64_t;
    using SurfaceReference = uint64_t;
    using Array = uint64_t;           // 0: none
    using MipmappedArray = uint64_t;  // 0: none
    using Device = uint32_t;          // in the order of the session's answer
};
// The number that the client has chosen for something that the record makes. Nothing else of its kind has it.
using NewNumber = uint64_t;
// What the driver made by itself, such as the nodes of a captured graph, the worker numbers: from here on.
inline constexpr uint64_t first_number_of_worker = uint64_t{1} << 63;
// The most entries of an array or a list in a call of the table: what fits into a record, whatever the entries are.
inline constexpr uint64_t list_items_max = 16384;

// u32 count, then the items. Reading more than Max fails.
template <class Item, uint32_t Max>
struct List : std::vector<Item> {
    using std::vector<Item>::vector;
};

using Data = std::span<const std::byte>;  // u32 length, then the bytes

template <class T>
concept HasFields = requires(T value) {
    value.fields();
};
template <class T>
concept OpenEnded = requires {
    T::open_end;
};

// ---- writing ----

template <class T>
void write_field(Writer& out, const T& field);

template <HasFields Record>
void write(Writer& out, const Record& record) {
    // fields() serves both directions; this one changes nothing.
    std::apply([&](const auto&... field) { (write_field(out, field), ...); }, const_cast<Record&>(record).fields());
}

inline void write_field(Writer& out, const std::string_view& text) {
    out.put_string(text);
}
inline void write_field(Writer& out, const Data& bytes) {
    out.put_bytes(bytes.data(), bytes.size());
}
template <class Item, uint32_t Max>
void write_field(Writer& out, const List<Item, Max>& items) {
    out.put(static_cast<uint32_t>(items.size()));
    for (auto& item : items) write_field(out, item);
}
template <class T>
void write_field(Writer& out, const T& field) {
    if constexpr (HasFields<T>)
        write(out, field);
    else
        out.put(field);
}

template <HasFields Record>
Bytes payload_of(const Record& record) {
    Bytes payload;
    Writer out(payload);
    write(out, record);
    return payload;
}

// The same, with room for the call number in front: for ClientSession::request().
template <HasFields Record>
Bytes question_of(const Record& record) {
    Bytes payload(sizeof(uint64_t));
    Writer out(payload);
    write(out, record);
    return payload;
}

// payload_of() on the stack, for records of plain values only: for the most frequent calls.
template <HasFields Record>
auto packed(const Record& record) {
    return std::apply(
        [](const auto&... field) {
            std::array<std::byte, (sizeof field + ...)> bytes;
            size_t at = 0;
            ((std::memcpy(bytes.data() + at, &field, sizeof field), at += sizeof field), ...);
            static_assert((std::is_trivially_copyable_v<std::remove_reference_t<decltype(field)>> && ...));
            return bytes;
        },
        const_cast<Record&>(record).fields());
}

// ---- reading ----

// False if the bytes are no such field. `In` is a Reader, or anything with get(), string(), bytes(), left() and ok():
// the worker's Decoder has a read_field() of its own that resolves names, inside lists and structs as well.
template <class In, class T>
bool read_field(In& in, T& field);

template <class In>
bool read_field(In& in, std::string_view& text) {
    text = in.string();
    return in.ok();
}
template <class In>
bool read_field(In& in, Data& bytes) {
    bytes = in.bytes();
    return in.ok();
}
template <class In, class Item, uint32_t Max>
bool read_field(In& in, List<Item, Max>& items) {
    auto count = in.template get<uint32_t>();
    if (count > Max || count > in.left()) return false;  // an item takes at least one byte
    items.resize(count);
    for (auto& item : items)
        if (!read_field(in, item)) return false;
    return true;
}
template <class In, class T>
bool read_field(In& in, T& field) {
    if constexpr (HasFields<T>) {
        return std::apply([&](auto&... part) { return (read_field(in, part) && ...); }, field.fields());
    } else {
        field = in.template get<T>();
        return in.ok();
    }
}

// True if all of the record was read and nothing is left.
template <HasFields Record>
bool read(Reader& in, Record& record) {
    return read_field(in, record) && in.finished();
}

}  // namespace tnr::wire
