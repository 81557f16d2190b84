// Turns: one thread at a time, the others wait, and no lock is held meanwhile.
#include "api_client/base/turn.hpp"

#include <atomic>
#include <thread>

#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

// A thread that takes the turn and sees how far the other one has come. Returns once it is about to.
class Follower {
public:
    Follower(Turn& turn, const std::atomic<bool>& ended)
        : thread_([this, &turn, &ended] {
              coming_ = true;
              coming_.notify_one();
              TakenTurn mine(turn);
              came_after_ = ended.load();
          }) {
        coming_.wait(false);
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // a turn that lets it in would do so now
    }
    bool came_after() {
        thread_.join();
        return came_after_;
    }

private:
    std::atomic<bool> coming_{false};
    bool came_after_ = false;
    std::thread thread_;
};

}  // namespace

TEST_CASE("a turn is one thread's at a time", "[turn]") {
    Turn turn;
    std::atomic<bool> ended{false};
    turn.take();
    Follower other(turn, ended);
    ended = true;
    turn.end();
    CHECK(other.came_after());
}

// As a call within a call does it: clang looks at one function at a time.
static void take_again_and_end(Turn& turn) {
    TakenTurn again(turn);
}

TEST_CASE("who has a turn may take it again, and has it until all are ended", "[turn]") {
    Turn turn;
    std::atomic<bool> ended{false};
    turn.take();
    take_again_and_end(turn);
    Follower other(turn, ended);
    ended = true;
    turn.end();
    CHECK(other.came_after());
}

TEST_CASE("a turn is given back when an exception ends its scope", "[turn]") {
    Turn turn;
    try {
        TakenTurn mine(turn);
        throw 1;
    } catch (int) {
    }
    std::atomic<bool> ended{true};
    CHECK(Follower(turn, ended).came_after());
}
