// Foreign bytes as a batch, and as the payloads of its records.
#include <cstddef>
#include <cstdint>

#include "gpu_client/protocol/wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tnr::wire;
    if (size < 1) return 0;
    std::span<const std::byte> bytes{reinterpret_cast<const std::byte*>(data + 1), size - 1};
    BatchHeader header{};
    std::span<const std::byte> records;
    if (!parse_batch(bytes, data[0] % 4, header, records)) return 0;
    RecordReader reader(records);
    size_t bulk = 0;
    for (Record record; reader.next(record);) {
        bulk += (record.flags & record_has_bulk) != 0;
        Reader payload(record.payload);
        while (payload.ok() && payload.left() > 0) {
            (void)payload.string();
            (void)payload.get<uint64_t>();
        }
    }
    // What parse_batch promised holds while reading.
    if (reader.malformed() || bulk != data[0] % 4) __builtin_trap();
    return 0;
}
