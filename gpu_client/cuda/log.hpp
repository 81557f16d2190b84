// What the library tells its user, on stderr only: stdout belongs to the program.
// TNR_LOG=none (or off), error, warning (default), info, debug or trace.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "api_client/base/result.hpp"

namespace tnr::cuda {

enum class LogLevel { none, error, warning, info, debug, trace };

// Cheap enough for every call. Read once from the environment.
bool logs(LogLevel level);
// One line, written with a single write(2) so that lines of several threads do not mix.
void log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));
void log_error(const Error& error);
// Is told each warning, error and explanation, whether it goes to stderr or not, on the thread that logs.
inline std::atomic<void (*)(bool is_error, std::string_view text)> log_listener{nullptr};
// Logs the text as one line, and each text only once per process: programs retry in loops.
void log_once(LogLevel level, std::string text);
// The reason for an error code that the program gets. On stderr it is `info`: whether to speak of it is the program's
// business. Programs that read the driver's log (cuLogs...) find it there as a warning. Each text once.
void explain_once(std::string text);

}  // namespace tnr::cuda
