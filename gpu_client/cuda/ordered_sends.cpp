// See ordered_sends.hpp.
#include "gpu_client/cuda/ordered_sends.hpp"

#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

// Holds the right to send, with the lock released meanwhile. Both end with the scope, however sending ends.
class TNR_SCOPED_CAPABILITY OrderedSends::Sending {
public:
    explicit Sending(OrderedSends& sends) TNR_RELEASE(sends.mutex_) : sends_(sends) {
        sends.sending_ = true;
        sends.mutex_.unlock();
    }
    // What clang calls releasing the scope is taking the lock again.
    ~Sending() TNR_RELEASE() TNR_NO_THREAD_SAFETY_ANALYSIS {
        sends_.mutex_.lock();
        sends_.sending_ = false;
        ++sends_.sent_;
        sends_.sent_more_.notify_all();
    }
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

private:
    OrderedSends& sends_;
};

void OrderedSends::put(uint16_t op, wire::Bytes payload) {
    LockGuard lock(mutex_);
    waiting_.push_back({op, std::move(payload)});
    ++put_;
}

// Sends without the lock.
CUresult OrderedSends::send_next() {
    auto record = std::move(waiting_.front());
    waiting_.pop_front();
    Sending sending(*this);
    RemoteCall call(record.op, wire::CallWay::async_);
    call.on(device_);
    call.put_raw(record.payload.data(), record.payload.size());
    return call.send();
}

CUresult OrderedSends::flush() {
    CUresult result = CUDA_SUCCESS;
    LockGuard lock(mutex_);
    const uint64_t all = put_;
    while (sent_ < all) {
        if (sending_) {
            sent_more_.wait(mutex_);
            continue;
        }
        if (auto sent = send_next(); result == CUDA_SUCCESS) result = sent;
    }
    return result;
}

}  // namespace tnr::cuda
