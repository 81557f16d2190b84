// Batches over real sockets: order, credit, and a receiver that is woken when another thread swallows its edge.
#include <thread>

#include "tests/gpu_client/protocol/ends.hpp"

using namespace tnr;
using namespace tnr::wire;
using namespace tnr::test;
using namespace std::chrono_literals;

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
        ends.server->worked_off(batch.header.sequence);
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
    auto small = numbered(1);
    ends.client->send(small, {});
    auto pieces = window_bytes / piece_bytes_max;
    for (size_t i = 0; i < pieces; ++i) send_piece();
    CHECK_FALSE(ends.client->has_credit());

    std::vector<uint64_t> arrived;
    for (size_t i = 0; i < 1 + pieces; ++i) {
        auto batch = next_batch(*ends.server);
        arrived.push_back(batch.header.sequence);
    }
    // It says that they have arrived, and no more than that.
    while (ends.client->kept() > 0) REQUIRE(next_event(*ends.client) == Link::Event::receipt);
    CHECK_FALSE(ends.client->has_credit());

    // Worked off last to first: nothing may be acknowledged before the first is done.
    for (size_t i = arrived.size(); i-- > 1;) ends.server->worked_off(arrived[i]);
    CHECK(ends.client->in_flight() > window_bytes / 2);
    // And then all at once, without anything else to say, small though the first was.
    ends.server->worked_off(arrived[0]);
    while (ends.client->in_flight() > 0) REQUIRE(next_event(*ends.client) == Link::Event::receipt);
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
                ends.server->worked_off(batch.header.sequence);
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
        while (event == Link::Event::woken || event == Link::Event::receipt) event = ends.client->receive(batch, 2s);
        REQUIRE(event == Link::Event::batch);
        ends.client->worked_off(batch.header.sequence);
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
    CHECK(next_event(*ends.server) == Link::Event::disconnected);
}

TEST_CASE("wake() ends a wait", "[link]") {
    Ends ends;
    CHECK(next_event(*ends.server) == Link::Event::connected);
    std::thread waker([&] { ends.server->wake(); });
    Batch batch;
    CHECK(ends.server->receive(batch, 10s) == Link::Event::woken);
    waker.join();
}
