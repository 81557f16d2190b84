// Locks on open files and folders, between processes. One ends with its descriptor or its process. They are exclusive, except
// where it says "shared".
//
// There is one answer to what can get in the way. A file system that has no locks (some network shares) lets everybody in:
// what is locked here is written whole or not at all, so the worst is that one of two tnr at the same moment is forgotten, and
// without that nothing would work there. Ctrl-C ends the waiting, in threads that hear no signals as well.
#pragma once

#include <chrono>
#include <functional>

#include "api_client/base/result.hpp"

namespace tnr {

enum class Lock { ours, theirs, none };  // none: the file system has no locks

// Does not wait.
Lock try_lock(int fd);
// Holds it together with others who share it; an exclusive one of this descriptor becomes a shared one. Waits while somebody
// has an exclusive one, without hearing Ctrl-C: only for locks of which those are held for moments. Never `theirs`.
Lock share_lock(int fd);
// Waits for that long at most. `theirs`: somebody else still has it, or the user pressed Ctrl-C.
Lock lock_within(int fd, std::chrono::milliseconds patience);
// Waits until nobody else has it, after having called `on_wait` once when somebody has. The Error is interrupt::error(). After
// a Ctrl-C a quarter of a second is waited all the same, since locks around a write are held for less: what a command that
// was interrupted still writes down must not get lost.
Result<> wait_for_lock(int fd, const std::function<void()>& on_wait = {});

}  // namespace tnr
