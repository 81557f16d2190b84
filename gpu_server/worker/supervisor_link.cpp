// See supervisor_link.hpp. The messages are listed in gpu_server/supervisor/workers.hpp.
#include "gpu_server/worker/supervisor_link.hpp"

#include <unistd.h>
#include <future>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/packet.hpp"

namespace tnr::worker {

using nlohmann::json;

void SupervisorLink::send(const std::string& message, int file) {
    // A supervisor that is gone is noticed by whoever reads.
    (void)server::send_packet(control_.get(), message, file);
}

bool SupervisorLink::receive(std::string& message, UniqueFd& file) {
    message.resize(wire::control_bytes_max);
    auto [size, files, is_packet] = server::receive_packet(control_.get(), message.data(), message.size());
    file = files.empty() ? UniqueFd() : std::move(files.front());
    message.resize(size > 0 ? std::min(static_cast<size_t>(size), message.size()) : 0);
    return size > 0;
}

void SupervisorLink::ready(const std::vector<DeviceDescription>& devices) {
    json list = json::array();
    for (auto& device : devices) list.push_back(to_json(device));
    send(json{{"ready", true}, {"devices", list}}.dump());
}

void SupervisorLink::failed(const std::string& why) {
    send(json{{"failed", why}}.dump());
}
void SupervisorLink::ended(const std::string& reason) {
    send(json{{"ended", reason}}.dump());
}

void SupervisorLink::connected() {
    send(json{{"connected", true}}.dump());
}

void SupervisorLink::used(uint64_t bytes_up, uint64_t bytes_down, uint64_t busy_ms) {
    const uint64_t all = bytes_up + bytes_down + busy_ms;
    if (used_.exchange(all) == all) return;
    send(json{{"moved", {{"up", bytes_up}, {"down", bytes_down}, {"busy_ms", busy_ms}}}}.dump());
}

void SupervisorLink::away(bool away) {
    if (away_.exchange(away) != away) send(json{{"away", away}}.dump());
}

bool SupervisorLink::wait_for_work(Serve& serve) {
    UniqueFd file;
    for (std::string message; receive(message, file);) {
        auto parsed = control::parse(message.data(), message.size());
        if (parsed && parsed->contains("fence")) {
            auto fence = server::Fence::map(file);
            if (!fence) return failed(fence.error().what), false;
            fences_.push_back(std::move(*fence));
        }
        if (!parsed || !parsed->contains("serve")) continue;
        auto& wanted = (*parsed)["serve"];
        serve.session = wanted.value("session", "");
        shared_ = wanted.value("shared", false);
        lease_until_ms_ = wanted.value("lease_until_ms", std::numeric_limits<int64_t>::max());
        fence_ = wanted.value("fence", int64_t{0});
        serve.client_key = wanted.value("client_key", "");
        serve.lanes = std::min(wanted.value("lanes", size_t{0}), wire::lanes_max);
        serve.threads_max = wanted.value("threads_max", SIZE_MAX);
        serve.device_memory_max = wanted.value("device_memory_max", UINT64_MAX);
        serve.keys = {wanted.value("server_public", ""), wanted.value("server_secret", "")};
        return true;
    }
    return false;
}

void SupervisorLink::start(std::function<void(const std::string&)> end) {
    end_ = std::move(end);
    std::thread([this] { listen(); }).detach();
}

void SupervisorLink::listen() {
    UniqueFd file;
    for (std::string message; receive(message, file);) {
        auto parsed = control::parse(message.data(), message.size());
        if (!parsed) continue;
        if (auto end = parsed->find("end"); end != parsed->end() && end->is_string()) end_(end->get<std::string>());
        if (auto shared = parsed->find("shared"); shared != parsed->end() && shared->is_boolean())
            set_shared(shared->get<bool>());
        lease_until_ms_ = parsed->value("lease_until_ms", lease_until_ms_.load());
        if (auto granted = parsed->find("granted"); granted != parsed->end() && granted->is_object())
            answer_grant(granted->value("ticket", uint64_t{0}), granted->value("bytes", uint64_t{0}));
        if (auto wanted = parsed->find("memory_wanted"); wanted != parsed->end() && wanted->is_object())
            pass_on_wish(wanted->value("device", uint32_t{0}), wanted->value("bytes", uint64_t{0}));
        if (auto image = parsed->find("image"); image != parsed->end() && image->is_object())
            answer_image(image->value("ticket", uint64_t{0}), std::move(file));
        else if (auto answer = parsed->find("exchanged"); answer != parsed->end() && answer->is_object())
            answer_exchange(*answer, std::move(file));
    }
    _exit(0);  // without a supervisor nobody would give this GPU to anyone else
}

bool SupervisorLink::may_begin() const {
    return server::boot_ms() < lease_until_ms_;
}

bool SupervisorLink::overtaken() const {
    return std::any_of(fences_.begin(), fences_.end(), [this](auto& fence) { return fence.highest() > fence_; });
}

void SupervisorLink::set_shared(bool shared) {
    shared_ = shared;
    std::function<void(bool)> changed;
    {
        LockGuard lock(mutex_);
        changed = sharing_changed_;
    }
    if (changed) changed(shared);
}

void SupervisorLink::watch_sharing(std::function<void(bool)> changed) {
    LockGuard lock(mutex_);
    sharing_changed_ = std::move(changed);
}

void SupervisorLink::watch_wishes(std::function<void(uint32_t, uint64_t)> wanted) {
    LockGuard lock(mutex_);
    wanted_ = std::move(wanted);
}

void SupervisorLink::pass_on_wish(uint32_t device, uint64_t bytes) {
    std::function<void(uint32_t, uint64_t)> wanted;
    {
        LockGuard lock(mutex_);
        wanted = wanted_;
    }
    if (wanted)
        wanted(device, bytes);
    else
        give_back_memory(device, 0);
}

void SupervisorLink::give_back_memory(uint32_t device, uint64_t bytes) {
    send(json{{"memory_back", {{"device", device}, {"bytes", bytes}}}}.dump());
}

void SupervisorLink::answer_grant(uint64_t ticket, uint64_t bytes) {
    std::function<void(uint64_t)> answer;
    {
        LockGuard lock(mutex_);
        auto found = asked_.find(ticket);
        if (found == asked_.end()) return;
        answer = std::move(found->second);
        asked_.erase(found);
    }
    answer(bytes);
}

void SupervisorLink::ask_for_memory(uint32_t device, uint64_t bytes, Exactly exactly,
                                    std::function<void(uint64_t)> answer) {
    uint64_t ticket = 0;
    {
        LockGuard lock(mutex_);
        ticket = next_ticket_++;
        asked_[ticket] = std::move(answer);
    }
    json wish{{"device", device}, {"bytes", bytes}, {"ticket", ticket}};
    if (exactly == Exactly::yes) wish["exactly"] = true;
    send(json{{"grant", std::move(wish)}}.dump());
}

void SupervisorLink::find_image(const wire::ImageHash& hash, uint64_t bytes, std::function<void(UniqueFd)> answer) {
    uint64_t ticket = 0;
    {
        LockGuard lock(mutex_);
        ticket = next_ticket_++;
        images_asked_[ticket] = std::move(answer);
    }
    send(json{{"find_image", {{"hash", wire::to_hex(hash)}, {"bytes", bytes}, {"ticket", ticket}}}}.dump());
}

void SupervisorLink::answer_image(uint64_t ticket, UniqueFd file) {
    std::function<void(UniqueFd)> answer;
    {
        LockGuard lock(mutex_);
        auto found = images_asked_.find(ticket);
        if (found == images_asked_.end()) return;
        answer = std::move(found->second);
        images_asked_.erase(found);
    }
    answer(std::move(file));
}

void SupervisorLink::exchange(json message, int file, Exchanged answer) {
    uint64_t ticket = 0;
    {
        LockGuard lock(mutex_);
        ticket = next_ticket_++;
        exchanging_[ticket] = std::move(answer);
    }
    message["ticket"] = ticket;
    send(json{{"exchange", std::move(message)}}.dump(), file);
}

void SupervisorLink::answer_exchange(const json& answer, UniqueFd file) {
    Exchanged told;
    {
        LockGuard lock(mutex_);
        auto found = exchanging_.find(answer.value("ticket", uint64_t{0}));
        if (found == exchanging_.end()) return;
        told = std::move(found->second);
        exchanging_.erase(found);
    }
    told(answer, std::move(file));
}

void SupervisorLink::tell(const json& message) {
    send(message.dump());
}

void SupervisorLink::keep_image(const wire::ImageHash& hash, uint64_t bytes, int file) {
    if (file < 0) return;
    send(json{{"keep_image", {{"hash", wire::to_hex(hash)}, {"bytes", bytes}}}}.dump(), file);
}

void SupervisorLink::image_is_damaged(const wire::ImageHash& hash) {
    send(json{{"damaged_image", {{"hash", wire::to_hex(hash)}}}}.dump());
}

uint64_t ask_and_wait(SupervisorLink& supervisor, uint32_t device, uint64_t bytes, SupervisorLink::Exactly exactly,
                      std::chrono::milliseconds patience) {
    struct Waiting {
        std::promise<uint64_t> granted;
        std::atomic<bool> over{false};  // whoever sets it decides: an answer in time, or none
    };
    auto waiting = std::make_shared<Waiting>();
    auto granted = waiting->granted.get_future();
    supervisor.ask_for_memory(device, bytes, exactly, [&supervisor, waiting, device](uint64_t more) {
        if (!waiting->over.exchange(true))
            waiting->granted.set_value(more);
        else if (more > 0)
            supervisor.give_back_memory(device, more);
    });
    if (granted.wait_for(patience) != std::future_status::ready && !waiting->over.exchange(true)) return 0;
    return granted.get();
}

}  // namespace tnr::worker
