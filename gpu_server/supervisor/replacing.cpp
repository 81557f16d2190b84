// See replacing.hpp.
#include "gpu_server/supervisor/replacing.hpp"

#include <memory>
#include <utility>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

void Replacing::failed(const std::string& why) {
    if (state_ != State::never) state_ = State::none;
    ++reloads_.failed;
    reloads_.why_failed = why;
    told_(reloads_);
    log(LogLevel::error, "not replaced by the server at " + command_.program + ": " + why + "; this one goes on");
}

void Replacing::begin() {
    begun_ = true;
    if (std::exchange(wanted_, false)) asked();
}

void Replacing::asked() {
    wanted_ = !begun_;
    if (!begun_ || state_ != State::none) return;
    // The new one has to be able to ask the pool's store for who is let in.
    if (auto in_touch = parts_.pool.may_begin(); !in_touch) return failed(in_touch.error().what);
    auto child = start_child(question_for(command_));
    if (!child) return failed(child.error().what);
    state_ = State::asking;
    log(LogLevel::info, "asking the server at " + command_.program + " whether it can take over");
    auto late = std::make_shared<bool>(false);
    auto timeout = loop_.after(handover_answered_within, [late, pid = child->pid] {
        *late = true;
        kill_child(pid);
    });
    auto control = std::make_shared<UniqueFd>(std::move(child->control));
    parts_.reaper.expect(child->pid, [this, control, late, timeout](int status) {
        loop_.cancel(timeout);
        if (*late && state_ == State::asking) return failed("it has not said in time whether it can take over");
        answered(control->get(), status);
    });
}

void Replacing::answered(int control, int status) {
    if (state_ != State::asking) return;
    if (auto why = why_not(receive_message(control))) return failed(*why + "; it " + describe_exit(status));
    rest();
}

void Replacing::rest() {
    state_ = State::resting;
    give_up_at_ = loop_.now() + handover_rests_within;
    parts_.socket.pause(loop_);
    parts_.claims.pause();
    look();
}

std::string Replacing::what_moves() {
    if (!parts_.handler.at_rest()) return "a change of the accounts is under way";
    if (auto what = parts_.claims.what_moves(); !what.empty()) return what;
    parts_.gpus.pause();  // last, so that programs that begin find their worker waiting
    if (auto what = parts_.gpus.what_moves(); !what.empty()) return what;
    return parts_.workers.all_serve() ? "" : "a worker ends";
}

// The loop asks ready() after each round; this makes a round, and gives up.
void Replacing::look() {
    if (state_ != State::resting) return;
    if (auto moves = what_moves(); !moves.empty() && loop_.now() >= give_up_at_) {
        failed(moves);
        return go_on();
    }
    loop_.after(handover_looked_every, [this] { look(); });
}

void Replacing::go_on() {
    parts_.gpus.go_on();
    parts_.claims.go_on();
    parts_.socket.serve(loop_, parts_.handler);
}

void Replacing::never() {
    if (std::exchange(state_, State::never) == State::resting) go_on();
}

}  // namespace tnr::server
