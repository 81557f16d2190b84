// Long work, told on stderr: one line a step, with the time it took. On a terminal the running step's line is
// redrawn every second; elsewhere a sign of life comes every ten.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

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
    void draw();
    void finish(const char* mark, const std::string& outcome);
    std::string separator() const;
    std::string elapsed() const;

    std::ostream& out_;
    const bool terminal_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string what_, detail_;
    std::chrono::steady_clock::time_point begun_, said_;
    bool running_ = false, leaving_ = false;
    std::thread ticker_;
};

// "3.2 s", "2 min 05 s"; "1.5 GiB".
std::string seconds_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace tnr::ui
