// What a worker's waits are made of, each alone. Threads are joined: one that must wait is let go before that.
#include <atomic>
#include <future>
#include <thread>

#include "gpu_server/worker/context_uses.hpp"
#include "gpu_server/worker/downloads.hpp"
#include "gpu_server/worker/host_functions.hpp"
#include "gpu_server/worker/tasks.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::worker;

TEST_CASE("a wait concerns copies that began before it and that the GPU has passed", "[worker]") {
    Downloads downloads;
    bool passed = false;
    auto copy = downloads.begin([&] { return passed; });
    auto before = downloads.next();
    CHECK(copy < before);
    SECTION("one that is still on the GPU does not hold it up") {
        CHECK_FALSE(downloads.any_leaving(before));
        downloads.wait_until_gone(before);
    }
    SECTION("one that began later does not hold it up") {
        passed = true;
        downloads.end(copy);
        downloads.begin([] { return true; });
        CHECK_FALSE(downloads.any_leaving(before));
        downloads.wait_until_gone(before);
    }
    SECTION("one that is leaving does, until it has ended") {
        passed = true;
        CHECK(downloads.any_leaving(before));
        std::atomic<bool> ended{false};
        std::thread ender([&] {
            ended = true;
            downloads.end(copy);
        });
        downloads.wait_until_gone(before);
        CHECK(ended);
        ender.join();
    }
}

// What is asked of the driver may take the driver's locks, so nobody must need ours meanwhile.
TEST_CASE("copies begin and end while a wait asks how far the GPU is", "[worker]") {
    Downloads downloads;
    auto other = downloads.begin([] { return false; });
    downloads.begin([&] {
        downloads.end(other);
        other = downloads.begin([] { return false; });
        return false;
    });
    CHECK_FALSE(downloads.any_leaving(downloads.next()));
}

TEST_CASE("a context counts as used until the last of its uses ends", "[worker]") {
    ContextUses uses;
    auto context = reinterpret_cast<CUcontext>(0x10), other = reinterpret_cast<CUcontext>(0x20);
    auto first = uses.begin(context), second = uses.begin(context), elsewhere = uses.begin(other);
    first.reset();
    std::atomic<bool> over{false};
    std::thread user([&, second = std::move(second)]() mutable {
        over = true;
        second.reset();
    });
    uses.wait_until_unused(context);
    CHECK(over);
    user.join();
    uses.wait_until_unused(nullptr);  // nobody ever used it
}

TEST_CASE("a host function runs until word of its own end comes", "[worker]") {
    std::promise<uint64_t> started;
    Standing standing;
    HostFunctions functions([&](uint64_t ticket) { started.set_value(ticket); }, standing);
    CHECK_FALSE(functions.any_running());
    std::atomic<bool> returned{false};
    std::thread driver([&] {
        functions.run(7);
        returned = true;
    });
    CHECK(started.get_future().get() == 7);
    functions.done(8);
    CHECK(functions.any_running());
    CHECK_FALSE(returned);
    functions.done(7);
    driver.join();
    CHECK_FALSE(functions.any_running());
    CHECK_FALSE(standing.any());
}

TEST_CASE("waiting threads take tasks in order and are no more than allowed", "[worker]") {
    auto& threads = *new WaitingThreads(2);  // never joined, so it must outlive them
    std::promise<void> gate;
    auto open = gate.get_future().share();
    std::atomic<int> running{0}, most{0};
    std::vector<std::future<void>> done;
    for (int i = 0; i < 6; ++i) {
        auto ended = std::make_shared<std::promise<void>>();
        done.push_back(ended->get_future());
        threads.run([&, ended, open] {
            int now = ++running;
            for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
            open.wait();
            --running;
            ended->set_value();
        });
    }
    CHECK_FALSE(threads.idle());
    gate.set_value();
    for (auto& each : done) each.get();
    CHECK(most <= 2);
}

TEST_CASE("queues of more streams than there may be threads run each in order, the first tasks first", "[worker]") {
    constexpr size_t streams = queue_threads_max + 100;
    auto& queues = *new StreamQueues;  // its threads are never joined
    std::promise<void> gate;
    auto open = gate.get_future().share();
    std::atomic<size_t> running{0}, most{0}, wrong{0};
    std::vector<std::atomic<int>> seen(streams);
    std::vector<std::promise<void>> last(streams);
    for (int turn = 0; turn < 3; ++turn)
        for (size_t stream = 0; stream < streams; ++stream)
            queues.post(stream, [&, turn, stream, open] {
                size_t now = ++running;
                for (size_t before = most; now > before && !most.compare_exchange_weak(before, now);) continue;
                if (turn == 0) open.wait();
                if (turn > 0 && seen[stream] != turn) ++wrong;
                ++seen[stream];
                --running;
                if (turn == 2) last[stream].set_value();
            });
    for (size_t stream = 0; stream < streams; stream += 2) queues.close(stream);  // its tasks run all the same
    gate.set_value();
    for (auto& each : last) each.get_future().get();
    CHECK(most <= queue_threads_max);
    CHECK(wrong == 0);
}
