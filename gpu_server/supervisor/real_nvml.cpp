// The node's real NVML. A thread of its own asks it once a second while anybody wants to know: single NVML calls can
// take tens of milliseconds, and the supervisor has one thread for all its clients.
#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/nvml_library.hpp"
#include "gpu_server/supervisor/own_facts.hpp"

namespace tnr::server {

namespace {

using Clock = std::chrono::steady_clock;

// Nobody has asked for so long: the hardware is left alone (asking keeps an idle GPU from its deepest sleep).
constexpr auto interest_lasts = std::chrono::seconds(10);
constexpr auto ask_every = std::chrono::seconds(1);
// An older reading tells nothing of now: it is from before the last pause.
constexpr auto reading_lasts = std::chrono::seconds(3);

class RealNvml : public NvmlSource {
public:
    explicit RealNvml(const std::string& path) : nvml_(path) {
        if (!nvml_.started()) {
            log(LogLevel::info, path + " does not start: nvidia-smi shows the pool's own facts");
            return;
        }
        driver_version_ = nvml_.driver_version();
        thread_ = std::thread([this] { keep_reading(); });
    }
    ~RealNvml() override {
        {
            LockGuard lock(mutex_);
            stopping_ = true;
        }
        wanted_.notify_all();
        if (thread_.joinable()) thread_.join();
    }

    bool ready(const std::vector<NvmlDevice>& devices) override {
        if (!nvml_.started()) return true;
        LockGuard lock(mutex_);
        interest_until_ = Clock::now() + interest_lasts;
        bool all = true, added = false;
        for (auto& device : devices) {
            auto [reading, is_new] = readings_.try_emplace(device.uuid);  // from now on this GPU is read
            added |= is_new;
            all &= is_fresh(reading->second);
        }
        asked_for_more_ |= added;
        wanted_.notify_all();
        return all;
    }
    Result<nlohmann::json> snapshot(const std::vector<NvmlDevice>& devices) override {
        auto snapshot = own_facts(devices);
        LockGuard lock(mutex_);
        for (auto& gpu : snapshot.devices) add_reading(gpu);
        for (auto& gpu : snapshot.devices) leave_out_strangers(gpu, snapshot.devices);
        for (size_t i = 0, row = 0; i < devices.size(); ++i)
            for (auto& process : devices[i].processes) add_reading(snapshot.processes[row++], devices[i], process);
        return to_json(snapshot);
    }
    std::optional<int> minor_number(const std::string& uuid) override {
        return nvml_.started() ? nvml_.minor_number(uuid) : std::nullopt;
    }

private:
    struct Timed {
        NvmlReading reading;
        Clock::time_point at{};
    };
    static bool is_fresh(const Timed& timed) { return Clock::now() - timed.at < reading_lasts; }

    void add_reading(GpuFacts& gpu) TNR_REQUIRES(mutex_) {
        gpu.driver_version = driver_version_;
        auto found = readings_.find(gpu.uuid);
        if (found == readings_.end() || !is_fresh(found->second)) return;
        auto& reading = found->second.reading;
        for (auto& [key, value] : reading.values) gpu.values[key] = value;
        gpu.peers = reading.peers;
        gpu.links = reading.links;
        if (reading.lost) gpu.values[gpu_value::lost] = 1;
        if (reading.memory_used) gpu.memory_used = std::min<uint64_t>(*reading.memory_used, gpu.memory_total);
    }
    // GPUs that the caller does not see are none of its business.
    static void leave_out_strangers(GpuFacts& gpu, const std::vector<GpuFacts>& seen) {
        auto stranger = [&](const std::string& uuid) {
            return std::none_of(seen.begin(), seen.end(), [&](const GpuFacts& other) { return other.uuid == uuid; });
        };
        std::erase_if(gpu.peers, [&](auto& peer) { return stranger(peer.first); });
        std::erase_if(gpu.links, [&](auto& link) { return !link.second.empty() && stranger(link.second); });
    }
    void add_reading(GpuProcess& process, const NvmlDevice& device, const NvmlProcess& known) TNR_REQUIRES(mutex_) {
        auto found = readings_.find(device.uuid);
        if (found == readings_.end() || !is_fresh(found->second)) return;
        auto& bytes = found->second.reading.process_bytes;
        if (auto used = bytes.find(known.worker_pid); used != bytes.end()) process.used_bytes = used->second;
    }

    void keep_reading() {
        UniqueLock lock(mutex_);
        while (!stopping_) {
            wanted_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return stopping_ || Clock::now() < interest_until_; });
            std::vector<std::string> uuids;
            for (auto& [uuid, reading] : readings_) uuids.push_back(uuid);
            asked_for_more_ = false;
            lock.unlock();
            std::map<std::string, Timed> fresh;
            for (auto& uuid : uuids) fresh[uuid] = {read_gpu(nvml_, uuid, uuids), Clock::now()};
            lock.lock();
            for (auto& [uuid, timed] : fresh) note(uuid, std::move(timed));
            wanted_.wait_for(mutex_, ask_every, [&]() TNR_REQUIRES(mutex_) { return stopping_ || asked_for_more_; });
        }
    }
    void note(const std::string& uuid, Timed timed) TNR_REQUIRES(mutex_) {
        auto& known = readings_[uuid];
        if (timed.reading.lost && !known.reading.lost)
            log(LogLevel::error, "NVML says that " + uuid_text(uuid) + " is lost: this node has to be restarted");
        known = std::move(timed);
    }

    NvmlLibrary nvml_;
    std::string driver_version_;
    Mutex mutex_;
    Condition wanted_;
    bool stopping_ TNR_GUARDED_BY(mutex_) = false;
    bool asked_for_more_ TNR_GUARDED_BY(mutex_) = false;  // a GPU that has not been read yet
    Clock::time_point interest_until_ TNR_GUARDED_BY(mutex_){};
    std::map<std::string, Timed> readings_ TNR_GUARDED_BY(mutex_);  // by uuid, 32 hex digits
    std::thread thread_;
};

}  // namespace

std::unique_ptr<NvmlSource> make_nvml_source(const std::string& library) {
    return std::make_unique<RealNvml>(library);
}

}  // namespace tnr::server
