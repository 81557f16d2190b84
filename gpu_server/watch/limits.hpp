// What strangers who reach the watch address can cost: connections, memory, time. All of it is on a thread of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tnr::watch {

using std::chrono::milliseconds;

// Connections at once, of all that listen together. A browser opens some, Prometheus one. With one more, of the address that
// has most that goes which has been there longest: whoever fills the place with connections keeps nobody out, and takes it
// from nobody else.
inline constexpr size_t connections_max = 64;
// Accepted between two looks at those that are there.
inline constexpr int accepted_at_once = 16;
// A request with all its headers; a browser's have about 1 KiB.
inline constexpr size_t request_bytes_max = size_t{8} << 10;
// From being accepted to having said all of the request, however slowly it comes; then to having read the whole answer.
inline constexpr milliseconds request_within{5'000};
inline constexpr milliseconds answer_read_within{10'000};
// What an answered connection still says is read away, so that its end is no reset that would take the answer with it.
inline constexpr milliseconds farewell_within{1'000};
// Without a descriptor for one more, nothing is accepted for so long.
inline constexpr milliseconds accepting_pauses{200};

// How often the supervisor publishes what there is, and from when on its silence is a failure.
inline constexpr milliseconds published_every{1'000};
inline constexpr milliseconds published_within{10'000};

// The last day, which is read from the ledger: how often at most, in how many parts, and how many claims and users of it.
inline constexpr milliseconds day_read_every{15'000};
inline constexpr int64_t day_ms = int64_t{24} * 3600 * 1000;
inline constexpr int day_parts = 96;  // of a quarter of an hour
inline constexpr int64_t report_claims_max = 500'000;
inline constexpr size_t report_users_max = 200;
// An amount that another node tells: sums of them stay numbers.
inline constexpr double report_amount_max = 1e18;

}  // namespace tnr::watch
