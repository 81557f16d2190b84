// See worker_processes.hpp. A worker has been fed by a stranger: whatever it says is checked like a stranger's word.
#include "gpu_server/supervisor/worker_processes.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/foreign_files.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/worker/limits.hpp"

namespace tnr::server {

using nlohmann::json;

// Connections that wait until the worker accepts them; a session needs one.
static constexpr int worker_backlog = 16;

WorkerProcesses::~WorkerProcesses() {
    for (auto& worker : workers_) {
        stop_listening_to(*worker);
        loop_.unwatch(worker->errors.get());
        kill_child(worker->pid);
        (void)worker->control.release();  // our process's end closes it, and does not wait for what is queued there
    }
}

void WorkerProcesses::divide_groups() {
    groups_ = WorkerGroups::divide_ours();
    log(LogLevel::info, groups_.summary());
}

// What the worker has as its listening socket.
Result<UniqueFd> WorkerProcesses::way_in(Worker& worker) {
    if (!front_door_) {
        auto bound = ports_.take(worker.endpoint);
        if (!bound) return bound.error();
        worker.door = std::move(*bound);
        return UniqueFd(fcntl(worker.door.get(), F_DUPFD_CLOEXEC, 0));
    }
    UniqueFd theirs;
    auto ours = FrontDoor::pair(theirs);
    if (!ours) return ours.error();
    worker.door = std::move(*ours);
    worker.endpoint = front_;
    return theirs;
}

void WorkerProcesses::close_way_in(Worker& worker) {
    if (!front_door_) return ports_.give_back(worker.endpoint.port);
    front_door_->let_nobody_in(worker.door_number);
}

bool WorkerProcesses::has_client(const Worker& worker, const ConnectionsHere& open) const {
    return front_door_ ? front_door_->has_one_of(worker.door_number, open.sockets)
                       : open.ports.count(worker.endpoint.port) > 0;
}

size_t WorkerProcesses::ports_left() const {
    return front_door_ ? std::numeric_limits<size_t>::max() : ports_.left();
}

Result<Worker*> WorkerProcesses::start(const std::vector<int>& gpus, const std::vector<std::string>& selectors) {
    auto worker = std::make_unique<Worker>();
    auto way = way_in(*worker);
    if (!way) return way.error();
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        close_way_in(*worker);
        return Error{Error::Kind::internal, std::string("cannot make a pipe: ") + std::strerror(errno)};
    }
    worker->errors.reset(ends[0]);
    UniqueFd theirs(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    auto plan = source_.plan("worker", selectors);
    plan.error_fd = theirs.get();
    plan.listen_fd = way->get();
    plan.own_process_ids = true;
    auto child = start_child(plan);
    if (!child) {
        close_way_in(*worker);
        return child.error();
    }
    groups_.hold(child->pid, {memory_bytes_per_gpu_ * gpus.size(), worker::threads_max});
    worker->pid = child->pid;
    worker->control = std::move(child->control);
    worker->gpus = gpus;
    worker->started = loop_.now();
    Worker* started = take_in(std::move(worker));
    log(LogLevel::debug, "worker " + std::to_string(started->pid) + " started at " + started->endpoint.text());
    return started;
}

// Its last word may be a lie.
void WorkerProcesses::expect_end(Worker& worker) {
    if (worker.ends_by != 0 || worker.state == Worker::State::dying) return;
    worker.ends_by = loop_.after(ends_after_last_word, [this, &worker] {
        log(LogLevel::warning,
            "worker " + std::to_string(worker.pid) + " has said that it ends, and has not: it is ended");
        kill(worker);
    });
}

// From now on we hear of it.
Worker* WorkerProcesses::take_in(std::unique_ptr<Worker> owned) {
    Worker* worker = owned.get();
    workers_.push_back(std::move(owned));
    worker->lines = ForeignLines([who = "worker " + std::to_string(worker->pid) + ": "](const std::string& line) {
        log(LogLevel::info, who + line);
    });
    listen_to(*worker);
    if (!worker->last_word.empty()) expect_end(*worker);
    loop_.watch(worker->errors.get(), [this, worker] { read_errors(*worker); });
    reaper_.expect(worker->pid, [this, worker](int status) { exited(*worker, status); });
    return worker;
}

Result<> WorkerProcesses::open_door(Worker& worker) {
    UniqueFd door = std::move(worker.door);
    if (front_door_) {
        worker.door_number = front_door_->let_in(std::move(door));
        return Ok{};
    }
    if (listen(door.get(), worker_backlog) == 0) return Ok{};
    return Error{Error::Kind::internal,
                 "cannot listen on " + worker.endpoint.text() + " for a worker: " + std::strerror(errno)};
}

void WorkerProcesses::limit_threads(Worker& worker, size_t most) {
    worker.threads = most;
    groups_.limit_threads(worker.pid, most);
}

bool WorkerProcesses::tell(Worker& worker, const json& message, int file) {
    if (worker.state == Worker::State::dying) return false;
    if (send_message(worker.control.get(), message, file)) return true;
    kill(worker);
    return false;
}

void WorkerProcesses::kill(Worker& worker) {
    if (worker.state != Worker::State::dying) stop_listening_to(worker);
    worker.state = Worker::State::dying;
    worker.killed_by_us = true;
    kill_child(worker.pid);
}

bool WorkerProcesses::all_serve() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](auto& worker) { return worker->state == Worker::State::serving; });
}

Worker* WorkerProcesses::with_id(pid_t pid) const {
    auto found = std::find_if(workers_.begin(), workers_.end(), [&](auto& worker) { return worker->pid == pid; });
    return found == workers_.end() ? nullptr : found->get();
}

void WorkerProcesses::hand_over(Handover& handover) {
    auto& told = handover.section("workers") = json::array();
    for (auto& worker : workers_) {
        stop_listening_to(*worker);
        loop_.unwatch(worker->errors.get());
        worker->lines.finish();
        if (worker->door_number != 0) front_door_->hand_over(worker->door_number, handover);
        json devices = json::array();
        for (auto& device : worker->devices) devices.push_back(to_json(device));
        told.push_back({{"pid", worker->pid},
                        {"gpus", worker->gpus},
                        {"host", worker->endpoint.host},
                        {"port", worker->endpoint.port},
                        {"devices", devices},
                        {"started", ticks(worker->started)},
                        {"last_word", worker->last_word},
                        {"tenant", worker->tenant},
                        {"threads", worker->threads},
                        {"control", handover.keep(std::move(worker->control))},
                        {"errors", handover.keep(std::move(worker->errors))},
                        {"door", worker->door_number}});
    }
    groups_.hand_over(handover);
    workers_.clear();
}

Result<> WorkerProcesses::take_over_one(Handover& handover, const json& told) {
    auto worker = std::make_unique<Worker>();
    worker->state = Worker::State::serving;
    worker->control = handover.take(told.at("control"));
    worker->errors = handover.take(told.at("errors"));
    told.at("pid").get_to(worker->pid);
    told.at("gpus").get_to(worker->gpus);
    worker->endpoint = {told.at("host").get<std::string>(), told.at("port").get<int>()};
    worker->started = time_of(told.at("started"));
    told.at("last_word").get_to(worker->last_word);
    told.at("tenant").get_to(worker->tenant);
    worker->threads = told.value("threads", worker::threads_max);  // older servers limit none of a worker's
    told.at("door").get_to(worker->door_number);
    for (auto& device : told.at("devices")) {
        auto description = device_from_json(device);
        if (!description) return description.error();
        worker->devices.push_back(std::move(*description));
    }
    if (!worker->control || !worker->errors || worker->pid <= 1 || worker->devices.size() != worker->gpus.size() ||
        (worker->door_number != 0 && !front_door_))
        return badly_handed_over("a worker is not whole");
    if (!front_door_)
        ports_.is_taken(worker->endpoint.port);
    else if (auto door = front_door_->take_over(worker->door_number, handover); !door)
        return door;
    take_in(std::move(worker));
    return Ok{};
}

Result<> WorkerProcesses::take_over(Handover& handover) {
    auto all = reading("workers", [&]() -> Result<> {
        groups_ = WorkerGroups::take_over(handover);
        for (auto& told : handover.at("workers"))
            if (auto taken = take_over_one(handover, told); !taken) return taken;
        return Ok{};
    });
    reaper_.look();  // one may have ended in between
    return all;
}

std::vector<Worker*> WorkerProcesses::all() const {
    std::vector<Worker*> found;
    for (auto& worker : workers_) found.push_back(worker.get());
    return found;
}

std::set<pid_t> WorkerProcesses::ids() const {
    std::set<pid_t> found;
    for (auto& worker : workers_) found.insert(worker->pid);
    return found;
}

// Whatever a worker has sent that we may not close here is out of our hands again when this returns.
Received WorkerProcesses::hear(Worker& worker) {
    auto received = receive_message(worker.control.get());
    if (received.others.empty() && (!received.file || is_file_or_device(received.file))) return received;
    if (received.file) received.others.push_back(std::move(received.file));
    lay_aside(std::exchange(received.others, {}), reaper_);
    received.what = Received::What::nonsense;
    return received;
}

void WorkerProcesses::listen_to(Worker& worker) {
    loop_.watch(worker.control.get(), [this, &worker] { read_messages(worker); });
}

// What it says meanwhile stays in its socket; once that is full, it waits.
void WorkerProcesses::listen_later(Worker& worker) {
    loop_.unwatch(worker.control.get());
    worker.heard_again = loop_.after(worker_unheard_for, [this, &worker] { listen_to(worker); });
}

void WorkerProcesses::stop_listening_to(Worker& worker) {
    loop_.unwatch(worker.control.get());
    loop_.cancel(worker.heard_again);
    loop_.cancel(worker.ends_by);
}

void WorkerProcesses::read_messages(Worker& worker) {
    for (int i = 0; i < worker_messages_at_once && worker.state != Worker::State::dying; ++i) {
        if (!worker.tenant.empty() && !messages_.take(worker.tenant, loop_.now())) return listen_later(worker);
        auto received = hear(worker);
        if (received.what == Received::What::nothing_now) return;
        if (received.what == Received::What::message && understand(worker, received)) continue;
        if (received.what != Received::What::closed)
            log(LogLevel::error,
                "worker " + std::to_string(worker.pid) + " talks nonsense: " + printable(received.text));
        kill(worker);  // if it is exiting already, that changes nothing about its exit code
        worker.killed_by_us = received.what != Received::What::closed;
    }
}

// One piece: what is left makes the loop call again.
void WorkerProcesses::read_errors(Worker& worker) {
    char piece[4096];
    auto size = ::read(worker.errors.get(), piece, sizeof piece);
    if (size > 0) worker.lines.add({piece, static_cast<size_t>(size)}, loop_.now());
    if (size == 0) loop_.unwatch(worker.errors.get());
}

// False: it makes no sense, or not now, or cannot be true.
bool WorkerProcesses::understand(Worker& worker, Received& received) {
    const bool serves = worker.state == Worker::State::serving;
    if (serves && received.text.size() > serving_worker_message_bytes_max) return false;
    auto message = parse_worker_message(received.text);
    if (!message) return false;
    if (auto* ready = std::get_if<WorkerReady>(&*message)) {
        if (worker.state != Worker::State::starting || ready->devices.size() != worker.gpus.size()) return false;
        worker.devices = std::move(ready->devices);
        worker.state = Worker::State::warm;
        events_.ready(worker);
    } else if (auto* last = std::get_if<LastWord>(&*message)) {
        worker.last_word = std::move(last->why);
        expect_end(worker);
    } else if (auto* thing = std::get_if<ExchangeMessage>(&*message)) {
        return !serves || (exchange_.message && exchange_.message(worker, *thing, std::move(received.file)));
    } else if (!serves) {
        return false;
    } else if (auto* image = std::get_if<ImageMessage>(&*message)) {
        return image_message_ && image_message_(worker, *image, std::move(received.file));
    } else if (auto* wish = std::get_if<MemoryWish>(&*message)) {
        if (wish->device >= worker.gpus.size()) return false;
        events_.wants_memory(worker, *wish);
    } else if (auto* back = std::get_if<MemoryBack>(&*message)) {
        if (back->device >= worker.gpus.size()) return false;
        return events_.returned_memory(worker, *back);
    } else if (auto* use = std::get_if<WorkerUse>(&*message)) {
        return events_.used(worker, *use);
    } else if (auto* client = std::get_if<ClientAway>(&*message)) {
        return events_.away(worker, client->away);
    } else {
        return events_.connected(worker);
    }
    return true;
}

void WorkerProcesses::exited(Worker& worker, int status) {
    auto foreign = [](int signal) { return signal == SIGKILL || signal == SIGTERM || signal == SIGINT; };
    auto signal = ending_signal(status);
    worker.killed_by_others = !worker.killed_by_us && signal && foreign(*signal);
    // What it said last may still be in the socket.
    if (worker.state != Worker::State::dying) {
        auto received = hear(worker);
        while (received.what == Received::What::message && understand(worker, received)) received = hear(worker);
        stop_listening_to(worker);
        worker.state = Worker::State::dying;
    }
    // Nor may descriptors stay there: closing the socket would close them.
    auto left = Received::What::message;
    while (left == Received::What::message || left == Received::What::nonsense) left = hear(worker).what;
    char rest[65536];  // a pipe's size
    auto size = ::read(worker.errors.get(), rest, sizeof rest);
    if (size > 0) worker.lines.add({rest, static_cast<size_t>(size)}, loop_.now());
    worker.lines.finish();
    loop_.unwatch(worker.errors.get());
    std::string how = describe_exit(status);
    if (!worker.last_word.empty()) how = worker.last_word + " (" + how + ")";
    auto mine = std::find_if(workers_.begin(), workers_.end(), [&](auto& one) { return one.get() == &worker; });
    auto owned = std::move(*mine);
    workers_.erase(mine);
    close_way_in(worker);
    if (exchange_.gone) exchange_.gone(worker);
    groups_.let_go(worker.pid);
    events_.gone(worker, how);
}

}  // namespace tnr::server
