// What the server says while it runs: to stderr, one line an event, with UTC time, for `journalctl` and for grep; or each line
// a JSON object {"time", "level", "message"}, for programs that collect logs.
#pragma once

#include <string>
#include <string_view>

#include "api_client/base/text.hpp"

namespace tnr::server {

enum class LogLevel { error, warning, info, debug, trace };

inline constexpr std::string_view log_level_names[] = {"error", "warning", "info", "debug", "trace"};
// TNR_LOG, read once: one of these; `info` when it is unset or something else.
bool log_enabled(LogLevel level);

enum class LogFormat { text, json };
// `text` unless told otherwise. Before there are threads.
void set_log_format(LogFormat format);

// Any thread. The line is written with one write(), so lines of several processes on one stderr do not mix.
void log(LogLevel level, std::string_view text);

// harmless(), and not too long to be a part of such a line.
std::string printable(std::string_view foreign);

}  // namespace tnr::server
