// See page_transfers.hpp.
#include "gpu_client/cuda/page_transfers.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_memory.hpp"
#include "gpu_client/cuda/stats.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/frame_buffers.hpp"

namespace tnr::cuda {

// How long the GPU may take to have what a host function has changed. Its worker may be waiting for the function
// itself: the driver may keep it in a call that waits for the stream.
static constexpr std::chrono::milliseconds giving_timeout{2000};
// Pieces that are asked for before the first is waited for.
static constexpr size_t fetched_together_max = 256;

Work work_of(const Context& context, const StreamRef& stream) {
    return {context.handle, stream.object ? stream.object->handle : 0, last_use(stream, context), nullptr};
}

// Null if it has ended; `ref` is then the default stream.
static Context* find(const Work& work, StreamRef& ref) {
    auto* context = contexts().find(work.context);
    if (!context || !context->active) return nullptr;
    ref.object = work.stream != 0 ? streams().find(work.stream) : nullptr;
    ref.number = ref.object ? ref.object->number : 0;
    return context;
}

struct WorkAsked {
    std::atomic<bool> answered{false}, failed{false}, captured{false};
    Pending pending;
    wire::Bytes question;
    std::shared_ptr<WorkAsked> itself;  // until it is answered, whoever has stopped waiting for it by then

    bool is_complete() const { return answered && !failed && !captured; }
};

static bool is_gone(const Work& work, const StreamRef& stream) {
    return work.stream != 0 && !stream.object;
}

bool is_complete(const Work& work) {
    if (work.asked && work.asked->is_complete()) return true;  // what is known of a stream goes with it
    StreamRef stream;
    auto* context = find(work, stream);
    if (!context) return true;
    if (context->synced >= work.position) return true;
    // A stream that is gone may still be at work.
    return !is_gone(work, stream) && synced_position(stream, *context) >= work.position;
}

// Is told on whichever thread receives. The answer says that everything up to the question is complete, so the work is.
static void answered(const Work& work, bool asked_for_all, WorkAsked& asked, CUresult result) {
    StreamRef stream;
    // What the stream was given before it was captured is watched (watch_before_capture).
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && !asked_for_all)
        asked.captured = true;
    else if (result != CUDA_SUCCESS)
        asked.failed = true;
    else if (auto* context = find(work, stream)) {
        if (asked_for_all || is_gone(work, stream))
            raise_to(context->synced, work.position);
        else
            note_synced(stream, *context, work.position);
    }
    asked.answered = true;
}

static void ask(Work& work, Context& context, const StreamRef& stream) {
    const bool gone = is_gone(work, stream);
    auto asked = std::make_shared<WorkAsked>();
    asked->question = gone ? wire::question_of(wire::SynchronizeContext{})
                           : wire::question_of(wire::SynchronizeStream<>{stream.number});
    asked->pending.when_done = [work, gone, asked = asked.get()](Pending& pending) {
        const auto kept = std::move(asked->itself);
        answered(work, gone, *kept, pending.result);
    };
    work.asked = asked->itself = asked;
    context.session.load()->request(context.number, gone ? wire::SynchronizeContext::op : wire::SynchronizeStream<>::op,
                                    asked->question, asked->pending);
}

Waited wait_for(Work& work, std::chrono::milliseconds timeout) {
    StreamRef stream;
    auto* context = find(work, stream);
    if (!context) return Waited::complete;
    if (library_state != LibraryState::ready) return Waited::failed;
    // A stream that was captured when it was asked tells nothing more once it is gone.
    auto tells_nothing = [&] {
        StreamRef now;
        return work.asked->captured && find(work, now) && is_gone(work, now);
    };
    if (!work.asked || tells_nothing()) ask(work, *context, stream);
    auto& session = *context->session.load();
    auto& asked = *work.asked;
    auto known = [&] { return asked.answered && (!asked.captured || is_complete(work) || tells_nothing()); };
    ProfiledWait profiled(asked.pending.op);
    stats().count_waited(asked.pending.op);
    if (session.wait_until(known, timeout)) {
        if (asked.failed) return Waited::failed;
        return is_complete(work) ? Waited::complete : Waited::going_on;
    }
    return session.lost() ? Waited::failed : Waited::going_on;
}

void watch_before_capture(const StreamRef& stream) {
    Context* context = nullptr;
    if (!anything_shared() || context_of_stream(stream, context) != CUDA_SUCCESS) return;
    const Work work = work_of(*context, stream);
    if (work.position <= stream.object->watched || is_complete(work)) return;
    RemoteCall call(wire::WatchStream<>{stream.number, work.position});
    call.in_context(context);
    if (call.send() == CUDA_SUCCESS) raise_to(stream.object->watched, work.position);
}

namespace {
struct TransferStreams {
    Mutex mutex;
    std::map<uint64_t, uint64_t> by_context TNR_GUARDED_BY(mutex);  // handles
};
TransferStreams& transfer_streams() {
    static auto* all = new TransferStreams;
    return *all;
}
}  // namespace

CUresult open_transfers(Context& context, uint64_t& stream) {
    auto& all = transfer_streams();
    {
        LockGuard lock(all.mutex);
        auto found = all.by_context.find(context.handle);
        if (found != all.by_context.end() && streams().find(found->second)) {
            stream = found->second;
            return CUDA_SUCCESS;
        }
    }
    if (auto result = make_stream(context, CU_STREAM_NON_BLOCKING, 0, stream); result != CUDA_SUCCESS) return result;
    --context.nonblocking_streams;  // its work is always waited for, so whoever waits for all others has waited for it
    LockGuard lock(all.mutex);
    all.by_context[context.handle] = stream;
    return CUDA_SUCCESS;
}

static Context* find(const Transfers& by, uint64_t& stream_number) {
    auto* context = contexts().find(by.context);
    auto* stream = streams().find(by.stream);
    // Destructors at exit touch memory when the GPU has been given back.
    if (!context || !context->active || !stream || library_state != LibraryState::ready) return nullptr;
    stream_number = stream->number;
    return context;
}

void give_bytes(const Transfers& by, uint64_t device, const std::byte* from, uint64_t bytes) {
    uint64_t stream = 0;
    auto* context = find(by, stream);
    if (!context) return;
    auto& session = *context->session.load();
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t length = std::min<uint64_t>(bytes - done, wire::piece_bytes_max);
        wire::Upload<> record{device + done, stream, wire::copy_sync | wire::copy_shared, length};
        const std::span<const std::byte> data(from + done, length);
        if (length <= wire::inline_copy_bytes_max) {
            record.flags |= wire::copy_inline;
            session.append(context->number, record.op, {wire::packed(record), data});
        } else {
            session.wait_for_room();
            auto piece = wire::frame_buffers().copy_of(data);
            session.append(context->number, record.op, {wire::packed(record)}, &piece);
        }
        done += length;
    }
    stats().pages.given.fetch_add(bytes, Stats::relaxed);
}

namespace {
// One piece on its way. It must stay where it is until it is waited for.
struct Fetch {
    wire::Bytes question;
    Pending pending;
};
}  // namespace

static bool finish(ClientSession& session, Fetch& fetch, uint64_t bytes) {
    session.wait(fetch.pending);
    if (fetch.pending.result != CUDA_SUCCESS) return false;
    wire::Reader answer(fetch.pending.answer);
    wire::DownloadReply reply;
    if (!wire::read(answer, reply) || !fetch.pending.destination.write(0, reply.data)) return false;
    stats().pages.count_fetched(bytes);
    return true;
}

bool fetch_bytes(const Transfers& by, std::span<const WantedBytes> wanted) {
    uint64_t stream = 0;
    auto* context = find(by, stream);
    if (!context) return false;
    auto& session = *context->session.load();
    bool all = true;
    while (!wanted.empty()) {
        const auto now = wanted.first(std::min(wanted.size(), fetched_together_max));
        wanted = wanted.subspan(now.size());
        std::vector<Fetch> asked(now.size());
        for (size_t i = 0; i < now.size(); ++i) {
            const wire::Download<> record{now[i].device, stream, wire::copy_sync | wire::copy_shared, now[i].bytes};
            asked[i].question = wire::question_of(record);
            asked[i].pending.destination = {now[i].to, now[i].bytes, 0, 0};
            session.request(context->number, record.op, asked[i].question, asked[i].pending);
        }
        ++stats().pages.waits;
        for (size_t i = 0; i < now.size(); ++i) all &= finish(session, asked[i], now[i].bytes);
    }
    return all;
}

// False after `timeout`.
static bool finish_giving(const Transfers& by, std::chrono::milliseconds timeout) {
    struct Question {
        Pending pending;
        wire::Bytes text;
    };
    uint64_t stream = 0;
    auto* context = find(by, stream);
    if (!context) return true;
    auto& session = *context->session.load();
    auto* question = new Question;  // freed when it is answered
    auto answered = std::make_shared<std::atomic<bool>>(false);
    question->text = wire::question_of(wire::SynchronizeStream<>{stream});
    question->pending.when_done = [question, answered](Pending&) {
        *answered = true;
        delete question;
    };
    session.request(context->number, wire::SynchronizeStream<>::op, question->text, question->pending);
    return session.wait_until([answered] { return answered->load(); }, timeout);
}

void finish_for_stream(std::vector<Transfers> used) {
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (auto& by : used) {
        if (finish_giving(by, giving_timeout)) continue;
        log_once(LogLevel::warning,
                 "what a function of the program has changed for its stream in managed memory, or for a graph's copies "
                 "behind it, may come too late: the GPU's worker is waiting for that stream");
    }
}

void give_pages(const SharedRange& range, PageRun run) {
    auto [offset, bytes] = range.part(run);
    const auto* from = range.view->content(run.first) + (offset - run.first * page_bytes());
    give_bytes({range.context, range.transfers}, range.device + offset, from, bytes);
}

bool fetch_pages(const SharedRange& range, PageRun run, std::byte* to) {
    auto [offset, bytes] = range.part(run);
    to += offset - run.first * page_bytes();
    const WantedBytes wanted{range.device + offset, bytes, to};
    return bytes == 0 || fetch_bytes({range.context, range.transfers}, {&wanted, 1});
}

}  // namespace tnr::cuda
