// See front_door.hpp.
#include "gpu_server/supervisor/front_door.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "gpu_client/protocol/greeting.hpp"
#include "gpu_server/pool/audit.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/pool/packet.hpp"

namespace tnr::server {

using Clock = std::chrono::steady_clock;

// Between two looks at those that wait.
static constexpr int accepted_at_once = 64;
// Without descriptors nobody can be accepted; somebody's end gives one back.
static constexpr milliseconds full_pause{20};

// A session has a connection and one for each lane, and after a break as many anew.
static constexpr size_t remembered_per_worker_max = 64;

static ino_t socket_inode(int descriptor) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

static Error failed(const std::string& doing) {
    return {Error::Kind::internal, "the front door cannot " + doing + ": " + std::strerror(errno)};
}

Result<UniqueFd> FrontDoor::pair(UniqueFd& theirs) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return failed("make a pair of sockets");
    theirs.reset(ends[1]);
    UniqueFd ours(ends[0]);
    fcntl(ours.get(), F_SETFL, O_NONBLOCK);  // who does not receive what it is sent makes nobody wait
    return ours;
}

FrontDoor::FrontDoor(UniqueFd listener, UniqueFd control, FrontDoorLimits limits)
    : limits_(limits), listener_(std::move(listener)), control_(std::move(control)) {}

Result<std::unique_ptr<FrontDoor>> FrontDoor::open(UniqueFd listener, UniqueFd& control, FrontDoorLimits limits) {
    auto ours = pair(control);
    if (!ours) return ours.error();
    fcntl(listener.get(), F_SETFL, O_NONBLOCK);
    std::unique_ptr<FrontDoor> door(new FrontDoor(std::move(listener), std::move(*ours), limits));
    door->poll_.reset(epoll_create1(EPOLL_CLOEXEC));
    door->stop_.reset(eventfd(0, EFD_CLOEXEC));
    for (int descriptor : {door->listener_.get(), door->stop_.get()}) {
        epoll_event event{EPOLLIN, {.fd = descriptor}};
        if (epoll_ctl(door->poll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return failed("open");
    }
    door->thread_ = std::thread([self = door.get()] { self->serve(); });
    return door;
}

FrontDoor::~FrontDoor() {
    uint64_t one = 1;
    if (stop_) (void)!::write(stop_.get(), &one, sizeof one);
    if (thread_.joinable()) thread_.join();
}

uint64_t FrontDoor::let_in(UniqueFd worker) {
    uint64_t number = 0;
    (void)!getrandom(&number, sizeof number, 0);  // never less, of so few bytes
    number = number >> 2 | wire::first_greeting_number;
    LockGuard lock(mutex_);
    workers_[number] = {std::move(worker), {}};
    return number;
}

void FrontDoor::let_nobody_in(uint64_t number) {
    LockGuard lock(mutex_);
    workers_.erase(number);
}

void FrontDoor::hand_over(uint64_t number, Handover& handover) {
    LockGuard lock(mutex_);
    auto found = workers_.extract(number);
    if (!found) return;
    auto& [worker, shown_in] = found.mapped();
    handover.section("door")[std::to_string(number)] = {{"worker", handover.keep(std::move(worker))},
                                                        {"shown_in", shown_in}};
}

Result<> FrontDoor::take_over(uint64_t number, Handover& handover) {
    return reading("front door", [&]() -> Result<> {
        auto& section = handover.at("door").at(std::to_string(number));
        Behind behind{handover.take(section.at("worker")), section.at("shown_in").get<std::deque<ino_t>>()};
        if (!behind.worker) return badly_handed_over("a worker's door is not there");
        LockGuard lock(mutex_);
        workers_[number] = std::move(behind);
        return Ok{};
    });
}

void FrontDoor::serve() {
    std::array<epoll_event, 64> events;
    while (true) {
        int count = epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), until_next());
        for (int i = 0; i < count; ++i) {
            int descriptor = events[static_cast<size_t>(i)].data.fd;
            if (descriptor == stop_.get()) return;
            if (descriptor != listener_.get()) look_at(descriptor);
        }
        // Last: what is accepted may get the number of one that was closed, but whose event is still in the list.
        if (std::any_of(events.begin(), events.begin() + std::max(count, 0),
                        [this](auto& event) { return event.data.fd == listener_.get(); }))
            accept_some();
        remove_late();
    }
}

int FrontDoor::until_next() const {
    if (waiting_.empty()) return -1;
    auto left = std::chrono::ceil<milliseconds>(waiting_.front().since + limits_.greeting - Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

static std::string text_of(const sockaddr_storage& address, socklen_t size) {
    char host[NI_MAXHOST] = "";
    getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

void FrontDoor::accept_some() {
    for (int i = 0; i < accepted_at_once; ++i) {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        UniqueFd connection(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC));
        if (!connection) {
            if (errno != EMFILE && errno != ENFILE) return;
            if (waiting_.empty())
                std::this_thread::sleep_for(full_pause);
            else
                remove(waiting_.begin());
            return;
        }
        auto source = source_of(text_of(address, size));
        make_room(source);
        // Told of each arrival of bytes once: one who sends nine and stops costs nothing more.
        epoll_event event{EPOLLIN | EPOLLET, {.fd = connection.get()}};
        int descriptor = connection.get();
        waiting_.push_back({std::move(connection), source, Clock::now()});
        by_descriptor_[descriptor] = std::prev(waiting_.end());
        ++by_source_[source];
        if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) remove(std::prev(waiting_.end()));
    }
}

// Somebody who means it says ten bytes at once; so it is the one that has waited longest who goes.
void FrontDoor::make_room(const std::string& source) {
    if (waiting_.size() >= limits_.waiting) remove(waiting_.begin());
    auto count = by_source_.find(source);
    if (count == by_source_.end() || count->second < limits_.waiting_per_source) return;
    remove(std::find_if(waiting_.begin(), waiting_.end(), [&](auto& one) { return one.source == source; }));
}

void FrontDoor::look_at(int descriptor) {
    auto found = by_descriptor_.find(descriptor);
    if (found == by_descriptor_.end()) return;
    wire::GreetingStart start{};
    auto size = recv(descriptor, start.data(), start.size(), MSG_PEEK | MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const bool whole = size == static_cast<ssize_t>(start.size());
    if (size > 0 && !whole && start[0] == wire::greeting_first_byte) return;
    if (auto number = whole ? wire::number_in_greeting(start) : std::nullopt) show_in(*found->second, *number);
    remove(found->second);  // whoever it was shown in to has a descriptor of its own
}

void FrontDoor::show_in(Waiting& waiting, uint64_t number) {
    int descriptor = waiting.connection.get();
    (void)epoll_ctl(poll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);  // before others have it: they keep it open
    if (number < wire::first_greeting_number) {
        (void)send_packet(control_.get(), "1", descriptor);
        return;
    }
    LockGuard lock(mutex_);
    auto found = workers_.find(number);
    if (found == workers_.end()) return;
    auto& [worker, shown_in] = found->second;
    (void)send_packet(worker.get(), "1", descriptor);
    shown_in.push_back(socket_inode(descriptor));
    if (shown_in.size() > remembered_per_worker_max) shown_in.pop_front();
}

bool FrontDoor::has_one_of(uint64_t number, const std::set<ino_t>& sockets) {
    LockGuard lock(mutex_);
    auto found = workers_.find(number);
    if (found == workers_.end()) return false;
    auto& shown_in = found->second.shown_in;
    return std::any_of(shown_in.begin(), shown_in.end(), [&](ino_t one) { return sockets.count(one) > 0; });
}

void FrontDoor::remove(Waiters::iterator waiting) {
    auto count = by_source_.find(waiting->source);
    if (--count->second == 0) by_source_.erase(count);
    by_descriptor_.erase(waiting->connection.get());
    waiting_.erase(waiting);
}

void FrontDoor::remove_late() {
    while (!waiting_.empty() && Clock::now() - waiting_.front().since >= limits_.greeting) remove(waiting_.begin());
}

}  // namespace tnr::server
