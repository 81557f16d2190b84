// A thread that redraws, because the work itself may be deep inside a call that knows nothing of us.
#include "cli/ui/progress.hpp"

#include <csignal>
#include <cstdio>

namespace tnr::ui {
namespace {

constexpr std::chrono::milliseconds terminal_tick{500};
constexpr std::chrono::seconds log_tick{10};  // often enough to see that it lives, rare enough for a log

// Signals belong to the main thread: its poll() is what they must wake.
struct SignalsBlocked {
    sigset_t before;
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
};

}  // namespace

Progress::Progress(std::ostream& out, bool terminal) : out_(out), terminal_(terminal) {
    SignalsBlocked blocked;
    ticker_ = std::thread([this] { tick(); });
}

Progress::~Progress() {
    {
        LockGuard lock(mutex_);
        if (running_) finish("✗", "");
        leaving_ = true;
    }
    changed_.notify_one();
    ticker_.join();
}

void Progress::begin(const std::string& what) {
    LockGuard lock(mutex_);
    if (running_) finish("✓", "");
    what_ = what;
    detail_.clear();
    running_ = true;
    begun_ = said_ = std::chrono::steady_clock::now();
    if (terminal_) draw();
}

void Progress::note(const std::string& detail) {
    LockGuard lock(mutex_);
    detail_ = detail;
}

void Progress::end(const std::string& outcome) {
    LockGuard lock(mutex_);
    if (running_) finish("✓", outcome);
}

void Progress::say(const std::string& line) {
    LockGuard lock(mutex_);
    if (terminal_ && running_) out_ << "\r\033[K";
    out_ << line << "\n" << std::flush;
    if (terminal_ && running_) draw();
}

void Progress::finish(const char* mark, const std::string& outcome) {
    running_ = false;
    if (terminal_) out_ << "\r\033[K";
    out_ << mark << " " << what_ << (outcome.empty() ? "" : separator() + outcome) << "  (" << elapsed() << ")\n"
         << std::flush;
}

void Progress::draw() {
    out_ << "\r\033[K… " << what_ << (detail_.empty() ? "" : separator() + detail_) << "  (" << elapsed() << ")"
         << std::flush;
}

void Progress::tick() {
    UniqueLock lock(mutex_);
    while (!leaving_) {
        changed_.wait_for(mutex_, terminal_tick);
        if (!running_ || leaving_) continue;
        auto now = std::chrono::steady_clock::now();
        if (terminal_) draw();
        if (!terminal_ && now - said_ >= log_tick) {
            said_ = now;
            out_ << "… " << what_ << (detail_.empty() ? "" : separator() + detail_) << "  (" << elapsed() << ")\n"
                 << std::flush;
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
