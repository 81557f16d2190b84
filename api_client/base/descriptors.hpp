// Sockets and pipes that the programs we start do not inherit. The one place that makes them: what Linux and others do in one step
// (SOCK_CLOEXEC, accept4, pipe2), macOS does in two.
#pragma once

#include "api_client/base/handles.hpp"

namespace tnr {

// Whether reads and writes wait.
enum class Waits { yes, no };

// Each is none, and errno says why, when there can be no more.
UniqueFd make_socket(int family, int type, Waits waits);
UniqueFd accept_from(int listener, Waits waits);

// The two ends of something; for a pipe `one` is read from. Plain numbers, since signal handlers use some.
struct Ends {
    int one = -1, other = -1;
    explicit operator bool() const { return one >= 0; }
};
Ends make_socket_pair();
Ends make_pipe(Waits waits);

}  // namespace tnr
