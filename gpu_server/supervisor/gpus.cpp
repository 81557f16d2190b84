// See gpus.hpp.
#include "gpu_server/supervisor/gpus.hpp"

#include <sys/wait.h>

#include <cassert>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

void Gpus::add(std::vector<FoundGpu> found) {
    for (auto& one : found) {
        Gpu gpu;
        gpu.index = static_cast<int>(gpus_.size());
        gpu.memory.set_size(one.memory_bytes);
        gpu.found = std::move(one);
        gpus_.push_back(std::move(gpu));
    }
    for (auto& gpu : gpus_) wipe(gpu);
}

std::set<std::string> Gpus::types() const {
    std::set<std::string> found;
    for (auto& gpu : gpus_)
        if (gpu.state != Gpu::State::broken) found.insert(gpu.found.type);
    return found;
}

int Gpus::count(const std::string& type) const {
    int found = 0;
    for (auto& gpu : gpus_) found += gpu.found.type == type && gpu.state != Gpu::State::broken;
    return found;
}

std::vector<int> Gpus::with_state(const std::string& type, Gpu::State state) const {
    std::vector<int> found;
    for (auto& gpu : gpus_)
        if (gpu.found.type == type && gpu.state == state) found.push_back(gpu.index);
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
    }
}

// ---- between two claims

void Gpus::wipe(Gpu& gpu) {
    if (stopping_) return;
    auto plan = source_.plan("wipe-gpu", {gpu.found.selector});
    if (source_.emulated()) plan.arguments.push_back(std::to_string(emulated_wipe_bytes));
    auto child = start_child(plan);
    if (!child) return failed(gpu, child.error().what, [this](Gpu& again) { wipe(again); });

    pid_t pid = child->pid;
    auto timeout = loop_.after(wipe_timeout, [pid] { kill_child(pid); });
    auto control = std::make_shared<UniqueFd>(std::move(child->control));
    reaper_.expect(pid, [this, control, timeout, index = gpu.index](int status) {
        loop_.cancel(timeout);
        auto received = receive_message(control->get());
        auto answer = control::parse(received.text.data(), received.text.size());
        uint64_t bytes = 0;
        std::string how = "the helper " + describe_exit(status);
        if (answer && answer->contains("wiped") && (*answer)["wiped"].is_number_unsigned()) {
            bytes = (*answer)["wiped"];
        } else if (answer && answer->contains("failed") && (*answer)["failed"].is_string()) {
            how = printable((*answer)["failed"].get<std::string>());
        }
        wiped(index, how, bytes);
    });
}

void Gpus::wiped(int index, const std::string& how, uint64_t bytes) {
    if (stopping_) return;
    Gpu& gpu = at(index);
    if (bytes == 0) return failed(gpu, "its memory could not be wiped: " + how, [this](Gpu& again) { wipe(again); });
    log(LogLevel::info, gpu.label() + ": wiped " + std::to_string(bytes >> 20) + " MiB, free");
    gpu.state = Gpu::State::free;
    gpu.owner.clear();
    start_warm(gpu);
    changed_();
}

void Gpus::start_warm(Gpu& gpu) {
    if (stopping_ || gpu.state != Gpu::State::free || gpu.warm) return;
    auto worker = workers_.start({gpu.index}, {gpu.found.selector});
    if (!worker) return failed(gpu, worker.error().what, [this](Gpu& again) { start_warm(again); });
    gpu.warm = *worker;
}

bool Gpus::warm_worker_gone(Worker& worker, const std::string& how) {
    for (auto& gpu : gpus_) {
        if (gpu.warm != &worker) continue;
        gpu.warm = nullptr;
        if (stopping_) return true;
        if (EventLoop::Clock::now() - worker.started >= quick_death) gpu.quick_deaths = 0;
        failed(gpu, "its waiting worker " + how, [this](Gpu& again) { start_warm(again); });
        return true;
    }
    return false;
}

// Once more, later and later; at last never again, and the log says so instead of filling up.
void Gpus::failed(Gpu& gpu, const std::string& why, std::function<void(Gpu&)> again) {
    if (++gpu.quick_deaths >= quick_deaths_max) {
        log(LogLevel::error, gpu.label() + " (" + gpu.found.selector + ") is out of order: " + why + ", " +
                                 std::to_string(quick_deaths_max) + " times in a row; restart the server to try again");
        gpu.state = Gpu::State::broken;
        changed_();
        return;
    }
    log(LogLevel::warning, gpu.label() + ": " + why + "; trying again");
    auto delay = restart_delay * (1 << gpu.quick_deaths);
    gpu.restart = loop_.after(delay, [this, index = gpu.index, again = std::move(again)] { again(at(index)); });
}

}  // namespace tnr::server
