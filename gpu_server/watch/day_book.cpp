// See day_book.hpp.
#include "gpu_server/watch/day_book.hpp"

#include "gpu_server/pool/clock.hpp"
#include "gpu_server/watch/limits.hpp"

namespace tnr::watch {

DayBook::DayBook(std::unique_ptr<server::LedgerReader> ledger)
    : ledger_(std::move(ledger)), thread_([this] { serve(); }) {}

DayBook::~DayBook() {
    {
        LockGuard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

bool DayBook::is_fresh() const {
    return Clock::now() < fresh_until_;
}

DayBook::Day DayBook::latest() {
    LockGuard lock(mutex_);
    if (!is_fresh()) {
        wanted_ = true;
        changed_.notify_all();
    }
    return read_ ? *read_ : nullptr;
}

Result<DayBook::Day> DayBook::fresh() {
    UniqueLock lock(mutex_);
    if (!is_fresh()) {
        wanted_ = true;
        changed_.notify_all();
        changed_.wait(mutex_, [this]() TNR_REQUIRES(mutex_) { return stopping_ || !wanted_; });
    }
    return read_;
}

void DayBook::serve() {
    UniqueLock lock(mutex_);
    while (true) {
        changed_.wait(mutex_, [this]() TNR_REQUIRES(mutex_) { return stopping_ || wanted_; });
        if (stopping_) return;
        lock.unlock();
        const auto now = server::now_ms();
        auto report = ledger_->report(now - day_ms, now, day_parts, report_claims_max);
        Result<Day> read = report ? Result<Day>(std::make_shared<const server::LedgerReport>(std::move(*report)))
                                  : Result<Day>(report.error());
        lock.lock();
        read_ = std::move(read);
        if (read_) fresh_until_ = Clock::now() + day_read_every;
        wanted_ = false;
        changed_.notify_all();
    }
}

}  // namespace tnr::watch
