// Code images: offered, or received in pieces. What loads them is in calls_code.cpp and calls_link.cpp.
#include <algorithm>

#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer image_piece(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto offset = call.in.get<uint64_t>();
    auto total = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return session.images.piece(number, offset, total, call.bulk);
}

static Answer image_offer(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto total = call.in.get<uint64_t>();
    auto hash = call.in.get<wire::ImageHash>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return session.images.offered(number, hash, total, session.supervisor);
}

void add_image_calls(std::vector<Handler>& table) {
    table[wire::op_image_piece] = image_piece;
    table[wire::op_image_offer] = image_offer;
}

}  // namespace tnr::worker
