// What a worker or the driver in it writes to stderr, made into lines of our log: nobody but us writes there, so that no
// line is forged and no file truncated by a process that a stranger has fed.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gpu_server/supervisor/event_loop.hpp"

namespace tnr::server {

class ForeignLines {
public:
    using Line = std::function<void(const std::string& line)>;
    explicit ForeignLines(Line line) : line_(std::move(line)) {}

    // Adds what has been written. What exceeds foreign_log_bytes_max within foreign_log_window is left out.
    void add(std::string_view bytes, EventLoop::Clock::time_point now);
    // Logs the last line, if it has no end.
    void finish();

private:
    void tell();

    Line line_;
    std::string begun_;
    size_t told_bytes_ = 0, left_out_bytes_ = 0;  // within the window
    EventLoop::Clock::time_point window_began_{};
};

}  // namespace tnr::server
