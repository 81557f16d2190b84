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
#include "api_client/base/text.hpp"

namespace tnr::cuda {

static LogLevel level_from_environment() {
    const char* names[] = {"none", "error", "warning", "info", "debug", "trace"};
    const char* wanted = std::getenv("TNR_LOG");
    if (wanted && std::strcmp(wanted, "off") == 0) return LogLevel::none;
    for (int i = 0; wanted && i < static_cast<int>(std::size(names)); ++i)
        if (std::strcmp(wanted, names[i]) == 0) return static_cast<LogLevel>(i);
    return LogLevel::warning;
}

bool logs(LogLevel level) {
    static const LogLevel chosen = level_from_environment();
    return level <= chosen;
}

constexpr size_t line_bytes_max = 1024;  // longer ones are cut: a log line is for people

// `told`: to the listener, too.
static void write_line(LogLevel level, bool told, const std::string& text) {
    std::string line = "tnr: " + text;
    line.resize(whole_characters(line, line_bytes_max).size());
    if (auto* listener = log_listener.load(); told && listener) listener(level == LogLevel::error, line);
    if (!logs(level)) return;
    line += '\n';
    (void)!::write(STDERR_FILENO, line.data(), line.size());
}

void log(LogLevel level, const char* format, ...) {
    const bool told = level <= LogLevel::warning;
    if (!logs(level) && !told) return;
    char text[line_bytes_max];
    va_list arguments;
    va_start(arguments, format);
    int length = std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length >= 0) write_line(level, told, text);
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

static std::string as_one_line(std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
    for (size_t end; (end = text.find('\n')) != text.npos;) text.replace(end, 1, "; ");
    return text;
}

void log_once(LogLevel level, std::string text) {
    text = as_one_line(std::move(text));
    if (!text.empty() && (logs(level) || level <= LogLevel::warning) && is_new(text)) log(level, "%s", text.c_str());
}

void explain_once(std::string text) {
    text = as_one_line(std::move(text));
    if (!text.empty() && is_new(text)) write_line(LogLevel::info, true, text);
}

void log_error(const Error& error) {
    log(LogLevel::error, "%s", error.what.c_str());
    if (!error.hint.empty()) log(LogLevel::error, "hint: %s", error.hint.c_str());
}

}  // namespace tnr::cuda
