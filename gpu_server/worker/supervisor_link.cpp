// See supervisor_link.hpp. The messages are described where the supervisor reads them, gpu_server/supervisor/.
#include "gpu_server/worker/supervisor_link.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/limits.hpp"

namespace tnr::worker {

using nlohmann::json;

void SupervisorLink::send(const std::string& message) {
    // A supervisor that is gone is noticed by whoever reads.
    (void)!::send(control_.get(), message.data(), message.size(), MSG_NOSIGNAL);
}

bool SupervisorLink::receive(std::string& message) {
    message.resize(wire::control_bytes_max);
    ssize_t size = 0;
    do size = ::recv(control_.get(), message.data(), message.size(), 0);
    while (size < 0 && errno == EINTR);
    message.resize(size > 0 ? static_cast<size_t>(size) : 0);
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

bool SupervisorLink::wait_for_work(Serve& serve) {
    for (std::string message; receive(message);) {
        auto parsed = control::parse(message.data(), message.size());
        if (!parsed || !parsed->contains("serve")) continue;
        auto& wanted = (*parsed)["serve"];
        serve.session = wanted.value("session", "");
        shared_ = wanted.value("shared", false);
        serve.client_key = wanted.value("client_key", "");
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
    for (std::string message; receive(message);) {
        auto parsed = control::parse(message.data(), message.size());
        if (!parsed) continue;
        if (auto end = parsed->find("end"); end != parsed->end() && end->is_string()) end_(end->get<std::string>());
        if (auto shared = parsed->find("shared"); shared != parsed->end() && shared->is_boolean())
            set_shared(shared->get<bool>());
        if (auto granted = parsed->find("granted"); granted != parsed->end() && granted->is_object())
            answer_grant(granted->value("ticket", uint64_t{0}), granted->value("bytes", uint64_t{0}));
    }
    _exit(0);  // without a supervisor nobody would give this GPU to anyone else
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

void SupervisorLink::ask_for_memory(uint32_t device, uint64_t bytes, std::function<void(uint64_t)> answer) {
    uint64_t ticket = 0;
    {
        LockGuard lock(mutex_);
        ticket = next_ticket_++;
        asked_[ticket] = std::move(answer);
    }
    send(json{{"grant", {{"device", device}, {"bytes", bytes}, {"ticket", ticket}}}}.dump());
}

}  // namespace tnr::worker
