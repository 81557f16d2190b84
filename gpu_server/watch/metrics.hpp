// The pool's state as Prometheus reads it: its text format, version 0.0.4.
#pragma once

#include <string>

#include "gpu_server/watch/pool_state.hpp"

namespace tnr::watch {

inline constexpr const char* metrics_type = "text/plain; version=0.0.4; charset=utf-8";

std::string metrics_text(const PoolState& state);
// Of this process: memory, descriptors.
std::string process_metrics_text();

}  // namespace tnr::watch
