// See ordered_sends.hpp.
#include "gpu_client/cuda/ordered_sends.hpp"

#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

// The right to send. Given back however sending ends.
class OrderedSends::Sending {
public:
    Sending(OrderedSends& sends, std::unique_lock<std::mutex>& lock) : sends_(sends), lock_(lock) {
        sends_.sending_ = true;
        lock_.unlock();
    }
    ~Sending() {
        lock_.lock();
        sends_.sending_ = false;
        ++sends_.sent_;
        sends_.sent_more_.notify_all();
    }
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

private:
    OrderedSends& sends_;
    std::unique_lock<std::mutex>& lock_;
};

void OrderedSends::put(uint16_t op, wire::Bytes payload) {
    std::lock_guard lock(mutex_);
    waiting_.push_back({op, std::move(payload)});
    ++put_;
}

CUresult OrderedSends::flush() {
    CUresult result = CUDA_SUCCESS;
    std::unique_lock lock(mutex_);
    const uint64_t all = put_;
    while (sent_ < all) {
        if (sending_) {
            sent_more_.wait(lock);
            continue;
        }
        Record record = std::move(waiting_.front());
        waiting_.pop_front();
        Sending sending(*this, lock);
        RemoteCall call(record.op, wire::CallWay::async_);
        call.in_context(nullptr);
        call.put_raw(record.payload.data(), record.payload.size());
        if (auto sent = call.send(); result == CUDA_SUCCESS) result = sent;
    }
    return result;
}

}  // namespace tnr::cuda
