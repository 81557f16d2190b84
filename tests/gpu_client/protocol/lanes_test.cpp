// Data on several connections: it comes whole and in order, whatever overtakes what, and whichever connection breaks.
#include "gpu_client/protocol/lanes.hpp"

#include <limits>
#include <random>
#include <thread>

#include "gpu_client/protocol/ops.hpp"
#include "tests/gpu_client/protocol/ends.hpp"
#include "tests/gpu_client/protocol/kept.hpp"
#include "tests/gpu_client/protocol/raw_client.hpp"

using namespace tnr;
using namespace tnr::wire;
using namespace tnr::test;
using namespace std::chrono_literals;

namespace {

constexpr size_t large_bytes = 160 << 10;

// How much data comes with batch number i: none, little, much, and all between.
size_t striped_bytes(uint64_t i) {
    std::minstd_rand random(static_cast<unsigned>(i));
    random.discard(3);
    switch (random() % 4) {
        case 0:
            return 0;
        case 1:
            return 1 + random() % lane_batch_bytes_min;
        case 2:
            return lane_batch_bytes_min + random() % (large_bytes - lane_batch_bytes_min);
        default:
            return large_bytes;
    }
}

// Its number, and then numbers that look random, from a place that neighbours do not have: made anew for each batch, they would
// take most of this test's time.
void fill(zmq::message_t& data, uint64_t i) {
    constexpr size_t places = 4096;
    static const auto numbers = [] {
        std::vector<uint64_t> all(places + large_bytes / sizeof(uint64_t));
        std::mt19937_64 random(1);
        for (auto& each : all) each = random();
        return all;
    }();
    std::memcpy(data.data(), &numbers[i % places], data.size());
    std::memcpy(data.data(), &i, std::min(sizeof i, data.size()));
}

void send_striped(Link& link, uint64_t i) {
    size_t bytes = striped_bytes(i);
    auto frame = numbered(i, bytes > 0 ? record_has_bulk : 0);
    Frames bulk;
    if (bytes > 0) fill(bulk.emplace_back(bytes), i);
    link.send(frame, std::move(bulk));
}

bool is_striped(const Batch& batch, uint64_t i) {
    size_t bytes = striped_bytes(i);
    if (number_in(batch) != i || batch.frames.size() != (bytes > 0 ? 2 : 1)) return false;
    if (bytes == 0) return true;
    zmq::message_t wanted(bytes);
    fill(wanted, i);
    return batch.frames[1] == wanted;
}

// One end of a session: sends `count` batches as its credit allows, receives as many, and tells how many were right.
class End {
public:
    End(Link& link, std::atomic<uint64_t>& count) : link_(link), count_(count) {}

    // Until both are done. `each` is called for each that has come.
    template <class Each>
    void run(Each&& each) {
        for (Batch batch; sent_ < count_ || right_ < count_ || link_.kept() > 0;) {
            while (sent_ < count_ && link_.has_credit()) send_striped(link_, ++sent_);
            auto event = link_.receive(batch, 20s);
            if (event == Link::Event::timeout || event == Link::Event::malformed) return;
            if (event != Link::Event::batch || right_ >= count_) continue;
            if (!is_striped(batch, right_ + 1)) return;
            link_.worked_off(batch.header.sequence);
            ++right_;
            each();
        }
    }
    uint64_t sent() const { return sent_; }
    uint64_t right() const { return right_; }

private:
    Link& link_;
    std::atomic<uint64_t>& count_;
    std::atomic<uint64_t> sent_{0}, right_{0};
};

// Both ends at work, until each has received all. The server's thread stays until the client knows that all has arrived.
struct Both {
    std::atomic<uint64_t> count;
    End there, back;
    Both(Ends& ends, uint64_t batches) : count(batches), there(*ends.server, count), back(*ends.client, count) {}

    template <class Each>
    void run(Ends& ends, Each&& each) {
        std::atomic<bool> done{false};
        std::thread server([&] {  // no assertions in here: Catch's are for one thread
            there.run([] {});
            for (Batch batch; !done;) (void)ends.server->receive(batch, 10ms);
        });
        back.run(each);
        // The last receipts may have been cut off.
        auto give_up = std::chrono::steady_clock::now() + 20s;
        for (Batch batch; ends.server->kept() > 0 && std::chrono::steady_clock::now() < give_up;) {
            auto word = numbered(0);
            ends.client->send(word, {});
            (void)ends.client->receive(batch, 10ms);
        }
        done = true;
        server.join();
    }
};

void wait_for_lanes(Ends& ends, size_t lanes) {
    for (Batch batch; ends.client->lanes_up() != lanes || ends.server->lanes_up() != lanes;) {
        auto event = ends.server->receive(batch, 10ms);
        REQUIRE((event != Link::Event::malformed && event != Link::Event::batch));
    }
}

void break_again_and_again(int breaks) {
    constexpr size_t lanes = 3;
    Ends ends(true, lanes);
    Kept kept(*ends.client, {.refused = 60s});
    std::mt19937_64 random(7);
    Both both(ends, std::numeric_limits<uint64_t>::max());
    int noticed = 0, while_striped = 0;
    bool was_striped = true;
    auto cut_at = std::chrono::steady_clock::now();
    // On a slow machine fewer of them hit copies that are striped: then it goes on.
    auto enough = [&] {
        return kept.interruptions >= breaks && (while_striped >= breaks / 2 || kept.interruptions >= 4 * breaks);
    };
    both.run(ends, [&] {
        if (enough() && both.count == std::numeric_limits<uint64_t>::max())
            both.count = std::max(both.there.sent(), both.back.sent()) + 100;  // what broke last comes again, too
        // Has the cut before been noticed? It may have hit a connection that was on its way out.
        auto now = std::chrono::steady_clock::now();
        if (enough() || (kept.interruptions == noticed && now - cut_at < 10ms)) return;
        // Mostly in the middle of copies that are striped, now and then while the lanes are still being dialled, or where
        // there are to be none.
        bool striped = ends.client->lanes_up() == lanes;
        if (!striped && now - cut_at < 10s && (!was_striped || random() % 8 != 0)) return;
        while_striped += striped && kept.interruptions != noticed;
        was_striped = striped;
        noticed = kept.interruptions;
        cut_at = now;
        ends.cut_one(random());
    });
    CHECK(both.there.right() == both.count);
    CHECK(both.back.right() == both.count);
    CHECK(kept.interruptions >= breaks);
    CHECK(while_striped >= breaks / 2);
    for (Batch batch; ends.client->lanes_up() < lanes;) {  // they come back
        (void)ends.client->receive(batch, 1ms);
        if (std::chrono::steady_clock::now() - cut_at < 10s) continue;
        cut_at = std::chrono::steady_clock::now();
        ends.cut_one(random());
    }
}

// A worker's end that offers two lanes.
struct Worker {
    zmq::context_t context{3};
    uint16_t port = 0;
    std::unique_ptr<Link> link;

    Worker() {
        auto served = Channel::serve(context, listening(port), {}, "session", 2);
        REQUIRE(served);
        link = std::make_unique<Link>(std::move(*served));
    }
};

}  // namespace

TEST_CASE("data of both ways travels over the lanes in equal parts, and arrives whole and in order", "[lanes]") {
    size_t lanes = GENERATE(1, 2, 4);
    Ends ends(GENERATE(false, true), lanes);
    Kept kept(*ends.client);
    wait_for_lanes(ends, lanes);
    constexpr uint64_t count = 120;
    Both both(ends, count);
    both.run(ends, [] {});
    CHECK(both.there.right() == count);
    CHECK(both.back.right() == count);
    CHECK(kept.interruptions == 0);
    uint64_t data = 0, small = 0;
    for (uint64_t i = 1; i <= count; ++i) (striped_bytes(i) >= lane_batch_bytes_min ? data : small) += striped_bytes(i);
    auto is_share = [&](uint64_t bytes) {
        return bytes + 2 * large_bytes > data / lanes && bytes < data / lanes + 2 * large_bytes;
    };
    for (size_t lane = 1; lane <= lanes; ++lane) {
        CHECK(is_share(ends.client->traffic(lane).sent));
        CHECK(is_share(ends.server->traffic(lane).sent));
        CHECK(ends.client->traffic(lane).received == ends.server->traffic(lane).sent);
        CHECK(ends.server->traffic(lane).received == ends.client->traffic(lane).sent);
    }
    CHECK(ends.client->traffic(0).sent < small + lane_batch_bytes_min);
}

TEST_CASE("nothing is lost or doubled whichever connection breaks", "[lanes]") {
    break_again_and_again(25);
}

TEST_CASE("nor if it breaks 200 times", "[.][lanes-full]") {
    break_again_and_again(200);
}

TEST_CASE("a session with lanes goes on without those that say nothing", "[lanes]") {
    Worker worker;
    RawClient main(worker.context, worker.port, "session/1/0"), silent(worker.context, worker.port, "session/1/1");
    // Other names are no lanes of this session.
    for (const char* name : {"session/1/3", "session/1/", "session/1", "session/1/1/1", "session/0/1", "session/-1/1",
                             "session/99999999999999999999/1", "session1/1", "other/1/1"})
        RawClient(worker.context, worker.port, name).say(1, 1, 666);
    main.say(0, op_hello, 1);
    main.say(1, 1, 1);
    CHECK(number_in(next_batch(*worker.link)) == 1);
    main.say(2, 1, 2, piece_bytes_max);
    CHECK(number_in(next_batch(*worker.link)) == 2);
    CHECK(worker.link->lanes_up() == 0);
    auto frame = numbered(1, record_has_bulk);
    Frames bulk;
    bulk.emplace_back(piece_bytes_max);
    worker.link->send(frame, std::move(bulk));
    CHECK(worker.link->traffic(0).sent > piece_bytes_max);
}

TEST_CASE("what makes no sense on a lane ends the session", "[lanes]") {
    Worker worker;
    RawClient main(worker.context, worker.port, "session/1/0"), lane(worker.context, worker.port, "session/1/1");
    main.say(0, op_hello, 1);
    REQUIRE(next_event(*worker.link) == Link::Event::connected);
    SECTION("a hello") {
        lane.say(0, op_hello, 1);
    }
    SECTION("a lane of another connection") {
        lane.say(0, op_lane, 2);
    }
    SECTION("a lane that is the main connection") {
        main.say(0, op_lane, 1);
    }
    SECTION("a hello that is another connection's") {
        main.say(0, op_hello, 2);
    }
    CHECK(next_event(*worker.link) == Link::Event::malformed);
}

TEST_CASE("a client that leaves out a batch is not waited for with all that follows", "[lanes]") {
    Worker worker;
    RawClient main(worker.context, worker.port, "session/1/0");
    main.say(0, op_hello, 1);
    REQUIRE(next_event(*worker.link) == Link::Event::connected);
    SECTION("much data") {
        constexpr uint64_t fit = overtaking_bytes_max / piece_bytes_max;
        for (uint64_t i = 2; i <= fit + 2; ++i) main.say(i, 1, i, piece_bytes_max);
    }
    SECTION("many batches") {
        for (uint64_t i = 2; i <= overtaking_batches_max + 2; ++i) main.say(i, 1, i);
    }
    uint64_t waiting = 0;
    auto event = Link::Event::receipt;
    for (; event == Link::Event::receipt; event = next_event(*worker.link)) ++waiting;
    CHECK(event == Link::Event::malformed);
    CHECK(waiting >= window_bytes / piece_bytes_max);  // an honest sender's window
}

TEST_CASE("what has come before its turn waits for it, once", "[lanes]") {
    Overtakers overtakers;
    auto batch = [](uint64_t sequence, size_t bytes) {
        Batch made;
        made.header.sequence = sequence;
        made.bytes = bytes;
        return made;
    };
    Batch taken;
    CHECK_FALSE(overtakers.take(1, taken));
    CHECK(overtakers.put(batch(3, 100)));
    CHECK(overtakers.put(batch(2, overtaking_bytes_max - 100)));
    CHECK(overtakers.put(batch(3, 0)));  // sent again: the first one stays
    CHECK_FALSE(overtakers.put(batch(4, 1)));
    CHECK(overtakers.take(2, taken));
    CHECK_FALSE(overtakers.take(2, taken));
    CHECK(overtakers.put(batch(4, 1)));
    CHECK(overtakers.take(3, taken));
    CHECK(taken.bytes == 100);
    CHECK(overtakers.take(4, taken));
    CHECK(overtakers.empty());
}

TEST_CASE("lanes are used in equal parts, those of the present connection only", "[lanes]") {
    Lanes lanes;
    CHECK(lanes.pick(1, piece_bytes_max) == 0);
    lanes.up(2, 1);
    CHECK(lanes.pick(1, piece_bytes_max) == 2);
    CHECK(lanes.pick(1, lane_batch_bytes_min - 1) == 0);
    lanes.up(1, 1);
    CHECK(lanes.count_up(1) == 2);
    CHECK(lanes.pick(1, piece_bytes_max) == 1);  // the new one need not catch up
    CHECK(lanes.pick(1, piece_bytes_max) == 2);
    CHECK(lanes.pick(1, lane_batch_bytes_min) == 1);
    CHECK(lanes.pick(1, lane_batch_bytes_min) == 2);
    lanes.up(1, 2);
    lanes.up(1, 1);  // a late word of the connection before
    CHECK(lanes.count_up(2) == 1);
    CHECK(lanes.pick(2, piece_bytes_max) == 1);
    CHECK(lanes.pick(3, piece_bytes_max) == 0);
}

TEST_CASE("a way that always breaks when there are lanes on it gets none until it breaks without them", "[lanes]") {
    LaneDials dials(2);
    auto connect = [&](int connections) {
        dials.begin();
        for (int i = 0; i < connections; ++i) CHECK(dials.shaken() == static_cast<size_t>(i));
    };
    for (int i = 0; i < 3 * lane_failures_max; ++i) connect(0);  // the way itself is broken
    for (int i = 0; i < lane_failures_max - 1; ++i) {
        connect(2);
        CHECK(dials.next() == 2);
    }
    connect(3);
    CHECK(dials.next() == 0);
    for (int i = 0; i < lane_failures_max; ++i) {
        connect(1);
        CHECK(dials.next() == 1);
    }
    connect(1);
    CHECK(dials.next() == 0);
    connect(1);
    CHECK(dials.next() == 1);
}

TEST_CASE("lanes are for machines with cores", "[lanes]") {
    CHECK(lanes_for_cores(0) == 0);  // unknown
    CHECK(lanes_for_cores(2) == 0);
    CHECK(lanes_for_cores(4) == 2);
    CHECK(lanes_for_cores(64) == lanes_max);
}
