// See profile_worker.hpp.
#include "gpu_client/cuda/profile_worker.hpp"

#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/profile_buffer.hpp"

namespace tnr::cuda {

static constexpr std::chrono::milliseconds answer_within{1000};
static constexpr int clock_samples = 4;

void profile_session(ClientSession& session) {
    if (!profiling()) return;
    static Pending begun;  // nobody waits for it
    auto question = wire::question_of(wire::Profile{wire::profile_clock});
    begun.when_done = [](Pending&) {};
    session.request(0, wire::op_profile, question, begun);
}

struct WorkerAnswer {
    uint64_t asked_ns, answered_ns;  // by our clock
    uint64_t worker_ns, dropped;
    uint64_t positions_behind;
};

static bool ask(ClientSession& session, wire::ProfileWish wish, WorkerAnswer& answer) {
    auto question = wire::question_of(wire::Profile{wish});
    Pending pending;
    answer.asked_ns = profile_now();
    auto position = session.request(0, wire::op_profile, question, pending);
    if (!session.wait(pending, answer_within) || pending.result != CUDA_SUCCESS) return false;  // an old worker
    answer.answered_ns = profile_now();
    wire::Reader in(pending.answer);
    wire::Profile::Reply reply;
    if (!wire::read(in, reply)) return false;
    answer.worker_ns = reply.clock_ns;
    answer.positions_behind = position - reply.position;
    answer.dropped = reply.dropped;
    return true;
}

uint64_t ask_worker(ClientSession& session, WorkerClock& clock) {
    WorkerAnswer answer{};
    for (int i = 0; i < clock_samples && ask(session, wire::profile_clock, answer); ++i)
        clock.compare(answer.asked_ns, answer.answered_ns, answer.worker_ns);
    if (!ask(session, wire::profile_report, answer)) return 0;
    clock.positions_behind = answer.positions_behind;
    return answer.dropped;
}

}  // namespace tnr::cuda
