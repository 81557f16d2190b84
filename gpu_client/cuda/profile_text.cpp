// See profile_text.hpp.
#include "gpu_client/cuda/profile_text.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_calls.hpp"
#include "gpu_client/protocol/ops.hpp"

namespace tnr::cuda {

// Linux gives no process an id as high as 2^22: these stand for what is not on this machine.
static constexpr uint32_t worker_ids = 1u << 22, gpu_ids = 1u << 23;
enum WorkerThread : uint32_t { dispatcher = 1, receives = 2, sends = 3 };

const char* name_of_record(uint16_t op) {
    if (auto* call = wire::find_call(op)) return call->name;
    switch (op) {
        case wire::op_set_context:
            return "set context";
        case wire::op_memory_grant:
            return "memory grant";
        case wire::op_memory_map:
            return "memory map";
        case wire::op_memory_unmap:
            return "memory unmap";
        case wire::op_watch_event:
            return "watch event";
        case wire::op_watch_stream:
            return "watch stream";
        case wire::op_query_event:
            return "cuEventQuery";
        case wire::op_query_stream:
            return "cuStreamQuery";
        case wire::op_host_function_done:
            return "host function done";
        case wire::op_goodbye:
            return "goodbye";
        case wire::op_image_piece:
            return "image piece";
        case wire::op_profile:
            return "profile";
        default:
            return "record";
    }
}

ProfileText::ProfileText() {
    program_ = static_cast<uint32_t>(::getpid());
    worker_ = program_ + worker_ids;
    gpu_ = program_ + gpu_ids;
    name_process(program_, std::string(::program_invocation_short_name) + " (program)");
    name_process(worker_, "worker (on the server)");
    name_process(gpu_, "GPU");
    name_track({worker_, dispatcher}, "dispatcher");
    name_track({worker_, receives}, "receives");
    name_track({worker_, sends}, "sends");
}

// ---- one event

void ProfileText::begin_event(const char* phase, Track track, uint64_t when_ns) {
    char text[128];
    std::snprintf(text, sizeof text, R"({"ph":"%s","pid":%u,"tid":%u,"ts":%)" PRIu64 ".%03u", phase, track.process,
                  track.thread, when_ns / 1000, static_cast<unsigned>(when_ns % 1000));
    out_ += text;
}

void ProfileText::field(const char* name, std::string_view value) {
    ((out_ += ",\"") += name) += "\":";
    out_ += value;
}

void ProfileText::name_process(uint32_t process, const std::string& name) {
    begin_event("M", {process, 0}, 0);
    field("name", "\"process_name\"");
    field("args", "{\"name\":" + json_text(name) + "}");
    end_event();
}

void ProfileText::name_track(Track track, const std::string& name) {
    begin_event("M", track, 0);
    field("name", "\"thread_name\"");
    field("args", "{\"name\":" + json_text(name) + "}");
    end_event();
}

void ProfileText::arrow(const char* phase, Track track, uint64_t when_ns, uint64_t position) {
    begin_event(phase, track, when_ns);
    field("name", "\"launch\"");
    field("cat", "\"launch\"");
    field("id", position);
    if (*phase == 'f') field("bp", "\"e\"");
    end_event();
}

void ProfileText::batch(const char* name, Track track, uint64_t when_ns, uint64_t sequence, uint64_t bytes,
                        uint64_t records) {
    begin_event("i", track, when_ns);
    field("s", "\"t\"");
    field("name", json_text(name));
    field("args", "{\"sequence\":" + std::to_string(sequence) + ",\"bytes\":" + std::to_string(bytes) +
                      ",\"records\":" + std::to_string(records) + "}");
    end_event();
}

void ProfileText::counter(const char* name, uint32_t process, uint64_t when_ns, uint64_t value) {
    begin_event("C", {process, 0}, when_ns);
    field("name", json_text(name));
    field("args", "{\"value\":" + std::to_string(value) + "}");
    end_event();
}

void ProfileText::slice(Track track, const std::string& name, uint64_t begin_ns, uint64_t nanoseconds) {
    begin_event("X", track, begin_ns);
    char text[40];
    std::snprintf(text, sizeof text, "%" PRIu64 ".%03u", nanoseconds / 1000, static_cast<unsigned>(nanoseconds % 1000));
    field("dur", text);
    field("name", json_text(name));
    end_event();
}

// ---- the program

void ProfileText::add_end(const ProfileEvent& event) {
    auto& open = open_[event.thread];
    begin_event("E", {program_, event.thread}, event.when_ns);
    if (event.number != 0) field("args", "{\"result\":" + std::to_string(static_cast<int>(event.number)) + "}");
    end_event();
    bool waited = !open.empty() && open.back();
    if (!open.empty()) open.pop_back();
    if (waited) counter("round trips", program_, event.when_ns, ++round_trips_);
}

void ProfileText::add_event(const ProfileEvent& event) {
    Track track{program_, event.thread};
    switch (event.kind) {
        case ProfileEvent::Kind::begin:
            begin_event("B", track, event.when_ns);
            field("name", json_text(event.name));
            if (event.why) field("args", "{\"for\":" + json_text(event.why) + "}");
            end_event();
            open_[event.thread].push_back(std::strcmp(event.name, "wait") == 0);
            return;
        case ProfileEvent::Kind::end:
            return add_end(event);
        case ProfileEvent::Kind::appended:
            return arrow("s", track, event.when_ns, event.number);
        case ProfileEvent::Kind::batch_sent:
            batch("batch sent", track, event.when_ns, event.number, event.bytes, event.records);
            return counter("bytes sent", program_, event.when_ns, bytes_sent_ += event.bytes);
        case ProfileEvent::Kind::batch_received:
            batch("batch received", track, event.when_ns, event.number, event.bytes, event.records);
            return counter("bytes received", program_, event.when_ns, bytes_received_ += event.bytes);
    }
}

// ---- the worker

// Slices of a track must not overlap, but may seem to when the clocks' difference or the GPU's time is measured anew.
uint64_t ProfileText::in_order(Track track, uint64_t when_ns) {
    return std::max(when_ns, ended_[{track.process, track.thread}]);
}

ProfileText::Track ProfileText::stream_track(const wire::ProfiledRecord& kernel) {
    auto found = streams_.find({kernel.count, kernel.stream_or_bytes});
    if (found != streams_.end()) return {gpu_, found->second};
    auto thread = static_cast<uint32_t>(streams_.size() + 1);
    streams_[{kernel.count, kernel.stream_or_bytes}] = thread;
    Track track{gpu_, thread};
    name_track(track,
               "stream " + std::to_string(kernel.stream_or_bytes) + " of context " + std::to_string(kernel.count));
    return track;
}

std::string ProfileText::kernel_name(uint64_t function) const {
    auto found = kernels_.find(function);
    return found != kernels_.end() ? found->second : "kernel " + std::to_string(function);
}

void ProfileText::add_worker(const wire::ProfiledRecord& record, const WorkerClock& clock) {
    bool kernel = record.kind == wire::ProfiledKind::kernel;
    Track track{worker_, dispatcher};
    if (kernel) track = stream_track(record);
    if (record.kind == wire::ProfiledKind::batch_received) track.thread = receives;
    if (record.kind == wire::ProfiledKind::batch_sent) track.thread = sends;
    auto told = record.begin_ns - static_cast<uint64_t>(clock.offset_ns());
    auto begin = in_order(track, told), end = std::max(begin, told + record.nanoseconds);
    ended_[{track.process, track.thread}] = end;
    auto position = record.number + clock.positions_behind;
    switch (record.kind) {
        case wire::ProfiledKind::dispatched:
            slice(track, name_of_record(record.op), begin, end - begin);
            if (record.op == wire::op_cuLaunchKernel) arrow("t", track, begin, position);
            return;
        case wire::ProfiledKind::kernel:
            slice(track, kernel_name(record.function), begin, end - begin);
            return arrow("f", track, begin, position);
        case wire::ProfiledKind::batch_received:
            return batch("batch received", track, begin, record.number, record.stream_or_bytes, record.count);
        case wire::ProfiledKind::batch_sent:
            return batch("batch sent", track, begin, record.number, record.stream_or_bytes, record.count);
    }
}

void ProfileText::add(ProfileBuffer::Contents&& contents, const WorkerClock& clock) {
    for (auto& [thread, name] : contents.threads) name_track({program_, thread}, name);
    kernels_.merge(contents.kernels);
    for (auto& event : contents.events) add_event(event);
    for (auto& record : contents.worker) add_worker(record, clock);
    if (contents.dropped == 0) return;
    dropped_ += contents.dropped;
    counter("events dropped", program_, profile_now(), dropped_);
}

void ProfileText::close() {
    auto now = profile_now();
    for (auto& [thread, open] : open_)
        while (!open.empty()) add_end({ProfileEvent::Kind::end, thread, now});
}

}  // namespace tnr::cuda
