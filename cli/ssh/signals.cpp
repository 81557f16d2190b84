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

// The parent of this command's shell is the sshd of our connection, and that of the others' shells too.
std::string kill_line(int signal) {
    return "found=1; for pid in $(cat /proc/$PPID/task/*/children); do "
           "[ \"$pid\" = $$ ] || { kill -" +
           std::to_string(signal) + " -- -\"$pid\" && found=0; }; done; exit $found";
}

}  // namespace

int signal_number(const std::string& name) {
    auto found = numbers.find(name);
    return found == numbers.end() ? 0 : found->second;
}

Result<> send_signal(Client& client, int signal) {
    auto sent = capture(client, kill_line(signal), "", Clock::now() + answer_limit);
    if (!sent) return sent.error();
    if (sent->code == 0) return Ok{};
    return Error{Error::Kind::remote, "cannot signal the command on '" + client.target().name + "': " + sent->err};
}

}  // namespace tnr::ssh
