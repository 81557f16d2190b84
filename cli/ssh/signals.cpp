// See signals.hpp.
#include "cli/ssh/signals.hpp"

#include <map>

#include "cli/ssh/exec.hpp"

namespace tnr::ssh {
namespace {

constexpr std::chrono::seconds answer_limit{5};  // the user has pressed Ctrl-C and waits

// POSIX numbers the first fifteen alike everywhere.
const std::map<std::string, int> numbers = {{"HUP", 1},   {"INT", 2},   {"QUIT", 3},  {"ILL", 4},   {"ABRT", 6},
                                            {"FPE", 8},   {"KILL", 9},  {"USR1", 10}, {"SEGV", 11}, {"USR2", 12},
                                            {"PIPE", 13}, {"ALRM", 14}, {"TERM", 15}};

}  // namespace

int signal_number(const std::string& name) {
    auto found = numbers.find(name);
    return found == numbers.end() ? 0 : found->second;
}

// Two checks must both hold before a process group gets the signal; in doubt nobody gets it, which exit code 3 tells.
// * Parent: its leader is a child of the sshd that runs this line. A line whose connection has just ended is a child of
//   init, or of whatever else adopts orphans, and so is every service of the machine: the parent must be an SSH server.
// * Mark: the leader was started with the SSH_CONNECTION that this line was started with. sshd sets it for each command,
//   and no two connections that live have the same one, so a server that has one process for all its connections
//   (OpenSSH has one for each) does not lead us to its other users.
// The login shell may be any, so it is only asked to run a POSIX shell, in words that all of them quote alike: no quote, no
// backslash before `'`, no `!` and no newline between the quotes.
std::string signal_line(int signal) {
    return "exec /bin/sh -c '"
           "[ \"$PPID\" -gt 1 ] && [ -n \"$SSH_CONNECTION\" ] && read -r parent </proc/$PPID/comm || exit 3; "
           "case $parent in sshd*|dropbear*) ;; *) exit 3;; esac; "
           "found=3; for pid in $(cat /proc/$PPID/task/*/children); do "
           "if [ $pid != $$ ] && tr \"\\0\" \"\\n\" </proc/$pid/environ | "
           "grep -qxF \"SSH_CONNECTION=$SSH_CONNECTION\"; then kill -" +
           std::to_string(signal) + " -$pid && found=0; fi; done; exit $found'";  // dash knows no `kill -15 -- -1234`
}

Result<> send_signal(Client& client, int signal) {
    auto sent = capture(client, signal_line(signal), "", Clock::now() + answer_limit);
    if (!sent) return sent.error();
    if (sent->code == 0) return Ok{};
    std::string why = sent->err.empty() ? "nothing there is surely its own" : sent->err;
    return Error{Error::Kind::remote, "cannot signal the command on '" + client.target().name + "': " + why};
}

}  // namespace tnr::ssh
