// The calendar's clock, as ledgers, logs and people have it. For how long something takes there are steadier ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

namespace tnr::server {

// Milliseconds since 1970.
inline int64_t now_ms() {
    auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

// To the minute, in UTC.
inline std::string date(int64_t ms) {
    const time_t seconds = ms / 1000;
    tm parts{};
    gmtime_r(&seconds, &parts);
    char text[24];
    strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
    return text;
}

}  // namespace tnr::server
