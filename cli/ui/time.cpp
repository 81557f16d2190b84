// See time.hpp.
#include "cli/ui/time.hpp"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <string_view>

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

namespace {

// Reads what people have written from its front. What is not there is left where it is.
class Written {
public:
    explicit Written(std::string_view text) : rest_(text) {}
    // A number of that many digits within its bounds; else there is no such time.
    int number(size_t digits, int least, int most) {
        int value = 0;
        const auto end = rest_.data() + std::min(digits, rest_.size());
        const auto [read, failed] = std::from_chars(rest_.data(), end, value);
        good_ &= rest_.size() >= digits && failed == std::errc{} && read == end && rest_[0] != '-' && value >= least &&
                 value <= most;
        rest_.remove_prefix(std::min(digits, rest_.size()));
        return value;
    }
    bool takes(char sign) {
        if (rest_.empty() || rest_[0] != sign) return false;
        rest_.remove_prefix(1);
        return true;
    }
    void must_take(char sign) { good_ &= takes(sign); }
    bool more() const { return !rest_.empty(); }
    bool good() const { return good_; }

private:
    std::string_view rest_;
    bool good_ = true;
};

// Seconds by which its clock is ahead of UTC. No place on Earth is more than 14 hours ahead, or more than 12 behind.
int64_t offset_of(Written& text) {
    if (text.takes('Z')) return 0;
    const bool behind = text.takes('-');
    if (!behind && !text.takes('+')) return 0;
    int64_t offset = text.number(2, 0, 14) * hour;
    if (text.takes(':') || text.more()) offset += text.number(2, 0, 59) * minute;
    return behind ? -offset : offset;
}

}  // namespace

std::optional<int64_t> seconds_of_written(const std::string& written) {
    Written text(written);
    std::tm parts{};
    parts.tm_year = text.number(4, 0, 9999) - 1900;
    text.must_take('-');
    parts.tm_mon = text.number(2, 1, 12) - 1;
    text.must_take('-');
    const int day_of_month = parts.tm_mday = text.number(2, 1, 31);
    int64_t offset = 0;
    if (text.takes('T') || text.takes(' ')) {
        parts.tm_hour = text.number(2, 0, 23);
        text.must_take(':');
        parts.tm_min = text.number(2, 0, 59);
        if (text.takes(':')) parts.tm_sec = text.number(2, 0, 59);
        offset = offset_of(text);
    }
    if (!text.good() || text.more()) return std::nullopt;
    const int64_t seconds = ::timegm(&parts);
    if (parts.tm_mday != day_of_month) return std::nullopt;  // of a month that has fewer
    return seconds - offset;
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
