// A client asks what its worker has seen: profiler.hpp.
#include <algorithm>

#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static void send_records(WorkerSession& session, std::span<const wire::ProfiledRecord> records) {
    while (!records.empty()) {
        auto piece = records.first(std::min(records.size(), wire::profiled_piece_max));
        records = records.subspan(piece.size());
        wire::Profiled told;
        told.records.assign(piece.begin(), piece.end());
        session.outbox.tell(told);
    }
}

static Answer profile(WorkerSession& session, Call& call, const wire::Profile& asked) {
    if (asked.wish > wire::profile_report) return CUDA_ERROR_INVALID_VALUE;
    session.profiler.start();
    wire::Profile::Reply reply;
    if (asked.wish == wire::profile_report) {
        auto report = session.profiler.report();
        reply.dropped = report.dropped;
        send_records(session, report.records);
    }
    reply.clock_ns = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    reply.position = session.profiler.position();
    call.reply(reply);
    return CUDA_SUCCESS;
}

void add_profile_calls(HandlerTable& table) {
    table.add<profile>();
}

}  // namespace tnr::worker
