// See foreign_lines.hpp.
#include "gpu_server/supervisor/foreign_lines.hpp"

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

void ForeignLines::add(std::string_view bytes, EventLoop::Clock::time_point now) {
    if (now - window_began_ >= foreign_log_window) {
        if (left_out_bytes_ > 0) line_("(" + std::to_string(left_out_bytes_) + " bytes left out)");
        told_bytes_ = left_out_bytes_ = 0;
        window_began_ = now;
    }
    auto room = foreign_log_bytes_max - told_bytes_;
    if (bytes.size() > room) {
        left_out_bytes_ += bytes.size() - room;
        bytes = bytes.substr(0, room);
    }
    told_bytes_ += bytes.size();
    for (char c : bytes) {
        if (c != '\n') begun_ += c;
        if (c == '\n' || begun_.size() >= foreign_line_bytes_max) tell();
    }
}

void ForeignLines::finish() {
    if (!begun_.empty()) tell();
    if (left_out_bytes_ > 0) line_("(" + std::to_string(left_out_bytes_) + " bytes left out)");
    left_out_bytes_ = 0;
}

void ForeignLines::tell() {
    line_(harmless(begun_));
    begun_.clear();
}

}  // namespace tnr::server
