// See lanes.hpp.
#include "gpu_client/protocol/lanes.hpp"

#include <algorithm>

namespace tnr::wire {

size_t lanes_for_cores(unsigned cores) {
    size_t lanes = std::min<size_t>(cores / 2, lanes_max);
    return lanes < 2 ? 0 : lanes;
}

void Lanes::up(size_t lane, uint64_t connection) {
    if (lane == 0 || lane > lanes_max) return;
    lanes_[lane].connection = std::max(lanes_[lane].connection, connection);
    for (auto& one : lanes_) one.given = 0;  // a new one need not catch up
}

size_t Lanes::count_up(uint64_t connection) const {
    return static_cast<size_t>(
        std::count_if(lanes_.begin() + 1, lanes_.end(), [&](const Lane& lane) { return lane.is_of(connection); }));
}

size_t Lanes::pick(uint64_t connection, size_t data_bytes) {
    size_t picked = 0;
    for (size_t lane = 1; lane <= lanes_max && data_bytes >= lane_batch_bytes_min; ++lane)
        if (lanes_[lane].is_of(connection) && (picked == 0 || lanes_[lane].given < lanes_[picked].given)) picked = lane;
    if (picked == 0) return 0;
    lanes_[picked].given += data_bytes;
    return picked;
}

LaneTraffic::Bytes LaneTraffic::total() const {
    Bytes sum;
    for (size_t lane = 0; lane <= lanes_max; ++lane) {
        auto bytes = of(lane);
        sum.sent += bytes.sent;
        sum.received += bytes.received;
    }
    return sum;
}

void LaneDials::begin() {
    bool lanes_came_up = up_ == wanted_ + 1;
    if (lanes_came_up || (up_ > 0 && without_lanes()))
        failures_ = 0;  // what breaks without lanes does not break by them
    else if (up_ > 0)
        ++failures_;
    up_ = 0;
}

bool Overtakers::put(Batch&& batch) {
    auto sequence = batch.header.sequence;
    size_t bytes = batch.bytes;
    if (batches_.size() >= overtaking_batches_max || bytes > overtaking_bytes_max - bytes_) return false;
    if (batches_.try_emplace(sequence, std::move(batch)).second) bytes_ += bytes;
    return true;
}

bool Overtakers::take(uint64_t sequence, Batch& batch) {
    auto found = batches_.find(sequence);
    if (found == batches_.end()) return false;
    batch = std::move(found->second);
    bytes_ -= batch.bytes;
    batches_.erase(found);
    return true;
}

}  // namespace tnr::wire
