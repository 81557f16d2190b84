// See time.hpp.
#include "cli/ui/time.hpp"

#include <algorithm>
#include <ctime>

namespace tnr::ui {
namespace {

constexpr int64_t minute = 60, hour = 60 * minute, day = 24 * hour;

}  // namespace

std::optional<int64_t> seconds_of(const std::string& utc) {
    std::tm parts{};
    const char* end = ::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    if (!end || *end) return std::nullopt;
    return ::timegm(&parts);
}

std::string utc_text(int64_t seconds) {
    const std::time_t time = seconds;
    std::tm parts{};
    ::gmtime_r(&time, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

std::string duration_text(int64_t seconds) {
    auto two = [&](int64_t unit, const char* large, int64_t part, const char* small) {
        std::string text = std::to_string(seconds / unit) + large;
        int64_t rest = seconds % unit / part;
        return rest ? text + " " + std::to_string(rest) + small : text;
    };
    if (seconds < minute) return std::to_string(std::max<int64_t>(seconds, 0)) + " s";
    if (seconds < hour) return std::to_string(seconds / minute) + " min";
    if (seconds < 2 * day) return two(hour, " h", minute, " min");
    return two(day, " d", hour, " h");
}

std::string age(const std::string& then, const std::string& now) {
    auto begun = seconds_of(then), is = seconds_of(now);
    if (!begun || !is) return "";
    int64_t seconds = std::max<int64_t>(*is - *begun, 0);  // a clock that was set back
    if (seconds < minute) return std::to_string(seconds) + " s";
    if (seconds < hour) return std::to_string(seconds / minute) + " min";
    if (seconds < 2 * day) return std::to_string(seconds / hour) + " h";
    return std::to_string(seconds / day) + " d";
}

}  // namespace tnr::ui
