// Code images: offered, or received in pieces. What loads them is in calls_code.cpp and calls_link.cpp.
#include "gpu_client/protocol/code_records.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer image_piece(WorkerSession& session, Call& call, const wire::ImagePiece& piece) {
    return session.images.piece(piece.image, piece.offset, piece.total, call.bulk);
}

static Answer image_offer(WorkerSession& session, Call&, const wire::ImageOffer& offer) {
    return session.images.offered(offer.image, offer.hash, offer.total, session.supervisor);
}

void add_image_calls(HandlerTable& table) {
    table.add<image_piece>();
    table.add<image_offer>();
}

}  // namespace tnr::worker
