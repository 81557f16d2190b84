// Several questions at the same time, so that the slowest decides how long they take and not the sum.
#pragma once

#include <functional>
#include <vector>

namespace tnr {

// Runs all of them, each on a thread of its own (one is the caller's), and returns when all have ended; of very many,
// at_once_max at a time. They must not throw. Where this process gets no threads, they run one after the other. The new
// threads hear no signals.
void at_once(const std::vector<std::function<void()>>& questions);

inline constexpr size_t at_once_max = 64;

}  // namespace tnr
