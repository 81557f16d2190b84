// See errands.hpp.
#include "gpu_server/supervisor/errands.hpp"

#include <cmath>

#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

Errands::Errands(EventLoop& loop) : loop_(loop), mailbox_(loop), thread_([this] { work(); }) {}

Errands::~Errands() {
    {
        LockGuard lock(mutex_);
        stopping_ = true;
    }
    wanted_.notify_all();
    thread_.join();
}

bool Errands::take_in(Errand& errand) {
    LockGuard lock(mutex_);
    if (errands_.size() >= errands_max) return false;
    auto of_user = of_user_.try_emplace(errand.user, 0).first;
    if (of_user->second >= errands_per_user_max) return false;
    ++of_user->second;
    errands_.push_back(std::move(errand));
    wanted_.notify_all();
    return true;
}

void Errands::run(const std::string& user, std::function<Result<>()> job, std::function<void(Result<>)> done) {
    if (!allowances_.take(user, loop_.now()))
        return done(Error{Error::Kind::remote,
                          "too many changes: a user may enroll or forget " +
                              std::to_string(std::lround(changes_burst)) + " machines at once, and then " +
                              std::to_string(std::lround(changes_per_second_max)) + " a second",
                          "try again in a moment"});
    ++under_way_;
    auto told = [this, done = std::move(done)](Result<> result) {
        --under_way_;
        done(std::move(result));
    };
    Errand errand{user, std::move(job), std::move(told)};
    if (!take_in(errand))
        errand.done(
            Error{Error::Kind::remote, "too many changes of the accounts wait already", "try again in a moment"});
}

void Errands::work() {
    while (true) {
        Errand errand;
        {
            UniqueLock lock(mutex_);
            wanted_.wait(mutex_, [this]() TNR_REQUIRES(mutex_) { return stopping_ || !errands_.empty(); });
            if (stopping_) return;
            errand = std::move(errands_.front());
            errands_.pop_front();
        }
        auto result = errand.job();
        {
            LockGuard lock(mutex_);
            auto of_user = of_user_.find(errand.user);
            if (--of_user->second == 0) of_user_.erase(of_user);
        }
        mailbox_.post([done = std::move(errand.done), result = std::move(result)] { done(result); });
    }
}

}  // namespace tnr::server
