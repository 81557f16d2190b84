// How much a sender may keep unreceived.
#include "gpu_client/protocol/pace.hpp"

#include <deque>

#include "tests/support/catch.hpp"

using tnr::wire::Pace;
using namespace std::chrono_literals;

namespace {

constexpr size_t least = 2 << 20, most = 64 << 20, batch = 64 << 10;

// A line that carries so many bytes a millisecond, whose answers take `delay` at least; its sender always has more to send.
struct Line {
    Pace pace{least, most};
    Pace::Clock::time_point now{}, idle_from{};
    std::deque<std::pair<Pace::Mark, Pace::Clock::time_point>> under_way;  // and when word of it is back

    void run(std::chrono::nanoseconds delay, size_t bytes_per_ms, int batches) {
        for (int sent = 0; sent < batches;) {
            if (under_way.size() * batch < pace.limit()) {
                idle_from = std::max(idle_from, now) + std::chrono::nanoseconds(batch * 1'000'000 / bytes_per_ms);
                under_way.emplace_back(pace.mark(now), idle_from + delay);
                ++sent;
                continue;
            }
            now = under_way.front().second;
            pace.arrived(batch, under_way.front().first, now);
            under_way.pop_front();
        }
    }
};

}  // namespace

TEST_CASE("a short line is kept full with the least", "[pace]") {
    Line line;
    line.run(50us, 1 << 20, 5000);
    CHECK(line.pace.limit() == least);
}

TEST_CASE("a long line gets what it carries within one answer, twice", "[pace]") {
    Line line;
    line.run(30ms, 200 << 10, 5000);  // 200 MB/s for 30 ms: 6 MiB
    CHECK(line.pace.limit() >= size_t{6} << 20);
    CHECK(line.pace.limit() <= size_t{14} << 20);
}

TEST_CASE("a receiver that takes its time makes nobody keep more", "[pace]") {
    Line line;
    line.run(50us, 1 << 20, 100);
    line.run(50us, 1 << 10, 5000);  // each batch now waits behind many others
    CHECK(line.pace.limit() == least);
}

TEST_CASE("the window is the most, and a new connection begins anew", "[pace]") {
    Line line;
    line.run(500ms, 10 << 20, 5000);
    CHECK(line.pace.limit() == most);
    line.pace.new_connection();
    CHECK(line.pace.limit() == least);
}
