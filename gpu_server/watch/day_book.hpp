// The last day as this node's ledger has it, for whoever asks. A thread of its own reads the ledger, when somebody has asked
// and what was read is no longer fresh: it waits for the disk, and reads half a million lines.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "api_client/base/result.hpp"
#include "gpu_server/pool/ledger_report.hpp"

namespace tnr::watch {

class DayBook {
public:
    using Day = std::shared_ptr<const server::LedgerReport>;

    // Make it when signals are blocked.
    explicit DayBook(std::unique_ptr<server::LedgerReader> ledger);
    ~DayBook();
    DayBook(const DayBook&) = delete;
    DayBook& operator=(const DayBook&) = delete;

    // What was read last; null: nothing yet. Waits for nobody: who wants it fresh asks again. Any thread, as below.
    Day latest() TNR_EXCLUDES(mutex_);
    // Waits until one has been read that is fresh.
    Result<Day> fresh() TNR_EXCLUDES(mutex_);

private:
    using Clock = std::chrono::steady_clock;
    void serve() TNR_EXCLUDES(mutex_);
    bool is_fresh() const TNR_REQUIRES(mutex_);

    std::unique_ptr<server::LedgerReader> ledger_;  // the thread's
    Mutex mutex_;
    Condition changed_;
    bool stopping_ TNR_GUARDED_BY(mutex_) = false, wanted_ TNR_GUARDED_BY(mutex_) = false;
    Result<Day> read_ TNR_GUARDED_BY(mutex_) = Day();
    Clock::time_point fresh_until_ TNR_GUARDED_BY(mutex_){};
    std::thread thread_;
};

}  // namespace tnr::watch
