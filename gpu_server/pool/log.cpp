// See log.hpp.
#include "gpu_server/pool/log.hpp"

#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "api_client/base/text.hpp"

namespace tnr::server {

// Enough for a process's name or a file's; more would bury the line's own message.
static constexpr size_t printable_max = 200;

static LogFormat log_format = LogFormat::text;

void set_log_format(LogFormat format) {
    log_format = format;
}

static LogLevel wanted_level() {
    const char* set = getenv("TNR_LOG");
    for (int level = 0; set && level < 5; ++level)
        if (log_level_names[level] == set) return static_cast<LogLevel>(level);
    return LogLevel::info;
}

bool log_enabled(LogLevel level) {
    static const LogLevel wanted = wanted_level();
    return level <= wanted;
}

static std::string utc_now() {
    timeval now{};
    gettimeofday(&now, nullptr);
    tm parts{};
    gmtime_r(&now.tv_sec, &parts);
    char seconds[24], text[32];
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, sizeof text, "%s.%03dZ", seconds, static_cast<int>(now.tv_usec / 1000 % 1000));
    return text;
}

// Every control character escaped, and what is no UTF-8 replaced: whatever the text is, it is one line and one object.
static std::string json_line(std::string_view level, std::string_view text) {
    nlohmann::ordered_json line{{"time", utc_now()}, {"level", level}, {"message", text}};
    return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void log(LogLevel level, std::string_view text) {
    if (!log_enabled(level)) return;
    const auto name = log_level_names[static_cast<int>(level)];
    std::string line = log_format == LogFormat::json ? json_line(name, text)
                                                     : utc_now() + " " + std::string(name) + ": " + std::string(text);
    line += '\n';
    (void)!::write(STDERR_FILENO, line.data(), line.size());
}

std::string printable(std::string_view foreign) {
    auto text = harmless(whole_characters(foreign, printable_max));
    return foreign.size() > printable_max ? text + "…" : text;
}

}  // namespace tnr::server
