// The worker's line to its supervisor: JSON messages on the socket pair it was born with.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/device_description.hpp"
#include "gpu_client/protocol/image_hash.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/fences.hpp"

namespace tnr::worker {

// What the supervisor tells a warm worker when a claim takes it.
struct Serve {
    std::string session;
    std::string client_key;                   // the only key that may connect; empty: plain text
    wire::KeyPair keys;                       // this session's own
    size_t lanes = 0;                         // that the client may open
    size_t threads_max = SIZE_MAX;            // of this process
    uint64_t device_memory_max = UINT64_MAX;  // bytes of each GPU that the claim may use
};

class SupervisorLink {
public:
    explicit SupervisorLink(UniqueFd control) : control_(std::move(control)) {}

    void ready(const std::vector<DeviceDescription>& devices);
    void failed(const std::string& why);
    void ended(const std::string& reason);
    // The client has come, for the first time.
    void connected();
    // Its connection has ended: it may come back, or be gone; or it has come back. Said once each.
    void away(bool away);
    // What went to the GPU and back, and how long it had work, all in all. Said when it has changed.
    void used(uint64_t bytes_up, uint64_t bytes_down, uint64_t busy_ms);

    // Blocks until a claim takes the worker. False: the supervisor has gone.
    bool wait_for_work(Serve& serve);
    // Starts listening on a thread of its own, for answers and for the order to end (`end` is told why). From then on
    // the process ends when the supervisor goes.
    void start(std::function<void(const std::string& why)> end);
    // Whether another process of the claim uses one of the GPUs. `changed` is called on another thread with every change
    // from now on.
    bool shared() const { return shared_; }
    // Whether the node's lease still lasts: after it, nobody may begin to be served here.
    bool may_begin() const;
    // Whether one of the claim's GPUs has been given to another. One load for each GPU. Any thread.
    bool overtaken() const;
    void watch_sharing(std::function<void(bool shared)> changed);
    // What other processes want of what this client was granted. Without anybody who watches, nothing is given back.
    void watch_wishes(std::function<void(uint32_t device, uint64_t bytes)> wanted) TNR_EXCLUDES(mutex_);
    void give_back_memory(uint32_t device, uint64_t bytes);
    // Asks for the right to use more of the GPU's memory. `answer` runs on another thread. Unless it is to be exactly as
    // much, more is granted while there is plenty.
    enum class Exactly { no, yes };
    void ask_for_memory(uint32_t device, uint64_t bytes, Exactly exactly, std::function<void(uint64_t granted)> answer)
        TNR_EXCLUDES(mutex_);
    // Asks for a code image out of this tenant's cache. `answer` runs on the listening thread, so it must be quick; it
    // gets no descriptor if the image is not there.
    void find_image(const wire::ImageHash& hash, uint64_t bytes, std::function<void(UniqueFd)> answer);
    // Offers one to the cache: a sealed memory file. The supervisor may decline.
    void keep_image(const wire::ImageHash& hash, uint64_t bytes, int file);
    // Says something that the supervisor answers: `answer` gets that, on the listening thread, so it must be quick. For
    // the exchange of things between the claim's processes (exchange.hpp).
    using Exchanged = std::function<void(const nlohmann::json& answer, UniqueFd file)>;
    void exchange(nlohmann::json message, int file, Exchanged answer) TNR_EXCLUDES(mutex_);
    // Says something that is not answered.
    void tell(const nlohmann::json& message);
    // Reports that what find_image() gave has another hash.
    void image_is_damaged(const wire::ImageHash& hash);

private:
    void send(const std::string& message, int file = -1);
    bool receive(std::string& message, UniqueFd& file);
    void listen();
    void set_shared(bool shared) TNR_EXCLUDES(mutex_);
    void pass_on_wish(uint32_t device, uint64_t bytes) TNR_EXCLUDES(mutex_);
    void answer_grant(uint64_t ticket, uint64_t bytes) TNR_EXCLUDES(mutex_);
    void answer_image(uint64_t ticket, UniqueFd file) TNR_EXCLUDES(mutex_);
    void answer_exchange(const nlohmann::json& answer, UniqueFd file) TNR_EXCLUDES(mutex_);

    UniqueFd control_;
    std::vector<server::Fence> fences_;  // a GPU's each; unchanged once we serve
    int64_t fence_ = 0;                  // the claim's
    std::function<void(const std::string&)> end_;
    std::atomic<bool> shared_{false};
    std::atomic<int64_t> lease_until_ms_{std::numeric_limits<int64_t>::max()};  // CLOCK_BOOTTIME
    std::atomic<bool> away_{false};                                             // as it was told
    std::atomic<uint64_t> used_{0};  // likewise, all three together: none of them ever shrinks
    Mutex mutex_;
    std::function<void(bool)> sharing_changed_ TNR_GUARDED_BY(mutex_);
    std::function<void(uint32_t, uint64_t)> wanted_ TNR_GUARDED_BY(mutex_);
    std::map<uint64_t, std::function<void(uint64_t)>> asked_ TNR_GUARDED_BY(mutex_);
    std::map<uint64_t, std::function<void(UniqueFd)>> images_asked_ TNR_GUARDED_BY(mutex_);
    std::map<uint64_t, Exchanged> exchanging_ TNR_GUARDED_BY(mutex_);
    uint64_t next_ticket_ TNR_GUARDED_BY(mutex_) = 1;
};

// How long the supervisor may take to answer about a grant. It does nothing but count, and asks who is leaving.
inline constexpr std::chrono::milliseconds grant_timeout{10'000};

// Blocks until the supervisor has answered, and returns how much more it grants. What it grants later than that goes back.
uint64_t ask_and_wait(SupervisorLink& supervisor, uint32_t device, uint64_t bytes,
                      SupervisorLink::Exactly exactly = SupervisorLink::Exactly::no,
                      std::chrono::milliseconds patience = grant_timeout);

}  // namespace tnr::worker
