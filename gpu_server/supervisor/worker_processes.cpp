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

#include "gpu_client/protocol/control.hpp"
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
        loop_.unwatch(worker->control.get());
        loop_.unwatch(worker->errors.get());
        kill_child(worker->pid);
        (void)worker->control.release();  // our process's end closes it, and does not wait for what is queued there
    }
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
    worker->lines = ForeignLines([who = "worker " + std::to_string(child->pid) + ": "](const std::string& line) {
        log(LogLevel::info, who + line);
    });
    Worker* started = worker.get();
    workers_.push_back(std::move(worker));
    loop_.watch(started->control.get(), [this, started] { read_messages(*started); });
    loop_.watch(started->errors.get(), [this, started] { read_errors(*started); });
    reaper_.expect(started->pid, [this, started](int status) { exited(*started, status); });
    log(LogLevel::debug, "worker " + std::to_string(started->pid) + " started at " + started->endpoint.text());
    return started;
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

bool WorkerProcesses::tell(Worker& worker, const json& message, int file) {
    if (worker.state == Worker::State::dying) return false;
    if (send_message(worker.control.get(), message, file)) return true;
    kill(worker);
    return false;
}

void WorkerProcesses::kill(Worker& worker) {
    if (worker.state != Worker::State::dying) loop_.unwatch(worker.control.get());
    worker.state = Worker::State::dying;
    worker.killed_by_us = true;
    kill_child(worker.pid);
}

std::vector<Worker*> WorkerProcesses::all() const {
    std::vector<Worker*> found;
    for (auto& worker : workers_) found.push_back(worker.get());
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

void WorkerProcesses::read_messages(Worker& worker) {
    for (int i = 0; i < worker_messages_at_once && worker.state != Worker::State::dying; ++i) {
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

static MemoryWish memory_wish(const json& value) {
    return {value.at("device").get<size_t>(), value.at("bytes").get<uint64_t>(), value.value("ticket", uint64_t{0})};
}

bool WorkerProcesses::understand(Worker& worker, Received& received) try {
    auto parsed = control::parse(received.text.data(), received.text.size());
    if (!parsed) return false;
    auto& message = *parsed;
    if (message.contains("ready")) {
        if (worker.state != Worker::State::starting) return false;
        for (auto& value : message.at("devices")) {
            auto device = device_from_json(value);
            if (!device) return false;
            worker.devices.push_back(std::move(*device));
        }
        if (worker.devices.size() != worker.gpus.size()) return false;
        worker.state = Worker::State::warm;
        events_.ready(worker);
    } else if (message.contains("connected")) {
        if (worker.state != Worker::State::serving) return false;
        events_.connected(worker);
    } else if (message.contains("away")) {
        if (worker.state != Worker::State::serving) return false;
        events_.away(worker, message["away"].get<bool>());
    } else if (message.contains("moved")) {
        if (worker.state != Worker::State::serving) return false;
        auto& moved = message["moved"];
        auto bounded = [](uint64_t told) { return static_cast<int64_t>(std::min<uint64_t>(told, claim_use_max)); };
        events_.used(worker, {bounded(moved.at("up").get<uint64_t>()), bounded(moved.at("down").get<uint64_t>()),
                              bounded(moved.value("busy_ms", uint64_t{0}))});
    } else if (message.contains("grant")) {
        auto wish = memory_wish(message.at("grant"));
        if (wish.device >= worker.gpus.size() || worker.state != Worker::State::serving) return false;
        events_.wants_memory(worker, wish);
    } else if (message.contains("ended") || message.contains("failed")) {
        worker.last_word = printable(message.at(message.contains("ended") ? "ended" : "failed").get<std::string>());
    } else if (exchange_.message && (message.contains("exchange") || message.contains("return"))) {
        return worker.state != Worker::State::serving || exchange_.message(worker, message, std::move(received.file));
    } else if (image_message_ && worker.state == Worker::State::serving) {
        return image_message_(worker, message, std::move(received.file));
    } else {
        return false;
    }
    return true;
} catch (const json::exception&) {
    return false;
}

void WorkerProcesses::exited(Worker& worker, int status) {
    auto foreign = [](int signal) { return signal == SIGKILL || signal == SIGTERM || signal == SIGINT; };
    auto signal = ending_signal(status);
    worker.killed_by_others = !worker.killed_by_us && signal && foreign(*signal);
    // What it said last may still be in the socket.
    if (worker.state != Worker::State::dying) {
        auto received = hear(worker);
        while (received.what == Received::What::message && understand(worker, received)) received = hear(worker);
        loop_.unwatch(worker.control.get());
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
