// Long work, told on stderr: one line a step, with the time it took. On a terminal the running step's line is
// redrawn twice a second, cut to the terminal's width; elsewhere a sign of life comes every ten seconds.
#pragma once

#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "cli/ui/text.hpp"

namespace tnr::ui {

// Where progress is shown. On a terminal `columns` is asked whenever a line is drawn.
struct Screen {
    std::ostream& out;
    bool terminal = false;
    Paint paint = {};
    std::function<int()> columns = {};
};

// One step at a time. note() may come from any thread.
class Progress {
public:
    explicit Progress(Screen screen);
    ~Progress();  // a step still running is shown as broken off

    // A step that ends within `patience` leaves no trace: for what is mostly done before anybody looks.
    void begin(const std::string& what, std::chrono::milliseconds patience = {});
    void show();                           // there is something to see before the patience is over
    void note(const std::string& detail);  // beside the running step: "42 of 100 MB"
    void end(const std::string& outcome = "");
    void say(const std::string& line);  // a line of its own, above the running step

private:
    void tick();
    void draw() TNR_REQUIRES(mutex_);
    void finish(bool good, const std::string& outcome) TNR_REQUIRES(mutex_);
    std::string separator() const TNR_REQUIRES(mutex_);
    std::string elapsed() const TNR_REQUIRES(mutex_);

    bool shown() const TNR_REQUIRES(mutex_);
    // What the running step's line says.
    std::string line() const TNR_REQUIRES(mutex_);

    const Screen screen_;
    std::ostream& out_;
    const bool terminal_;
    Mutex mutex_;
    Condition changed_;
    std::string what_ TNR_GUARDED_BY(mutex_), detail_ TNR_GUARDED_BY(mutex_);
    std::chrono::steady_clock::time_point begun_ TNR_GUARDED_BY(mutex_), said_ TNR_GUARDED_BY(mutex_);
    std::chrono::milliseconds patience_ TNR_GUARDED_BY(mutex_){};
    bool running_ TNR_GUARDED_BY(mutex_) = false, leaving_ TNR_GUARDED_BY(mutex_) = false;
    std::thread ticker_;
};

// "3.2 s", "2 min 05 s"; "1.5 GiB".
std::string seconds_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace tnr::ui
