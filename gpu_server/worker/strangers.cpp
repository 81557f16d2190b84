// See strangers.hpp.
#include "gpu_server/worker/strangers.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "gpu_server/pool/audit.hpp"
#include "gpu_server/worker/limits.hpp"

namespace tnr::worker {

Strangers::Strangers(const std::string& secret_key) {
    if (!secret_key.empty()) (void)zmq_z85_decode(secret_key_, secret_key.c_str());
    hooks_.hint = this;
    hooks_.accepted = [](void* self, int descriptor, const char* address) -> int {
        static_cast<Strangers*>(self)->accepted(descriptor, address);
        return 1;
    };
    // Before the number is used again.
    hooks_.closed = [](void* self, int descriptor) { static_cast<Strangers*>(self)->proven(descriptor); };
    hooks_.curve_secret_keys = [](void* self, unsigned char(*keys)[32], int) {
        std::memcpy(keys[0], static_cast<Strangers*>(self)->secret_key_, sizeof keys[0]);
        return 1;
    };
}

void Strangers::accepted(int descriptor, const std::string& address) {
    LockGuard lock(mutex_);
    waiting_[server::source_of(address)].push_back(descriptor);
    if (++count_ > strangers_max) end_one();
}

// ZeroMQ notices, and closes it.
void Strangers::end_one() {
    auto most = std::max_element(waiting_.begin(), waiting_.end(),
                                 [](auto& one, auto& other) { return one.second.size() < other.second.size(); });
    (void)shutdown(most->second.front(), SHUT_RDWR);
    most->second.pop_front();
    if (most->second.empty()) waiting_.erase(most);
    --count_;
}

void Strangers::proven(int descriptor) {
    LockGuard lock(mutex_);
    for (auto of_address = waiting_.begin(); of_address != waiting_.end(); ++of_address) {
        auto& waiting = of_address->second;
        auto found = std::find(waiting.begin(), waiting.end(), descriptor);
        if (found == waiting.end()) continue;
        waiting.erase(found);
        if (waiting.empty()) waiting_.erase(of_address);
        --count_;
        return;
    }
}

}  // namespace tnr::worker
