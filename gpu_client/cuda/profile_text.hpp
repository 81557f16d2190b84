// A profile's events as JSON, in the Trace Event Format.
//
// Three "processes": the program with its threads; the worker, with its dispatcher and its two ends of the connection;
// and the GPU, with a track for each stream. An arrow leads from each launch through the dispatcher to its kernel: its
// id is the launch's position in the stream of records.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "gpu_client/cuda/profile_buffer.hpp"
#include "gpu_client/cuda/profile_clock.hpp"
#include "gpu_client/cuda/profile_file.hpp"

namespace tnr::cuda {

// The name of a driver call or of a record of the session's own. Valid for ever.
const char* name_of_record(uint16_t op);

class ProfileText {
public:
    ProfileText();
    void add(ProfileBuffer::Contents&& contents, const WorkerClock& clock);
    // Ends the slices that are still open, now.
    void close();
    // What was added since the last take(), for ProfileFile::add().
    std::string take() { return std::exchange(out_, {}); }

private:
    struct Track {
        uint32_t process, thread;
    };
    void begin_event(const char* phase, Track track, uint64_t when_ns);
    void end_event() { out_ += "},\n"; }
    void field(const char* name, std::string_view value);  // already JSON
    void field(const char* name, uint64_t value) { field(name, std::to_string(value)); }
    void name_track(Track track, const std::string& name);
    void name_process(uint32_t process, const std::string& name);
    void arrow(const char* phase, Track track, uint64_t when_ns, uint64_t position);
    void batch(const char* name, Track track, uint64_t when_ns, uint64_t sequence, uint64_t bytes, uint64_t records);
    void counter(const char* name, uint32_t process, uint64_t when_ns, uint64_t value);
    void add_event(const ProfileEvent& event);
    void add_end(const ProfileEvent& event);
    void add_worker(const wire::ProfiledRecord& record, const WorkerClock& clock);
    void slice(Track track, const std::string& name, uint64_t begin_ns, uint64_t nanoseconds);
    uint64_t in_order(Track track, uint64_t when_ns);
    Track stream_track(const wire::ProfiledRecord& kernel);
    std::string kernel_name(uint64_t function) const;

    std::string out_;
    uint32_t program_, worker_, gpu_;                            // process ids
    std::map<uint32_t, std::vector<bool>> open_;                 // slices of each thread; true: a round trip
    std::map<std::pair<uint32_t, uint64_t>, uint32_t> streams_;  // by context and number
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> ended_;    // by track: no slice begins earlier
    std::map<uint64_t, std::string> kernels_;
    uint64_t bytes_sent_ = 0, bytes_received_ = 0, round_trips_ = 0, dropped_ = 0;
};

}  // namespace tnr::cuda
