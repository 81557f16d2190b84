// Times as we write them, UTC in ISO 8601 to the second, and how long things took.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tnr::ui {

// Since 1970; nothing when it is no such time.
std::optional<int64_t> seconds_of(const std::string& utc);
std::string utc_text(int64_t seconds);
// A time as people write it: 2026-11-01, 2026-11-01T12:00, 2026-11-01 12:00:30, each also with Z or an offset such as +05:30
// behind its hour; UTC without. Nothing when there is no such day or hour.
std::optional<int64_t> seconds_of_written(const std::string& text);

// "50 s", "12 min", "5 h 12 min", "3 d 4 h": the two largest units.
std::string duration_text(int64_t seconds);
// How long ago `then` was at `now`, both as above: "5 min", "3 h", "12 d". Empty when one is no such time.
std::string age(const std::string& then, const std::string& now);

}  // namespace tnr::ui
