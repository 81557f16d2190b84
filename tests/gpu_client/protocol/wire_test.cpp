// Records and batches: what one side writes the other reads, and what nobody wrote is refused.
#include "tests/support/catch.hpp"

#include "gpu_client/protocol/wire.hpp"

using namespace tnr::wire;

static Bytes batch_with(std::initializer_list<uint16_t> flags) {
    Bytes frame(sizeof(BatchHeader));
    Writer writer(frame);
    uint32_t bulk = 0;
    for (auto flag : flags) {
        writer.begin_record(7, flag);
        writer.put(uint64_t{42});
        writer.end_record();
        bulk += (flag & record_has_bulk) != 0;
    }
    BatchHeader header{1, 0, 0, static_cast<uint32_t>(frame.size() - sizeof header), bulk};
    std::memcpy(frame.data(), &header, sizeof header);
    return frame;
}

TEST_CASE("records come out of a batch as they went in", "[wire]") {
    auto frame = batch_with({record_wants_reply, 0, record_has_bulk});
    BatchHeader header{};
    std::span<const std::byte> records;
    REQUIRE(parse_batch(frame, 1, header, records));
    RecordReader reader(records);
    Record record;
    std::vector<uint16_t> flags;
    while (reader.next(record)) {
        CHECK(record.op == 7);
        Reader payload(record.payload);
        CHECK(payload.get<uint64_t>() == 42);
        CHECK(payload.finished());
        flags.push_back(record.flags);
    }
    CHECK_FALSE(reader.malformed());
    CHECK(flags == std::vector<uint16_t>{record_wants_reply, 0, record_has_bulk});
}

TEST_CASE("a batch is refused", "[wire]") {
    BatchHeader header{};
    std::span<const std::byte> records;
    auto frame = batch_with({record_has_bulk, 0});

    SECTION("when it came with other frames than its records name") {
        CHECK_FALSE(parse_batch(frame, 0, header, records));
        CHECK_FALSE(parse_batch(frame, 2, header, records));
    }
    SECTION("when it is cut anywhere") {
        for (size_t size = 0; size < frame.size(); ++size)
            CHECK_FALSE(parse_batch(std::span(frame).first(size), 1, header, records));
    }
    SECTION("when bytes follow the records") {
        frame.push_back({});
        CHECK_FALSE(parse_batch(frame, 1, header, records));
    }
    SECTION("when a record claims more than there is") {
        uint32_t huge = 0xffffffff;
        std::memcpy(frame.data() + sizeof(BatchHeader) + offsetof(RecordHeader, payload_bytes), &huge, sizeof huge);
        CHECK_FALSE(parse_batch(frame, 1, header, records));
    }
    SECTION("when it is larger than any batch may be") {
        Bytes large(batch_bytes_max + 1);
        CHECK_FALSE(parse_batch(large, 0, header, records));
    }
}

TEST_CASE("a reader that ran short stays empty and says so", "[wire]") {
    Bytes bytes(6);
    Reader reader(bytes);
    CHECK(reader.get<uint64_t>() == 0);
    CHECK(reader.get<uint16_t>() == 0);  // two bytes would be there, but the stream is lost already
    CHECK_FALSE(reader.ok());
    CHECK_FALSE(reader.finished());
}

TEST_CASE("a hostile length is refused before anything is allocated", "[wire]") {
    Bytes bytes;
    Writer(bytes).put(uint32_t{0xfffffff0});
    Reader reader(bytes);
    CHECK(reader.bytes().empty());
    CHECK_FALSE(reader.ok());
}
