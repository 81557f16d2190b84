// The calendar's clock, as ledgers, logs and people have it. For how long something takes there are steadier ones.
#pragma once

#include <chrono>
#include <cstdint>

namespace tnr::server {

// Milliseconds since 1970.
inline int64_t now_ms() {
    auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

}  // namespace tnr::server
