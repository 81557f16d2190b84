// The user's own terminal, while a shell on a machine has it.
#pragma once

#include <termios.h>

#include "cli/ssh/exec.hpp"

namespace tnr::ssh {

// Raw while it lives: every key goes to the machine, Ctrl-C included. The terminal is given back when it goes,
// and also when the process is killed politely or crashes; kill -9 alone leaves it raw (`stty sane` helps).
// One at a time.
class RawTerminal {
public:
    explicit RawTerminal(int fd);
    ~RawTerminal();
    RawTerminal(const RawTerminal&) = delete;
    RawTerminal& operator=(const RawTerminal&) = delete;

    // The machine's terminal, shaped like this one and resized with it.
    Pty pty() const;

private:
    int fd_;
};

}  // namespace tnr::ssh
