// The ends of registered memory, which the program reads and writes at any time: what of them is carried over, and what is
// left alone.
#include "gpu_client/cuda/shared_edges.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/support/catch.hpp"

using namespace tnr::cuda;

namespace {

// Words of the program's, of which some bytes are registered.
struct ProgramWords {
    alignas(8) std::array<unsigned char, 32> bytes{};
    SharedEdge edge;

    ProgramWords(size_t first, size_t count) {
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
        edge.host = reinterpret_cast<uint64_t>(&bytes[first]);
        edge.bytes = count;
        edge.known = edge.here();
    }
    ProgramWords(const ProgramWords&) = delete;
    ProgramWords& operator=(const ProgramWords&) = delete;
    // The changes, by where they are in `bytes`.
    std::vector<std::pair<size_t, size_t>> changes() {
        std::vector<std::pair<size_t, size_t>> found;
        for (auto run : edge.changed_to(edge.here())) {
            const uint64_t at = edge.host - edge.lead() + run.first;
            found.emplace_back(at - reinterpret_cast<uint64_t>(bytes.data()), run.count);
        }
        return found;
    }
    // The GPU has another byte there.
    PageBytes with(size_t at, unsigned char value) const {
        PageBytes seen = edge.known;
        seen[edge.lead() + (reinterpret_cast<uint64_t>(&bytes[at]) - edge.host)] = std::byte{value};
        return seen;
    }
};
using EdgeRuns = std::vector<std::pair<size_t, size_t>>;

}  // namespace

TEST_CASE("of an end the words that changed are carried over, from the lowest address on", "[shared edges]") {
    ProgramWords program(5, 20);
    CHECK_FALSE(program.edge.changed_here());
    program.bytes[4] = program.bytes[25] = 99;  // not registered
    CHECK_FALSE(program.edge.changed_here());
    program.bytes[20] = program.bytes[5] = 99;
    CHECK(program.edge.changed_here());
    CHECK(program.changes() == EdgeRuns{{5, 1}, {20, 1}});
    CHECK_FALSE(program.edge.changed_here());
    program.bytes[8] = program.bytes[15] = 99;  // both ends of what may be one variable: it travels whole
    CHECK(program.changes() == EdgeRuns{{8, 8}});
}

TEST_CASE("the bytes that the GPU changed are written, and nothing else", "[shared edges]") {
    ProgramWords program(5, 20);
    program.bytes[4] = program.bytes[6] = program.bytes[9] = program.bytes[25] = 99;  // beside it, meanwhile
    const auto before = program.bytes;
    for (size_t at : {5, 8, 10, 24}) {
        program.edge.take_in(program.with(at, 200));
        CHECK(program.bytes[at] == 200);
    }
    for (size_t at = 0; at < before.size(); ++at)
        if (at != 5 && at != 8 && at != 10 && at != 24) CHECK(program.bytes[at] == before[at]);
    CHECK(program.changes() == EdgeRuns{{6, 4}});  // and the GPU gets what the program has written, as words
}

TEST_CASE("what both have changed stays as the program has it", "[shared edges]") {
    ProgramWords program(8, 8);
    program.bytes[8] = 99;
    program.edge.take_in(program.with(8, 200));
    CHECK(program.bytes[8] == 99);
    CHECK(program.changes() == EdgeRuns{{8, 1}});
}

TEST_CASE("a flag in one end is not seen before what was written to another before it", "[shared edges]") {
    constexpr size_t words = 1000;
    std::vector<uint32_t> data(words), flags(words);
    Edges edges;
    for (auto* memory : {&data, &flags}) {
        auto edge = std::make_shared<SharedEdge>();
        edge->host = reinterpret_cast<uint64_t>(memory->data());
        edge->bytes = words * sizeof(uint32_t);
        edges.push_back(std::move(edge));
    }
    auto word = [](std::vector<uint32_t>& memory) { return std::atomic_ref<uint32_t>(memory[words / 2]); };
    std::atomic<uint32_t> read{0};
    constexpr uint32_t rounds = 200;
    std::thread writer([&] {
        for (uint32_t round = 1; round <= rounds; ++round) {
            word(data).store(round);
            word(flags).store(round);
            while (read.load() != round) std::this_thread::yield();
        }
    });
    auto seen = [&](const PageBytes& content, const SharedEdge& edge) {
        uint32_t value = 0;
        std::memcpy(&value, &content[edge.lead() + words / 2 * sizeof(value)], sizeof(value));
        return value;
    };
    size_t wrong = 0;
    for (uint32_t round = 1; round <= rounds;) {
        const auto content = settled_content(edges);
        if (seen(content[1], *edges[1]) != round) continue;
        wrong += seen(content[0], *edges[0]) != round;
        read = round++;
    }
    writer.join();
    CHECK(wrong == 0);
}
