// See profile_worker.hpp.
#include "gpu_client/cuda/profile_worker.hpp"

#include "gpu_client/cuda/profile.hpp"

namespace tnr::cuda {

static constexpr std::chrono::milliseconds answer_within{1000};
static constexpr int clock_samples = 4;
// Crystals of two computers differ by 50 millionths at most.
static constexpr uint64_t drift_divisor = 20'000;

uint64_t profile_now() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void WorkerClock::compare(uint64_t asked_ns, uint64_t answered_ns, uint64_t worker_ns) {
    uint64_t half = (answered_ns - asked_ns) / 2, drifted = (answered_ns - measured_ns_) / drift_divisor;
    if (measured_ns_ != 0 && half >= error_ns_ + drifted) return;
    offset_ns_ = static_cast<int64_t>(worker_ns - (asked_ns + half));
    error_ns_ = half;
    measured_ns_ = answered_ns;
}

static constexpr size_t payload_bytes = sizeof(uint64_t) + sizeof(uint32_t);  // call number, wish

static void put_wish(std::byte* payload, wire::ProfileWish wish) {
    std::memcpy(payload + sizeof(uint64_t), &wish, sizeof wish);
}

void profile_session(Session& session) {
    if (!profiling()) return;
    static Pending begun;  // nobody waits for it
    std::byte payload[payload_bytes];
    put_wish(payload, wire::profile_clock);
    begun.when_done = [](Pending&) {};
    session.request(0, wire::op_profile, payload, begun);
}

struct WorkerAnswer {
    uint64_t asked_ns, answered_ns;  // by our clock
    uint64_t worker_ns, dropped;
    uint64_t positions_behind;
};

static bool ask(Session& session, wire::ProfileWish wish, WorkerAnswer& answer) {
    std::byte payload[payload_bytes];
    put_wish(payload, wish);
    Pending pending;
    answer.asked_ns = profile_now();
    auto position = session.request(0, wire::op_profile, payload, pending);
    if (!session.wait(pending, answer_within) || pending.result != CUDA_SUCCESS) return false;  // an old worker
    answer.answered_ns = profile_now();
    wire::Reader in(pending.answer);
    answer.worker_ns = in.get<uint64_t>();
    answer.positions_behind = position - in.get<uint64_t>();
    answer.dropped = in.get<uint64_t>();
    return in.finished();
}

uint64_t ask_worker(Session& session, WorkerClock& clock) {
    WorkerAnswer answer{};
    for (int i = 0; i < clock_samples && ask(session, wire::profile_clock, answer); ++i)
        clock.compare(answer.asked_ns, answer.answered_ns, answer.worker_ns);
    if (!ask(session, wire::profile_report, answer)) return 0;
    clock.positions_behind = answer.positions_behind;
    return answer.dropped;
}

bool take_profiled(wire::Reader in) {
    auto count = in.get<uint32_t>();
    if (count > wire::profiled_piece_max) return false;
    std::vector<wire::ProfiledRecord> records(count);
    auto bytes = in.raw(count * sizeof records[0]);
    if (!in.finished()) return false;
    if (!bytes.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
    take_profiled(records);
    return true;
}

}  // namespace tnr::cuda
