// Long work, told on stderr: one line a step, with the time it took. On a terminal the running step's line is
// redrawn every second; elsewhere a sign of life comes every ten.
#pragma once

#include <chrono>
#include <ostream>
#include <string>
#include <thread>

#include "api_client/base/mutex.hpp"

namespace tnr::ui {

// One step at a time. note() may come from any thread.
class Progress {
public:
    Progress(std::ostream& out, bool terminal);
    ~Progress();  // a step still running is shown as broken off

    void begin(const std::string& what);
    void note(const std::string& detail);  // beside the running step: "42 of 100 MB"
    void end(const std::string& outcome = "");
    void say(const std::string& line);  // a line of its own, above the running step

private:
    void tick();
    void draw() TNR_REQUIRES(mutex_);
    void finish(const char* mark, const std::string& outcome) TNR_REQUIRES(mutex_);
    std::string separator() const TNR_REQUIRES(mutex_);
    std::string elapsed() const TNR_REQUIRES(mutex_);

    std::ostream& out_;
    const bool terminal_;
    Mutex mutex_;
    Condition changed_;
    std::string what_ TNR_GUARDED_BY(mutex_), detail_ TNR_GUARDED_BY(mutex_);
    std::chrono::steady_clock::time_point begun_ TNR_GUARDED_BY(mutex_), said_ TNR_GUARDED_BY(mutex_);
    bool running_ TNR_GUARDED_BY(mutex_) = false, leaving_ TNR_GUARDED_BY(mutex_) = false;
    std::thread ticker_;
};

// "3.2 s", "2 min 05 s"; "1.5 GiB".
std::string seconds_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace tnr::ui
