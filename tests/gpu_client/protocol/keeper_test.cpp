// A link whose connection is cut, again and again, and one that is not coming back.
#include <thread>

#include "tests/gpu_client/protocol/ends.hpp"
#include "tests/gpu_client/protocol/kept.hpp"

using namespace tnr;
using namespace tnr::wire;
using namespace tnr::test;
using namespace std::chrono_literals;

namespace {

constexpr uint64_t batches = 1200, cut_every = 97, bulk_every = 4;
constexpr size_t bulk_bytes = 40'000;

// Batch number i, with data that tells i when i is a multiple.
void send(Link& link, uint64_t i) {
    bool has_bulk = i % bulk_every == 0;
    auto frame = numbered(i, has_bulk ? record_has_bulk : 0);
    Frames bulk;
    if (has_bulk) std::memset(bulk.emplace_back(bulk_bytes).data(), static_cast<int>(i % 251), bulk_bytes);
    link.send(frame, std::move(bulk));
}

bool is_number(const Batch& batch, uint64_t i) {
    if (number_in(batch) != i || batch.frames.size() != (i % bulk_every == 0 ? 2 : 1)) return false;
    if (i % bulk_every != 0) return true;
    auto* data = batch.frames[1].data<unsigned char>();
    return batch.frames[1].size() == bulk_bytes && data[0] == i % 251 && data[bulk_bytes - 1] == i % 251;
}

// Receives all batches and answers each; `at` is told of each. The number of batches that were as they must be.
template <class At>
uint64_t receive_all(Link& link, At&& at) {
    uint64_t next = 1;
    for (Batch batch; next <= batches;) {
        auto event = link.receive(batch, 20s);
        if (event == Link::Event::timeout || event == Link::Event::malformed) break;
        if (event != Link::Event::batch) continue;
        if (!is_number(batch, next)) break;
        link.worked_off(batch.header.sequence);
        at(next++);
    }
    return next - 1;
}

}  // namespace

TEST_CASE("every batch arrives once and in order, however often the connection is cut", "[keeper]") {
    Ends ends(GENERATE(false, true));
    Kept kept(*ends.client);
    uint64_t there = 0;
    std::thread server([&] {  // no assertions in here: Catch's are for one thread
        there = receive_all(*ends.server, [&](uint64_t i) {
            send(*ends.server, i);
            if (i % cut_every == 0) ends.cut();
        });
        // The last answers may have been cut off: they are sent again when the client asks.
        Batch batch;
        while (ends.server->kept() > 0 && ends.server->receive(batch, 20s) != Link::Event::timeout) continue;
    });
    for (uint64_t i = 1; i <= batches; ++i) send(*ends.client, i);
    uint64_t back = receive_all(*ends.client, [](uint64_t) {});
    auto last_word = numbered(0);  // takes the last receipt along
    ends.client->send(last_word, {});
    server.join();
    CHECK(there == batches);
    CHECK(back == batches);
    CHECK(kept.interruptions >= 1);
    CHECK(ends.server->kept() == 0);
}

TEST_CASE("messages of several frames that nobody has taken when the connection breaks are taken whole", "[keeper]") {
    Ends ends;
    Kept kept(*ends.client);
    REQUIRE(next_event(*ends.server) == Link::Event::connected);
    constexpr uint64_t many = 100;  // ZeroMQ heeds what its threads say at every hundredth frame that is taken
    constexpr size_t frame_header_bytes = 2;
    size_t bytes = 0;
    for (uint64_t i = 1; i <= many; ++i) {
        auto frame = numbered(i);
        Writer writer(frame);
        Frames bulk;
        for (int part = 0; part < 3; ++part) {
            writer.begin_record(1, record_has_bulk);
            writer.end_record();
            bulk.emplace_back(8);
            bytes += 8 + frame_header_bytes;
        }
        bytes += frame.size() + frame_header_bytes;
        ends.server->send(frame, std::move(bulk));
    }
    ends.wait_for_bytes_at_client(bytes);
    ends.cut();
    kept.interruptions.wait(0);
    std::atomic<bool> done{false};
    std::thread server([&] {  // welcomes the client again
        for (Batch batch; !done;) (void)ends.server->receive(batch, 10ms);
    });
    uint64_t whole = 0;
    while (whole < many) {
        auto batch = next_batch(*ends.client);
        if (number_in(batch) != whole + 1 || batch.frames.size() != 4) break;
        ++whole;
    }
    done = true;
    server.join();
    CHECK(whole == many);
}

TEST_CASE("memory that a frame refers to is free when it has been received, not when it was sent", "[keeper]") {
    Ends ends;
    Kept kept(*ends.client);
    std::atomic<bool> free{false};
    std::string memory(bulk_bytes, 'a');
    auto frame = numbered(1, record_has_bulk);
    Frames bulk;
    bulk.emplace_back(
        memory.data(), memory.size(), [](void*, void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &free);
    ends.client->send(frame, std::move(bulk));
    // Sent it has been: the hello before it is here. But then the connection breaks, and takes the data with it.
    REQUIRE(next_event(*ends.server) == Link::Event::connected);
    ends.cut();
    CHECK_FALSE(free);
    std::atomic<bool> done{false};
    Batch arrived;
    std::thread server([&] {
        for (Batch batch; !done;)
            if (ends.server->receive(batch, 10ms) == Link::Event::batch) arrived = std::move(batch);
    });
    while (ends.client->kept() > 0) CHECK(next_event(*ends.client) != Link::Event::timeout);
    while (!free) std::this_thread::yield();  // ZeroMQ's thread lets go of it last
    done = true;
    server.join();
    REQUIRE(arrived.frames.size() == 2);
    CHECK(arrived.frames[1].size() == bulk_bytes);
}

TEST_CASE("a worker that has ended is not waited for", "[keeper]") {
    Ends ends;
    Kept kept(*ends.client, {.grace = 60s, .refused = 50ms});
    REQUIRE(next_event(*ends.server) == Link::Event::connected);
    ends.server.reset();
    CHECK(kept.lost() == "the GPU's worker has ended");
}

TEST_CASE("a worker whose port is another's by now is not waited for", "[keeper]") {
    Ends ends(true);
    Kept kept(*ends.client, {.grace = 10s, .refused = 50ms});
    REQUIRE(next_event(*ends.server) == Link::Event::connected);
    UniqueFd port(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    ::setsockopt(port.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(ends.port);
    ends.server.reset();
    while (::bind(port.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::this_thread::yield();
    REQUIRE(::listen(port.get(), 16) == 0);
    zmq::context_t others;
    auto other = Channel::serve(others, port.release(), make_key_pair(), "another session");
    REQUIRE(other);
    CHECK(kept.lost() == "the GPU's worker has ended");
}

TEST_CASE("a worker that does not answer is given up after the grace period", "[keeper]") {
    zmq::context_t context{1};
    uint16_t port = 0;
    UniqueFd silent(listening(port));  // the kernel accepts; nobody speaks
    auto link = dialled(context, port);
    Kept kept(*link, {.grace = 200ms, .attempt = 50ms});
    // The first connection breaks when what listens is told to.
    UniqueFd accepted(::accept(silent.get(), nullptr, nullptr));
    accepted.reset();
    CHECK(kept.lost() == "the connection to the GPU's worker broke and did not come back");
}

TEST_CASE("a stranger who knocks and leaves is not the client", "[keeper]") {
    Ends ends;
    REQUIRE(next_event(*ends.server) == Link::Event::connected);
    {
        UniqueFd stranger(::socket(AF_INET, SOCK_STREAM, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(ends.port);
        REQUIRE(::connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    }
    ends.client.reset();
    CHECK(next_event(*ends.server) == Link::Event::disconnected);
    CHECK(next_event(*ends.server, 100ms) == Link::Event::timeout);
}
