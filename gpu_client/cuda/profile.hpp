// TNR_PROFILE=FILE: what the program and its GPU did when, as a file for Perfetto (ui.perfetto.dev) and
// chrome://tracing.
//
// The program's threads note events in a buffer. Four times a second a thread of ours (profile_writer.hpp) writes them
// to the file, together with what the worker reports when asked (profile_worker.hpp). The file is complete after each
// write, so a program that is killed or calls _exit() loses only the last moment.
//
// Everything here costs one load while no profile is wanted. Events that do not fit are dropped, and the file says how
// many.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "gpu_client/protocol/link.hpp"

namespace tnr::cuda {

// The file's name, as it was set when the library was loaded; null: no profile.
const char* wanted_profile();
extern std::atomic<bool> profile_runs;
inline bool profiling() {
    return __builtin_expect(profile_runs.load(std::memory_order_relaxed), false);
}

// Something that the calling thread does, from here to end() or to the end of the scope. `name` must live for ever.
class ProfiledSlice {
public:
    explicit ProfiledSlice(const char* name) {
        if (profiling()) begin(name, nullptr);
    }
    ~ProfiledSlice() { end(0); }
    ProfiledSlice(const ProfiledSlice&) = delete;
    ProfiledSlice& operator=(const ProfiledSlice&) = delete;
    void end(int result) {
        if (begun_) finish(result);
    }

protected:
    ProfiledSlice() = default;
    void begin(const char* name, const char* why);

private:
    void finish(int result);
    bool begun_ = false;
};

// The calling thread waits: for the reply to `op`, or for something else that `why` names.
class ProfiledWait : public ProfiledSlice {
public:
    explicit ProfiledWait(uint16_t op);
    explicit ProfiledWait(const char* why) {
        if (profiling()) begin("blocked", why);
    }
};

// This thread has appended the record at `position` of the stream. (Launches begin an arrow to their kernel.)
void profile_appended(uint64_t position, uint16_t op);
// A kernel's name, before its first launch. Any thread.
void profile_kernel(uint64_t function, const std::string& name);
// Watches the batches of this process's link; null unless profiling.
wire::BatchWatcher* profiled_batches();

// Keeps what the calling thread does out of the profile.
void leave_out_of_profile();
// For the child of a fork: the profile is its parent's. Async-signal-safe.
void abandon_profile();

}  // namespace tnr::cuda
