// Records: what is declared once is what travels, and what does not fit the declaration is refused.
#include "gpu_client/protocol/record.hpp"

#include "gpu_client/protocol/code_records.hpp"
#include "gpu_client/protocol/session_records.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

template <class Record>
bool reads(std::span<const std::byte> payload, Record& record) {
    wire::Reader in(payload);
    return wire::read(in, record);
}

std::vector<unsigned> values(const wire::Bytes& bytes) {
    std::vector<unsigned> all;
    for (auto byte : bytes) all.push_back(std::to_integer<unsigned>(byte));
    return all;
}

// A side on which names are not numbers, read by something else than a Reader: as the worker's are.
struct Doubling : wire::Reader {
    using wire::Reader::Reader;
};
struct Doubled {
    uint64_t value = 0;
};
struct Doubles {
    using Event = Doubled;
    using Stream = Doubled;
};
bool read_field(Doubling& in, Doubled& doubled) {
    doubled.value = 2 * in.get<uint64_t>();
    return in.ok() && doubled.value != 0;
}
template <class Side>
struct Several {
    wire::List<typename Side::Event, 3> events;
    auto fields() { return std::tie(events); }
};

}  // namespace

TEST_CASE("a record travels as its fields, in their order, without padding", "[record]") {
    auto payload = wire::payload_of(wire::RecordEvent<>{.event = 5, .stream = 0x1122, .flags = 1});
    CHECK(values(payload) == std::vector<unsigned>{5, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0});
    wire::RecordEvent<> read_back;
    REQUIRE(reads(payload, read_back));
    CHECK(read_back.event == 5);
    CHECK(read_back.stream == 0x1122);
    CHECK(read_back.flags == 1);
}

TEST_CASE("packed() and question_of() hold the same bytes", "[record]") {
    wire::Upload<> record{.destination = 0x700000000000, .stream = 17, .flags = 3, .bytes = 4096};
    auto payload = wire::payload_of(record);
    auto packed = wire::packed(record);
    CHECK(payload == wire::Bytes(packed.begin(), packed.end()));
    auto question = wire::question_of(record);
    CHECK(payload == wire::Bytes(question.begin() + sizeof(uint64_t), question.end()));
}

TEST_CASE("a record that is too short or too long is refused", "[record]") {
    auto payload = wire::payload_of(wire::Completed{wire::Completable::stream, 16, 99, 0});
    wire::Completed completed;
    for (size_t length = 0; length < payload.size(); ++length)
        CHECK_FALSE(reads(std::span(payload).first(length), completed));
    CHECK(reads(payload, completed));
    CHECK(completed.position == 99);
    payload.push_back({});
    CHECK_FALSE(reads(payload, completed));
}

TEST_CASE("texts, bytes, lists and structs inside records", "[record]") {
    wire::KernelsDescribed described{7, {}};
    described.kernels.push_back({"add", {{0, 8}, {8, 4}}, {1024, 0, 16}});
    described.kernels.push_back({"", {}, {}});
    auto payload = wire::payload_of(described);
    wire::KernelsDescribed read_back;
    REQUIRE(reads(payload, read_back));
    REQUIRE(read_back.kernels.size() == 2);
    CHECK(read_back.call == 7);
    CHECK(read_back.kernels[0].name == "add");
    CHECK(read_back.kernels[0].parameters[1].offset == 8);
    CHECK(read_back.kernels[0].attributes[2] == 16);
    CHECK(read_back.kernels[1].name.empty());
    for (size_t length = 0; length < payload.size(); ++length)
        CHECK_FALSE(reads(std::span(payload).first(length), read_back));
}

TEST_CASE("a list longer than its limit is refused before anything is allocated for it", "[record]") {
    wire::Bytes payload;
    wire::Writer out(payload);
    out.put(uint64_t{1});                   // link
    out.put(wire::jit_options_max + 1);     // options
    payload.resize(payload.size() + 4096);  // there would be enough bytes
    wire::CreateLink link;
    CHECK_FALSE(reads(payload, link));
    CHECK(link.compiler.capacity() == 0);

    payload.clear();
    out.put(uint64_t{1});
    out.put(uint32_t{0xffffff});  // kernels, of which none is there
    wire::KernelsDescribed described;
    CHECK_FALSE(reads(payload, described));
    CHECK(described.kernels.capacity() == 0);
}

TEST_CASE("on another side names are read as what they stand for, inside lists as well", "[record]") {
    auto payload = wire::payload_of(Several<wire::Numbers>{{4, 5}});
    Doubling in(payload);
    Several<Doubles> read_back;
    REQUIRE(wire::read_field(in, read_back));
    REQUIRE(read_back.events.size() == 2);
    CHECK(read_back.events[1].value == 10);

    auto unknown = wire::payload_of(Several<wire::Numbers>{{4, 0}});
    Doubling refuses(unknown);
    CHECK_FALSE(wire::read_field(refuses, read_back));
}
