// What tests and the workers that stand in for real ones (fake_worker.cpp) agree on.
#pragma once

#include <string_view>

namespace tnr::test {

// A client says it first. Others come by, too: whoever had a client's port before, or looks for one of another test's server.
// To a real worker they are strangers without a key; one that took them for its client would hold its GPU for as long as
// they stay.
inline constexpr std::string_view fake_worker_greeting = "for the fake";

}  // namespace tnr::test
