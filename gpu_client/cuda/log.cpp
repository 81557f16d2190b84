// See log.hpp.
#include "gpu_client/cuda/log.hpp"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>

#include "api_client/base/mutex.hpp"

namespace tnr::cuda {

static LogLevel level_from_environment() {
    const char* names[] = {"none", "error", "warning", "info", "debug", "trace"};
    const char* wanted = std::getenv("TNR_LOG");
    for (int i = 0; wanted && i < static_cast<int>(std::size(names)); ++i)
        if (std::strcmp(wanted, names[i]) == 0) return static_cast<LogLevel>(i);
    return LogLevel::warning;
}

bool logs(LogLevel level) {
    static const LogLevel chosen = level_from_environment();
    return level <= chosen;
}

void log(LogLevel level, const char* format, ...) {
    const bool kept = level <= LogLevel::warning;  // for programs that ask
    if (!logs(level) && !kept) return;
    char line[1024];  // longer ones are cut: a log line is for people
    int length = std::snprintf(line, sizeof line, "tnr: ");
    va_list arguments;
    va_start(arguments, format);
    int more = std::vsnprintf(line + length, sizeof line - length - 1, format, arguments);
    va_end(arguments);
    length += more < 0 ? 0 : more;
    if (length > static_cast<int>(sizeof line) - 2) length = sizeof line - 2;
    if (auto* listener = log_listener.load(); kept && listener)
        listener(level == LogLevel::error, {line, static_cast<size_t>(length)});
    if (!logs(level)) return;
    line[length] = '\n';
    (void)!::write(STDERR_FILENO, line, static_cast<size_t>(length) + 1);
}

// Texts that are remembered; a program with more different ones has been told enough.
static constexpr size_t texts_max = 256;

static bool is_new(const std::string& text) {
    struct Told {
        Mutex mutex;
        std::set<std::string> texts TNR_GUARDED_BY(mutex);
    };
    static auto& told = *new Told;
    LockGuard lock(told.mutex);
    return told.texts.size() < texts_max && told.texts.insert(text).second;
}

void log_once(LogLevel level, std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
    for (size_t end; (end = text.find('\n')) != text.npos;) text.replace(end, 1, "; ");
    if (!text.empty() && (logs(level) || level <= LogLevel::warning) && is_new(text)) log(level, "%s", text.c_str());
}

void log_error(const Error& error) {
    log(LogLevel::error, "%s", error.what.c_str());
    if (!error.hint.empty()) log(LogLevel::error, "hint: %s", error.hint.c_str());
}

}  // namespace tnr::cuda
