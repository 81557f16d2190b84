// Signals on a machine, by the names that SSH gives them (RFC 4254, section 6.10).
#pragma once

#include <string>

#include "cli/ssh/client.hpp"

namespace tnr::ssh {

int signal_number(const std::string& name);  // 0: unknown

// Sends the signal to what the other channels of this connection run: each command, and all that it has started in its
// process group. Fails when nothing is surely this connection's, or when the machine does not answer in a few seconds; then
// nobody got it. A command that hides the environment it was started with (`env -i`, a program that writes its title over
// it) cannot be told from others' and is not signalled.
//
// Not by SSH's own "signal" message: libssh2 before 1.11 cannot send it, and sshd refuses it for root without a word.
// sshd starts every command as the leader of a process group, so one more command can find the others.
Result<> send_signal(Client& client, int signal);

// The line that does it on the machine, for any login shell. For tests.
std::string signal_line(int signal);

}  // namespace tnr::ssh
