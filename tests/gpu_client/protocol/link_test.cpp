// Batches over real sockets: order, credit, and a receiver that is woken when another thread swallows its edge.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <thread>
#include "tests/support/catch.hpp"

#include "gpu_client/protocol/link.hpp"

using namespace tnr;
using namespace tnr::wire;
using namespace std::chrono_literals;

namespace {

// A worker's and a client's end, connected over loopback TCP.
struct Ends {
    zmq::context_t context{1};
    std::unique_ptr<Link> server, client;
    KeyPair server_keys, client_keys;

    explicit Ends(bool encrypted = false) {
        if (encrypted) server_keys = make_key_pair(), client_keys = make_key_pair();
        int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
        REQUIRE(::listen(fd, 4) == 0);
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
        auto served = Channel::serve(context, fd, server_keys, "session");
        REQUIRE(served);
        server = std::make_unique<Link>(std::move(*served));
        ClientKeys keys;
        if (encrypted) keys = {server_keys.public_key, client_keys};
        auto endpoint = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
        auto connected = Channel::connect(context, endpoint, keys, "session");
        REQUIRE(connected);
        client = std::make_unique<Link>(std::move(*connected));
    }
};

Bytes numbered(uint64_t value) {
    Bytes frame;
    Link::begin(frame);
    Writer writer(frame);
    writer.begin_record(1, 0);
    writer.put(value);
    writer.end_record();
    return frame;
}

uint64_t number_in(const Batch& batch) {
    RecordReader reader(batch.records);
    Record record;
    REQUIRE(reader.next(record));
    return Reader(record.payload).get<uint64_t>();
}

// The next batch, waiting out events that are none.
Batch next_batch(Link& link) {
    Batch batch;
    for (int i = 0; i < 100; ++i)
        if (link.receive(batch, 5s) == Link::Event::batch) return batch;
    FAIL("no batch came");
    return batch;
}

}  // namespace

TEST_CASE("batches arrive whole, numbered and in order", "[link]") {
    Ends ends(GENERATE(false, true));
    for (uint64_t i = 1; i <= 1000; ++i) {
        auto frame = numbered(i);
        ends.client->send(frame, {});
    }
    for (uint64_t i = 1; i <= 1000; ++i) {
        auto batch = next_batch(*ends.server);
        REQUIRE(batch.header.sequence == i);
        REQUIRE(number_in(batch) == i);
        ends.server->worked_off(batch.header.sequence, batch.bytes);
    }
}

TEST_CASE("credit comes back when the other side has worked a batch off, not when it has arrived", "[link]") {
    Ends ends;
    auto send_piece = [&] {
        Bytes frame;
        Link::begin(frame);
        Writer writer(frame);
        writer.begin_record(1, record_has_bulk);
        writer.end_record();
        Frames bulk;
        bulk.emplace_back(piece_bytes_max);
        ends.client->send(frame, std::move(bulk));
    };
    auto pieces = window_bytes / piece_bytes_max;
    for (size_t i = 0; i < pieces; ++i) send_piece();
    CHECK_FALSE(ends.client->has_credit());

    std::vector<std::pair<uint64_t, size_t>> arrived;
    for (size_t i = 0; i < pieces; ++i) {
        auto batch = next_batch(*ends.server);
        arrived.emplace_back(batch.header.sequence, batch.bytes);
    }
    Batch nothing;
    CHECK(ends.client->receive(nothing, 50ms) == Link::Event::timeout);
    CHECK_FALSE(ends.client->has_credit());

    // Worked off last to first: nothing may be acknowledged before the first is done.
    for (size_t i = arrived.size(); i-- > 1;) ends.server->worked_off(arrived[i].first, arrived[i].second);
    CHECK(ends.client->in_flight() > window_bytes / 2);
    ends.server->worked_off(arrived[0].first, arrived[0].second);
    auto back = numbered(1);
    ends.server->send(back, {});
    while (ends.client->in_flight() > 0) next_batch(*ends.client);
    CHECK(ends.client->has_credit());
}

TEST_CASE("a receiver never sleeps through a message while other threads send", "[link]") {
    Ends ends;
    std::atomic<bool> stop{false};
    std::thread echo([&] {  // no assertions in here: Catch's are for one thread
        Batch batch;
        while (!stop)
            if (ends.server->receive(batch, 20ms) == Link::Event::batch) {
                auto frame = numbered(batch.header.sequence);
                ends.server->worked_off(batch.header.sequence, batch.bytes);
                ends.server->send(frame, {});
            }
    });
    // Two threads send while this one receives; each lost edge would cost a second.
    std::thread senders[2];
    for (auto& sender : senders)
        sender = std::thread([&] {
            for (uint64_t i = 0; i < 2000; ++i) {
                auto frame = numbered(i);
                ends.client->send(frame, {});
            }
        });
    for (int i = 0; i < 4000; ++i) {
        Batch batch;
        auto event = ends.client->receive(batch, 2s);
        while (event == Link::Event::woken) event = ends.client->receive(batch, 2s);
        REQUIRE(event == Link::Event::batch);
        ends.client->worked_off(batch.header.sequence, batch.bytes);
    }
    for (auto& sender : senders) sender.join();
    stop = true;
    echo.join();
}

TEST_CASE("a peer that goes away is noticed at once", "[link]") {
    Ends ends;
    auto frame = numbered(1);
    ends.client->send(frame, {});
    next_batch(*ends.server);
    ends.client.reset();
    Batch batch;
    CHECK(ends.server->receive(batch, 5s) == Link::Event::disconnected);
}

TEST_CASE("wake() ends a wait", "[link]") {
    Ends ends;
    std::thread waker([&] { ends.server->wake(); });
    Batch batch;
    CHECK(ends.server->receive(batch, 10s) == Link::Event::woken);
    waker.join();
}
