// See errands.hpp.
#include "gpu_server/supervisor/errands.hpp"

#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

Errands::Errands(EventLoop& loop) : mailbox_(loop), thread_([this] { work(); }) {}

Errands::~Errands() {
    {
        LockGuard lock(mutex_);
        stopping_ = true;
    }
    wanted_.notify_all();
    thread_.join();
}

void Errands::run(std::function<Result<>()> job, std::function<void(Result<>)> done) {
    {
        LockGuard lock(mutex_);
        if (errands_.size() < errands_max) {
            errands_.push_back({std::move(job), std::move(done)});
            wanted_.notify_all();
            return;
        }
    }
    done(Error{Error::Kind::remote, "too many changes of the accounts wait already", "try again in a moment"});
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
        mailbox_.post([done = std::move(errand.done), result = std::move(result)] { done(result); });
    }
}

}  // namespace tnr::server
