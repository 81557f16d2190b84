// What a session does when its connection breaks, and when its process ends: see client_session.hpp.
#include <cstdlib>

#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/profile.hpp"

namespace tnr::cuda {

using std::chrono::milliseconds;

// After the session is lost, ZeroMQ releases memory within moments. If it takes longer than this something is wrong
// with it, and the program goes on rather than hang.
static constexpr milliseconds memory_free_within{5'000};

wire::Keeper::Patience patience_from_environment() {
    wire::Keeper::Patience patience;
    if (const char* wanted = std::getenv("TNR_GRACE_MS"))
        patience.grace = milliseconds(std::strtoul(wanted, nullptr, 10));
    return patience;
}

wire::Keeper::Hooks ClientSession::keeper_hooks() {
    wire::Keeper::Hooks hooks;
    hooks.broken = [this] {
        if (!ending_) log(LogLevel::info, "the connection to the GPU broke");  // the worker answers a goodbye by ending
        UniqueLock lock(receive_mutex_);
        if (ending_) lose_locked("the program has ended");
        ++news_expected_;  // somebody must receive the worker's welcome
        hand_over();
        return !lost();
    };
    hooks.trying = [seconds = patience_from_environment().grace.count() / 1000] {
        log(LogLevel::error, "the connection to the GPU was lost; trying again for %ld s", static_cast<long>(seconds));
    };
    hooks.back = [this](bool told) {
        log(told ? LogLevel::error : LogLevel::info, "the connection to the GPU is back");
        expect_news(-1);
    };
    hooks.lost = [this](const char* why) {
        UniqueLock lock(receive_mutex_);
        lose_locked(why);
    };
    return hooks;
}

void ClientSession::memory_freed() {
    { LockGuard lock(memory_mutex_); }
    memory_freed_.notify_all();
    poke();
}

void ClientSession::wait_for_memory(const std::function<bool()>& done) {
    ProfiledWait profiled("the worker has received the program's memory");
    if (wait_until(done)) return;
    UniqueLock lock(memory_mutex_);
    memory_freed_.wait_for(memory_mutex_, memory_free_within, done);
}

void ClientSession::say_goodbye(milliseconds timeout) {
    static Pending farewell;  // outlives a reply that comes too late
    auto question = wire::question_of(wire::Goodbye{});
    bool connected = link_.open();
    ending_ = true;
    if (lost() || !connected || !wait_until([this] { return link_.has_credit(); }, timeout)) return;
    request(0, wire::Goodbye::op, question, farewell);
    wait(farewell, timeout);
}

}  // namespace tnr::cuda
