// A client asks what its worker has seen: profiler.hpp.
#include <algorithm>

#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static void send_records(WorkerSession& session, std::span<const wire::ProfiledRecord> records) {
    while (!records.empty()) {
        auto piece = records.first(std::min(records.size(), wire::profiled_piece_max));
        records = records.subspan(piece.size());
        wire::Bytes payload;
        wire::Writer writer(payload);
        writer.put(static_cast<uint32_t>(piece.size()));
        writer.put_raw(piece.data(), piece.size_bytes());
        session.outbox.tell(wire::op_profiled, payload);
    }
}

static Answer profile(WorkerSession& session, Call& call) {
    auto wish = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (wish > wire::profile_report) return CUDA_ERROR_INVALID_VALUE;
    session.profiler.start();
    uint64_t dropped = 0;
    if (wish == wire::profile_report) {
        auto report = session.profiler.report();
        dropped = report.dropped;
        send_records(session, report.records);
    }
    wire::Writer writer(call.outputs);
    writer.put(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
    writer.put(session.profiler.position());
    writer.put(dropped);
    return CUDA_SUCCESS;
}

void add_profile_calls(std::vector<Handler>& table) {
    table[wire::op_profile] = profile;
}

}  // namespace tnr::worker
