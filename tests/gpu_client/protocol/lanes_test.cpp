// Data on several connections: it comes whole and in order, whatever overtakes what, and whichever connection breaks.
#include "gpu_client/protocol/lanes.hpp"

#include <limits>
#include <random>
#include <thread>

#include "gpu_client/protocol/ops.hpp"
#include "tests/gpu_client/protocol/ends.hpp"
#include "tests/gpu_client/protocol/kept.hpp"

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

void fill(zmq::message_t& data, uint64_t i) {
    auto* bytes = data.data<std::byte>();
    for (size_t at = 0; at < data.size(); at += sizeof i) {
        uint64_t value = i * 0x9e3779b97f4a7c15 + at;
        std::memcpy(bytes + at, &value, std::min(sizeof value, data.size() - at));
    }
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
        for (Batch batch; ends.server->kept() > 0;) {
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
    std::chrono::steady_clock::time_point cut_at{};
    both.run(ends, [&] {
        if (kept.interruptions >= breaks && both.count == std::numeric_limits<uint64_t>::max())
            both.count = std::max(both.there.sent(), both.back.sent()) + 100;  // what broke last comes again, too
        // Has the cut before been noticed? It may have hit a connection that was on its way out.
        auto now = std::chrono::steady_clock::now();
        if (kept.interruptions >= breaks || (kept.interruptions == noticed && now - cut_at < 10ms)) return;
        // Mostly in the middle of copies that are striped, now and then while the lanes are still being dialled.
        bool striped = ends.client->lanes_up() == lanes;
        if (!striped && (!was_striped || random() % 8 != 0)) return;
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
    for (Batch batch; ends.client->lanes_up() < lanes;) (void)ends.client->receive(batch, 1ms);  // they are back
}

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
    break_again_and_again(40);
}

TEST_CASE("nor if it breaks 200 times", "[.][lanes-full]") {
    break_again_and_again(200);
}
