// See captures.hpp.
#include "gpu_client/cuda/captures.hpp"

#include <algorithm>
#include <map>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/graph_objects.hpp"
#include "gpu_client/cuda/thread_state.hpp"

namespace tnr::cuda {

std::atomic<size_t> captures_going_on{0};

namespace {

struct Capture {
    uint64_t id = 0;
    uint64_t origin = 0;      // handle of the stream
    CUgraph graph = nullptr;  // once the program knows it
    bool owns_graph = true;   // begun without one
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread = std::this_thread::get_id();
    bool spoilt = false;
    struct Member {
        Stream* stream = nullptr;
        ShownDependencies shown;  // by the last question; good until the next one
    };
    std::map<uint64_t, Member> members;  // by the stream's handle
    GraphNeeds needs;
};

struct Captures {
    Mutex mutex;
    uint64_t last_id TNR_GUARDED_BY(mutex) = 0;
    std::map<uint64_t, Capture> by_id TNR_GUARDED_BY(mutex);  // that have begun and not ended, spoilt ones too

    // Null: the stream is not being captured.
    Capture* of(const StreamRef& stream) TNR_REQUIRES(mutex) {
        auto found = stream.object ? by_id.find(stream.object->capture) : by_id.end();
        return found == by_id.end() ? nullptr : &found->second;
    }
    void count() TNR_REQUIRES(mutex) { captures_going_on = by_id.size(); }
    void release(Capture& capture) TNR_REQUIRES(mutex) {
        for (auto& [handle, member] : capture.members) member.stream->capture = 0;
        by_id.erase(capture.id);
        count();
    }
};
Captures& captures() {
    static auto* all = new Captures;
    return *all;
}

CUstreamCaptureMode& mode_of_thread() {
    static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
}

CUresult spoil(Capture& capture, CUresult error) {
    capture.spoilt = true;
    return error;
}

bool has_member_in(const Capture& capture, uint64_t context, bool blocking_only) {
    return std::any_of(capture.members.begin(), capture.members.end(), [&](const auto& entry) {
        auto& stream = *entry.second.stream;
        return stream.context == context && !(blocking_only && (stream.flags & CU_STREAM_NON_BLOCKING));
    });
}

// The legacy stream waits for the blocking streams of its context, so it would have to be captured with them.
CUresult check_legacy(const StreamRef& stream, bool spoils) TNR_REQUIRES(captures().mutex) {
    if (stream.object) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (auto& [id, capture] : captures().by_id) {
        if (!has_member_in(capture, current_context_handle(), true)) continue;
        capture.spoilt |= spoils;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

CUresult check_in_capture(const StreamRef& stream) TNR_REQUIRES(captures().mutex) {
    if (auto result = check_legacy(stream, true); result != CUDA_SUCCESS) return result;
    auto* capture = captures().of(stream);
    return capture ? spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

CUresult check_unsafe() TNR_REQUIRES(captures().mutex) {
    CUresult result = CUDA_SUCCESS;
    auto mode = mode_of_thread();
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return result;
    for (auto& [id, capture] : captures().by_id) {
        bool mine = capture.thread == std::this_thread::get_id();
        bool forbids = mine ? capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
                            : mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (forbids) result = spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

}  // namespace

CUresult refuse_work_slowly(const StreamRef& stream) {
    LockGuard lock(captures().mutex);
    if (auto result = check_legacy(stream, true); result != CUDA_SUCCESS) return result;
    auto* capture = captures().of(stream);
    return capture && capture->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult refuse_wait_slowly(const StreamRef& stream) {
    LockGuard lock(captures().mutex);
    auto result = check_in_capture(stream);
    return result != CUDA_SUCCESS ? result : check_unsafe();
}

CUresult refuse_wait_slowly(const Context& context) {
    LockGuard lock(captures().mutex);
    CUresult result = CUDA_SUCCESS;
    for (auto& [id, capture] : captures().by_id)
        if (has_member_in(capture, context.handle, false))
            result = spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result != CUDA_SUCCESS ? result : check_unsafe();
}

CUresult refuse_unsafe_slowly() {
    LockGuard lock(captures().mutex);
    return check_unsafe();
}

CUresult refuse_wait(const Event& event) {
    uint64_t id = event.capture;
    if (id == 0) return refuse_unsafe();
    LockGuard lock(captures().mutex);
    auto found = captures().by_id.find(id);
    if (found == captures().by_id.end()) return CUDA_ERROR_INVALID_VALUE;  // the capture has ended
    return spoil(found->second, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult refuse_in_capture(const StreamRef& stream) {
    if (!anything_captures()) return CUDA_SUCCESS;
    LockGuard lock(captures().mutex);
    return check_in_capture(stream);
}

bool captures_in(const Context& context) {
    if (!anything_captures()) return false;
    LockGuard lock(captures().mutex);
    return std::any_of(captures().by_id.begin(), captures().by_id.end(),
                       [&](const auto& entry) { return has_member_in(entry.second, context.handle, false); });
}

CUresult capture_wait(const StreamRef& stream, Event& event) {
    if (!anything_captures() && event.capture == 0) return CUDA_SUCCESS;
    LockGuard lock(captures().mutex);
    if (auto result = check_legacy(stream, true); result != CUDA_SUCCESS) return result;
    auto found = captures().by_id.find(event.capture);
    auto* theirs = found == captures().by_id.end() ? nullptr : &found->second;
    auto* mine = captures().of(stream);
    if (!mine) {
        if (event.capture == 0) return CUDA_SUCCESS;
        if (!theirs) return CUDA_ERROR_INVALID_VALUE;
        if (theirs->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (!stream.object) return spoil(*theirs, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        theirs->members[stream.object->handle].stream = stream.object;
        stream.object->capture = theirs->id;
        return CUDA_SUCCESS;
    }
    if (mine->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!theirs) return spoil(*mine, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (theirs == mine) return CUDA_SUCCESS;
    theirs->spoilt = true;
    return spoil(*mine, CUDA_ERROR_STREAM_CAPTURE_MERGE);
}

void capture_stream_gone(Stream& stream) {
    if (stream.capture == 0) return;
    CUgraph lost = nullptr;
    {
        LockGuard lock(captures().mutex);
        auto* capture = captures().of({stream.number, &stream});
        if (!capture) return;
        if (capture->origin == stream.handle) {  // nobody can end it any more
            if (capture->owns_graph) lost = capture->graph;
            captures().release(*capture);
        } else {
            capture->members.erase(stream.handle);
            stream.capture = 0;
        }
    }
    if (lost) forget(lost);
}

bool add_needs(const StreamRef& stream, const GraphNeeds& more) {
    LockGuard lock(captures().mutex);
    auto* capture = captures().of(stream);
    if (capture) capture->needs.add(more);
    return capture != nullptr;
}

HostCopies::Copy same_copy_so_far(const StreamRef& stream, const HostCopy& like) {
    LockGuard lock(captures().mutex);
    auto* capture = captures().of(stream);
    return capture ? capture->needs.copies.find_same(like) : nullptr;
}

bool is_captured_into_body(const StreamRef& stream) {
    LockGuard lock(captures().mutex);
    auto* capture = captures().of(stream);
    return capture && !capture->owns_graph && is_in_body(capture->graph);
}

bool is_captured_into(CUgraph graph) {
    if (!anything_captures()) return false;
    LockGuard lock(captures().mutex);
    return std::any_of(captures().by_id.begin(), captures().by_id.end(),
                       [&](const auto& entry) { return entry.second.graph == graph; });
}

// ---- beginning, ending, asking ----

void capture_begins(const StreamRef& stream, CUstreamCaptureMode mode, CUgraph graph) {
    LockGuard lock(captures().mutex);
    Capture capture;
    capture.id = ++captures().last_id;
    capture.origin = stream.object->handle;
    capture.graph = graph;
    capture.owns_graph = graph == nullptr;
    capture.mode = mode;
    capture.members[capture.origin].stream = stream.object;
    stream.object->capture = capture.id;
    captures().by_id.emplace(capture.id, std::move(capture));
    captures().count();
}

CUresult capture_ends(const StreamRef& stream, EndedCapture& ended) {
    LockGuard lock(captures().mutex);
    if (auto result = check_legacy(stream, true); result != CUDA_SUCCESS) return result;
    auto* capture = captures().of(stream);
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream.object->handle) return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    const bool wrong_thread =
        capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id();
    ended = {capture->spoilt, capture->owns_graph, wrong_thread, capture->graph, std::move(capture->needs)};
    captures().release(*capture);
    return CUDA_SUCCESS;
}

CUstreamCaptureMode& capture_mode_of_thread() {
    return mode_of_thread();
}

CUresult find_capture(const StreamRef& stream, CUstreamCaptureStatus& status, uint64_t& id) {
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    id = 0;
    if (!anything_captures()) return CUDA_SUCCESS;
    LockGuard lock(captures().mutex);
    if (auto result = check_legacy(stream, false); result != CUDA_SUCCESS) return result;
    auto* capture = captures().of(stream);
    if (!capture) return CUDA_SUCCESS;
    status = capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    id = capture->id;
    return CUDA_SUCCESS;
}

const ShownDependencies* show_dependencies(const StreamRef& stream, CUgraph graph, ShownDependencies shown) {
    LockGuard lock(captures().mutex);
    auto* capture = captures().of(stream);
    if (!capture) return nullptr;
    capture->graph = graph;
    auto& kept = capture->members[stream.object->handle].shown;
    kept = std::move(shown);
    return &kept;
}

}  // namespace tnr::cuda
