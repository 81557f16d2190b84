// Ctrl-C, and the other polite ways of being asked to end. Long waits poll `fd()` beside what they wait for and
// stop when interrupted() turns true, so that every command leaves through its normal path: records written,
// terminal restored, and a word on what exists. A second Ctrl-C ends the process at once.
#pragma once

#include <csignal>

#include "api_client/base/result.hpp"

namespace tnr::interrupt {

// Call once from main. What our parent made us ignore (`nohup`) stays ignored. Also ignores SIGPIPE: a reader that goes
// away is an error of write().
void install();

bool interrupted();
// Readable once interrupted. -1 before install(), which poll() skips.
int fd();
// 128 + signal: 130 after Ctrl-C. 0 when not interrupted.
int exit_code();

// For who passes the signal on instead of ending: returns it, and it counts as dealt with, so that the next one is a
// first one again. 0 when none came. again(): it could not be passed on, and is as if it came now.
int take();
void again(int signal);

// Sleeps, or returns false at once when interrupted.
bool pause_ms(int milliseconds);

// What a step returns when it stopped because of us.
Error error();

// Threads made while it lives hear no signals. Signals belong to the main thread: its poll() is what they must wake.
class SignalsBlocked {
public:
    SignalsBlocked();
    ~SignalsBlocked();
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_;
};

// For tests: as if the user had pressed Ctrl-C, and back.
void raise_for_test();
void clear_for_test();

// Runs inside the signal handler, before the process ends by a second Ctrl-C or a crash: must be
// async-signal-safe. The terminal sets it while it is in raw mode.
void set_last_words(void (*last_words)());

}  // namespace tnr::interrupt
