// See log.hpp.
#include "gpu_client/cuda/log.hpp"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tnr::cuda {

static LogLevel level_from_environment() {
    const char* names[] = {"error", "info", "debug", "trace"};
    const char* wanted = std::getenv("TNR_LOG");
    for (int i = 0; wanted && i < 4; ++i)
        if (std::strcmp(wanted, names[i]) == 0) return static_cast<LogLevel>(i);
    return LogLevel::error;
}

bool logs(LogLevel level) {
    static const LogLevel chosen = level_from_environment();
    return level <= chosen;
}

void log(LogLevel level, const char* format, ...) {
    if (!logs(level)) return;
    char line[1024];  // longer ones are cut: a log line is for people
    int length = std::snprintf(line, sizeof line, "tnr: ");
    va_list arguments;
    va_start(arguments, format);
    int more = std::vsnprintf(line + length, sizeof line - length - 1, format, arguments);
    va_end(arguments);
    length += more < 0 ? 0 : more;
    if (length > static_cast<int>(sizeof line) - 2) length = sizeof line - 2;
    line[length] = '\n';
    (void)!::write(STDERR_FILENO, line, static_cast<size_t>(length) + 1);
}

void log_error(const Error& error) {
    log(LogLevel::error, "%s", error.what.c_str());
    if (!error.hint.empty()) log(LogLevel::error, "hint: %s", error.hint.c_str());
}

}  // namespace tnr::cuda
