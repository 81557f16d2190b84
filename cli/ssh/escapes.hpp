// What the user types into a terminal on a machine, and what of it is meant for tnr: as with ssh, `~.` at the beginning of
// a line ends the connection, `~~` is one `~`. Three Ctrl-C that nobody answers end it too.
#pragma once

#include <string>

#include "cli/ssh/wire.hpp"

namespace tnr::ssh {

class Escapes {
public:
    // What of `typed` goes to the machine.
    std::string take(const std::string& typed, Deadline now);
    bool ended() const { return ended_; }
    // Whether three Ctrl-C were typed of which the machine, last heard of at `heard`, has answered none for long enough
    // that a live one would have.
    bool gives_up(Deadline heard, Deadline now);

private:
    bool line_begins_ = true, tilde_ = false, ended_ = false;
    int unanswered_ = 0;  // Ctrl-C
    Deadline first_{};    // of them
};

}  // namespace tnr::ssh
