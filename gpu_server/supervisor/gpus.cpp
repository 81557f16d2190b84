// See gpus.hpp.
#include "gpu_server/supervisor/gpus.hpp"

#include <algorithm>
#include <cassert>
#include <nlohmann/json.hpp>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

void Gpus::add(std::vector<FoundGpu> found) {
    add_later(std::move(found));
    serve_all_but({});
}

void Gpus::add_later(std::vector<FoundGpu> found) {
    for (auto& one : found) {
        Gpu gpu;
        gpu.anothers = true;
        gpu.index = static_cast<int>(gpus_.size());
        gpu.memory.set_size(one.memory_bytes);
        gpu.found = std::move(one);
        gpus_.push_back(std::move(gpu));
    }
}

void Gpus::serve_all_but(const std::set<std::string>& others_uuids) {
    for (auto& gpu : gpus_) {
        bool was = std::exchange(gpu.anothers, others_uuids.count(gpu.found.uuid) > 0);
        if (gpu.anothers && gpu.warm) workers_.kill(*gpu.warm);
        if (!was || gpu.anothers) continue;
        gpu.state = Gpu::State::wiping;
        wipe(gpu);
    }
}

std::set<std::string> Gpus::types() const {
    std::set<std::string> found;
    for (auto& gpu : gpus_)
        if (gpu.state != Gpu::State::broken && !gpu.anothers) found.insert(gpu.found.type);
    return found;
}

int Gpus::count(const std::string& type) const {
    int found = 0;
    for (auto& gpu : gpus_) found += gpu.found.type == type && gpu.state != Gpu::State::broken && !gpu.anothers;
    return found;
}

std::vector<int> Gpus::with_state(const std::string& type, Gpu::State state) const {
    std::vector<int> found;
    for (auto& gpu : gpus_)
        if (gpu.found.type == type && gpu.state == state && !gpu.anothers) found.push_back(gpu.index);
    return found;
}

std::vector<int> Gpus::kept_for(const std::string& type, const std::string& owner) const {
    auto found = with_state(type, Gpu::State::kept);
    std::erase_if(found, [&](int index) { return gpus_[static_cast<size_t>(index)].owner != owner; });
    return found;
}

std::vector<int> Gpus::available(const std::string& type, const std::string& owner) const {
    auto found = kept_for(type, owner), free = with_state(type, Gpu::State::free);
    found.insert(found.end(), free.begin(), free.end());
    return found;
}

void Gpus::claim(const std::vector<int>& indexes, const std::string& owner) {
    for (int index : indexes) {
        Gpu& gpu = at(index);
        assert(gpu.state == Gpu::State::free || (gpu.state == Gpu::State::kept && gpu.owner == owner));
        loop_.cancel(std::exchange(gpu.kept_until, 0));
        loop_.cancel(gpu.restart);
        gpu.state = Gpu::State::claimed;
        gpu.owner = owner;
    }
}

Worker* Gpus::take_warm(Gpu& gpu) {
    Worker* worker = std::exchange(gpu.warm, nullptr);
    if (worker && worker->state == Worker::State::dying) return nullptr;
    return worker;
}

void Gpus::keep(const std::vector<int>& indexes, milliseconds linger) {
    if (linger == milliseconds(0)) return give_back(indexes);
    for (int index : indexes) {
        Gpu& gpu = at(index);
        gpu.state = Gpu::State::kept;
        gpu.kept_until = loop_.after(linger, [this, index] { give_back({index}); });
    }
    changed_();
}

void Gpus::give_back(const std::vector<int>& indexes) {
    for (int index : indexes) {
        loop_.cancel(std::exchange(at(index).kept_until, 0));
        at(index).state = Gpu::State::wiping;
        wipe(at(index));
    }
}

void Gpus::describe(Worker& worker) {
    for (size_t i = 0; i < worker.gpus.size(); ++i) {
        Gpu& gpu = at(worker.gpus[i]);
        gpu.description = worker.devices[i];
        gpu.description->range_address = gpu.description->range_bytes = 0;
        gpu.memory.set_size(worker.devices[i].memory_bytes);
        if (gpu.state != Gpu::State::broken || gpu.warm != &worker) continue;
        log(LogLevel::info, gpu.label() + " is in order again");
        loop_.cancel(gpu.restart);
        gpu.state = Gpu::State::free;
        gpu.strikes = 0;
        gpu.out_of_order_for = milliseconds(0);
    }
}

// ---- between two claims

bool Gpus::lost(Gpu& gpu) const {
    gpu.anothers = gpu.anothers || (lost_ && lost_(gpu.found.uuid));
    return gpu.anothers;
}

void Gpus::wipe(Gpu& gpu) {
    if (stopping_ || paused_ || lost(gpu)) return;
    auto wiped = [this, index = gpu.index](const WipeRecord& wipe, const std::string& how) {
        this->wiped(index, how, wipe);
    };
    if (auto started = wiper_(gpu.found, wiped); !started) return host_trouble(gpu, started.error().what, &Gpus::wipe);
    being_wiped_.insert(gpu.index);
}

// Empty if all is as it should be.
static std::string why_unwiped(const Gpu& gpu, const WipeRecord& wipe, const std::string& how) {
    if (wipe.bytes == 0) return how;
    const auto missing = gpu.most_wiped - wipe.bytes;
    const auto usual = static_cast<int64_t>(gpu.found.memory_bytes / wipe_missing_share);
    if (missing <= std::max(wipe_missing_bytes_max, usual)) return {};
    return std::to_string(missing >> 20) + " MiB of it are another program's of this host";
}

void Gpus::wiped(int index, const std::string& how, const WipeRecord& wipe) {
    being_wiped_.erase(index);
    if (stopping_) return;
    Gpu& gpu = at(index);
    gpu.host_troubles = 0;
    auto why = why_unwiped(gpu, wipe, how);
    ++(why.empty() ? tally_.done : tally_.failed);
    if (!why.empty()) return strike(gpu, "its memory could not be wiped: " + why, &Gpus::wipe);
    gpu.most_wiped = std::max(gpu.most_wiped, wipe.bytes);
    tally_.bytes += static_cast<double>(wipe.bytes);
    tally_.checked_bytes += static_cast<double>(wipe.checked_bytes);
    tally_.seconds.add(static_cast<double>(wipe.took_ms) / 1000);
    bool on_trial = gpu.state == Gpu::State::broken;
    log(LogLevel::info, gpu.label() + ": wiped " + std::to_string(wipe.bytes >> 20) + " MiB" +
                            (on_trial ? "" : ", free") + "; read back " + std::to_string(wipe.checked_bytes >> 20) +
                            " MiB, " + std::to_string(wipe.took_ms) + " ms");
    told_wiped_(index, wipe);
    gpu.owner.clear();
    if (!on_trial) gpu.state = Gpu::State::free;
    start_warm(gpu);
    changed_();
}

void Gpus::start_warm(Gpu& gpu) {
    if (stopping_ || paused_ || lost(gpu)) return;
    if ((gpu.state != Gpu::State::free && gpu.state != Gpu::State::broken) || gpu.warm) return;
    auto worker = workers_.start({gpu.index}, {gpu.found.selector});
    if (!worker) return host_trouble(gpu, worker.error().what, &Gpus::start_warm);
    gpu.host_troubles = 0;
    gpu.warm = *worker;
    if (gpu.state == Gpu::State::broken)  // nobody waits for it but us
        gpu.restart = loop_.after(worker_start_timeout, [this, worker = *worker] {
            worker->last_word = "did not start in time";
            workers_.kill(*worker);
        });
}

bool Gpus::warm_worker_gone(Worker& worker, const std::string& how) {
    for (auto& gpu : gpus_) {
        if (gpu.warm != &worker) continue;
        gpu.warm = nullptr;
        if (stopping_ || paused_) return true;
        loop_.cancel(gpu.restart);
        if (loop_.now() - worker.started >= quick_death) gpu.strikes = 0;
        if (worker.killed_by_others)
            host_trouble(gpu, "its waiting worker " + how, &Gpus::start_warm);
        else
            strike(gpu, "its waiting worker " + how, &Gpus::start_warm);
        return true;
    }
    return false;
}

void Gpus::try_again(Gpu& gpu, milliseconds pause, Again again) {
    loop_.cancel(gpu.restart);
    gpu.restart = loop_.after(pause, [this, index = gpu.index, again] { (this->*again)(at(index)); });
}

// Tries again, after growing pauses.
void Gpus::strike(Gpu& gpu, const std::string& why, Again again) {
    if (gpu.state == Gpu::State::broken || ++gpu.strikes >= strikes_max) return out_of_order(gpu, why);
    log(LogLevel::warning, gpu.label() + ": " + why + "; trying again");
    try_again(gpu, restart_delay * (1 << gpu.strikes), again);
}

void Gpus::host_trouble(Gpu& gpu, const std::string& why, Again again) {
    constexpr int doublings_max = 10;
    auto pause = std::min(restart_delay * (1 << std::min(gpu.host_troubles++, doublings_max)), host_trouble_pause_max);
    log(LogLevel::warning, gpu.label() + ": " + why + "; trying again in " + std::to_string(pause.count()) + " ms");
    try_again(gpu, pause, again);
}

void Gpus::out_of_order(Gpu& gpu, const std::string& why) {
    bool still = gpu.state == Gpu::State::broken;
    gpu.state = Gpu::State::broken;
    gpu.out_of_order_for = still ? std::min(gpu.out_of_order_for * 2, out_of_order_max) : out_of_order_min;
    log(LogLevel::error, gpu.label() + " (" + gpu.found.selector + ") is " + (still ? "still " : "") +
                             "out of order: " + why +
                             (still ? "" : ", " + std::to_string(strikes_max) + " times in a row") +
                             "; trying again in " + std::to_string(gpu.out_of_order_for.count() / 1000) + " s");
    try_again(gpu, gpu.out_of_order_for, &Gpus::wipe);
    changed_();
}

// ---- from one server to the next

void Gpus::pause() {
    if (std::exchange(paused_, true)) return;
    for (auto& gpu : gpus_)
        if (gpu.warm) workers_.kill(*gpu.warm);
}

// What is kept for its owner stays so only where nothing was handed over: the next server has no timer for it.
void Gpus::go_on() {
    paused_ = false;
    for (auto& gpu : gpus_) {
        if (gpu.anothers || being_wiped_.count(gpu.index) > 0) continue;
        if (gpu.state == Gpu::State::kept && gpu.kept_until == 0) gpu.state = Gpu::State::wiping;
        if (gpu.state == Gpu::State::free) start_warm(gpu);
        if (gpu.state != Gpu::State::wiping && gpu.state != Gpu::State::broken) continue;
        loop_.cancel(std::exchange(gpu.restart, 0));
        wipe(gpu);
    }
    changed_();
}

std::string Gpus::what_moves() const {
    if (!being_wiped_.empty()) return at(*being_wiped_.begin()).label() + " is being wiped";
    auto warm = std::find_if(gpus_.begin(), gpus_.end(), [](const Gpu& gpu) { return gpu.warm; });
    return warm == gpus_.end() ? "" : "the waiting worker of " + warm->label() + " has not ended";
}

// Numbers of Gpu::State, which stay what they are.
void Gpus::hand_over(Handover& handover) const {
    auto& told = handover.section("gpus") = nlohmann::json::array();
    for (auto& gpu : gpus_)
        told.push_back({{"type", gpu.found.type},
                        {"name", gpu.found.name},
                        {"uuid", gpu.found.uuid},
                        {"memory_bytes", gpu.found.memory_bytes},
                        {"selector", gpu.found.selector},
                        {"state", static_cast<int>(gpu.state)},
                        {"anothers", gpu.anothers},
                        {"owner", gpu.owner},
                        {"most_wiped", gpu.most_wiped},
                        {"out_of_order_ms", gpu.out_of_order_for.count()},
                        {"description", gpu.description ? to_json(*gpu.description) : nlohmann::json()}});
}

Result<std::vector<FoundGpu>> Gpus::found_before(const Handover& handover) {
    std::vector<FoundGpu> found;
    auto read = reading("GPUs", [&]() -> Result<> {
        for (auto& told : handover.at("gpus"))
            found.push_back({told.at("type").get<std::string>(), told.at("name").get<std::string>(),
                             told.at("uuid").get<std::string>(), told.at("memory_bytes").get<uint64_t>(),
                             told.at("selector").get<std::string>()});
        return found.empty() ? Result<>(badly_handed_over("there is no GPU")) : Ok{};
    });
    if (!read) return read.error();
    return found;
}

Result<> Gpus::take_over(const Handover& handover) {
    paused_ = true;
    return reading("GPUs", [&]() -> Result<> {
        for (auto& gpu : gpus_) {
            auto& told = handover.at("gpus").at(static_cast<size_t>(gpu.index));
            const int state = told.at("state").get<int>();
            if (state < 0 || state > static_cast<int>(Gpu::State::broken))
                return badly_handed_over("a GPU is in no state");
            gpu.state = static_cast<Gpu::State>(state);
            told.at("anothers").get_to(gpu.anothers);
            told.at("owner").get_to(gpu.owner);
            told.at("most_wiped").get_to(gpu.most_wiped);
            gpu.out_of_order_for = milliseconds(told.at("out_of_order_ms").get<int64_t>());
            if (told.at("description").is_null()) continue;
            auto description = device_from_json(told.at("description"));
            if (!description) return description.error();
            gpu.description = *description;
            gpu.memory.set_size(description->memory_bytes);
        }
        return Ok{};
    });
}

}  // namespace tnr::server
