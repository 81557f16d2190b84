// A thread that redraws, because the work itself may be deep inside a call that knows nothing of us.
#include "cli/ui/progress.hpp"

#include <algorithm>
#include <cstdio>

#include "api_client/base/interrupt.hpp"

namespace tnr::ui {
namespace {

constexpr std::chrono::milliseconds terminal_tick{500};
constexpr std::chrono::seconds log_tick{10};  // often enough to see that it lives, rare enough for a log
constexpr int columns_unless_told = 80;

}  // namespace

Progress::Progress(Screen screen) : screen_(std::move(screen)), out_(screen_.out), terminal_(screen_.terminal) {
    interrupt::SignalsBlocked blocked;
    ticker_ = std::thread([this] { tick(); });
}

Progress::~Progress() {
    {
        LockGuard lock(mutex_);
        if (running_) finish(false, "");
        leaving_ = true;
    }
    changed_.notify_one();
    ticker_.join();
}

void Progress::begin(const std::string& what, std::chrono::milliseconds patience) {
    LockGuard lock(mutex_);
    if (running_) finish(true, "");
    what_ = what;
    detail_.clear();
    patience_ = patience;
    running_ = true;
    begun_ = said_ = std::chrono::steady_clock::now();
    if (terminal_ && shown()) draw();
}

void Progress::note(const std::string& detail) {
    LockGuard lock(mutex_);
    detail_ = detail;
}

void Progress::show() {
    LockGuard lock(mutex_);
    if (!running_ || shown()) return;
    patience_ = {};
    if (terminal_) draw();
}

void Progress::end(const std::string& outcome) {
    LockGuard lock(mutex_);
    if (running_) finish(true, outcome);
}

void Progress::say(const std::string& line) {
    LockGuard lock(mutex_);
    if (terminal_ && running_) out_ << "\r\033[K";
    out_ << line << "\n" << std::flush;
    if (terminal_ && running_ && shown()) draw();
}

bool Progress::shown() const {
    return std::chrono::steady_clock::now() - begun_ >= patience_;
}

void Progress::finish(bool good, const std::string& outcome) {
    running_ = false;
    if (!shown()) return;
    if (terminal_) out_ << "\r\033[K";
    out_ << (good ? screen_.paint.good("✓") : screen_.paint.bad("✗")) << " " << what_
         << (outcome.empty() ? "" : separator() + outcome) << "  (" << elapsed() << ")\n"
         << std::flush;
}

std::string Progress::line() const {
    return "… " + what_ + (detail_.empty() ? "" : separator() + detail_);
}

// One row: of a line that the terminal wrapped, the next redrawing would clear only the last row.
void Progress::draw() {
    int width = screen_.columns ? screen_.columns() : columns_unless_told;
    std::string time = "  (" + elapsed() + ")";
    auto room = static_cast<size_t>(std::max(width - 1 - static_cast<int>(time.size()), 1));
    out_ << "\r\033[K" << cut(line(), room) << cut(time, static_cast<size_t>(std::max(width - 2, 0))) << std::flush;
}

void Progress::tick() {
    UniqueLock lock(mutex_);
    while (!leaving_) {
        changed_.wait_for(mutex_, terminal_tick);
        if (!running_ || leaving_ || !shown()) continue;
        auto now = std::chrono::steady_clock::now();
        if (terminal_) draw();
        if (!terminal_ && now - said_ >= std::min<std::chrono::steady_clock::duration>(
                                             log_tick, patience_.count() ? patience_ : log_tick)) {
            patience_ = {};
            said_ = now;
            out_ << line() << "  (" << elapsed() << ")\n" << std::flush;
        }
    }
}

// What is done may end with a colon itself ("copying x to demo:").
std::string Progress::separator() const {
    return !what_.empty() && what_.back() == ':' ? " " : ": ";
}

std::string Progress::elapsed() const {
    return seconds_text(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count());
}

std::string seconds_text(double seconds) {
    char text[64];
    if (seconds < 60)
        std::snprintf(text, sizeof text, "%.1f s", seconds);
    else
        std::snprintf(text, sizeof text, "%d min %02d s", static_cast<int>(seconds) / 60,
                      static_cast<int>(seconds) % 60);
    return text;
}

std::string bytes_text(double bytes) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
    char text[64];
    std::snprintf(text, sizeof text, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

}  // namespace tnr::ui
