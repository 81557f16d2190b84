// See keeper.hpp.
#include "gpu_client/protocol/keeper.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>

#include "gpu_client/protocol/greeting.hpp"
#include "gpu_client/protocol/ipv6.hpp"

namespace tnr::wire {

using std::chrono::milliseconds;

// Between attempts: at first the worker waits only for a moment, later it is the network that takes its time.
static constexpr milliseconds pause_min{20}, pause_max{1000};
// How long the kernel may take to say why an attempt has failed; it has just told ZeroMQ.
static constexpr milliseconds refusal_within{500};

// Behind a port that several share: whether it resets who comes with this number.
static bool turned_away(int socket, uint64_t number) {
    auto start = greeting_with(number);
    pollfd answered{socket, POLLIN, 0};
    char byte;
    return ::send(socket, start.data(), start.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(start.size()) &&
           ::poll(&answered, 1, static_cast<int>(refusal_within.count())) == 1 &&
           ::recv(socket, &byte, 1, MSG_DONTWAIT) <= 0;
}

// Whether nobody listens there. ZeroMQ knew, but does not tell.
static bool refuses(const std::string& dialled) {
    const auto [endpoint, number] = parse_dialling(dialled);
    auto slashes = endpoint.find("//"), colon = endpoint.rfind(':');
    if (slashes == std::string::npos || colon == std::string::npos || colon < slashes + 2) return false;
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    auto host = endpoint.substr(slashes + 2, colon - slashes - 2);
    if (is_ipv6_literal(endpoint)) host = host.substr(1, host.size() - 2);
    if (getaddrinfo(host.c_str(), endpoint.c_str() + colon + 1, &hints, &list) != 0) return false;
    UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = 0;
    if (::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0) error = errno;
    freeaddrinfo(list);
    if (error != 0 && error != EINPROGRESS) return error == ECONNREFUSED;
    pollfd done{socket.get(), POLLOUT, 0};
    socklen_t size = sizeof error;
    if (::poll(&done, 1, static_cast<int>(refusal_within.count())) != 1) return false;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return false;
    return error == ECONNREFUSED || (error == 0 && number != 0 && turned_away(socket.get(), number));
}

Keeper::Keeper(Link& link, Patience patience, Hooks hooks)
    : link_(link), patience_(patience), hooks_(std::move(hooks)), stop_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void Keeper::stop() {
    uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
}

// True: the connection, or the attempt at one, has ended.
bool Keeper::broke() {
    bool ended = false;
    while (auto news = link_.channel().dial_news()) {
        if (news->what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) link_.shaken_hands();
        ended |= news->what == ZMQ_EVENT_DISCONNECTED || news->what == ZMQ_EVENT_CLOSED;
    }
    return ended;
}

// Waits for what becomes of the connection; `open` only after a dial. Looks before it polls: ZeroMQ's descriptor
// signals only changes since the last look.
Keeper::Outcome Keeper::wait(Clock::time_point until) {
    while (!stopped_) {
        if (broke()) return Outcome::failed;
        if (link_.take_opened()) return Outcome::open;
        auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
        if (left.count() <= 0) return Outcome::late;
        pollfd fds[] = {
            {stop_.get(), POLLIN, 0}, {link_.channel().dial_news_fd(), POLLIN, 0}, {link_.opened_fd(), POLLIN, 0}};
        ::poll(fds, 3, static_cast<int>(left.count()));
        stopped_ = fds[0].revents != 0;
    }
    return Outcome::stopped;
}

bool Keeper::pause(milliseconds time) {
    pollfd stop{stop_.get(), POLLIN, 0};
    stopped_ |= ::poll(&stop, 1, static_cast<int>(time.count())) > 0;
    return !stopped_;
}

void Keeper::say_trying(Clock::time_point since) {
    if (told_ || Clock::now() - since < patience_.unnoticed) return;
    told_ = true;
    hooks_.trying();
}

// Null once the link is open again; else why it is given up.
const char* Keeper::reconnect() {
    auto since = Clock::now(), refused_since = Clock::time_point::max();
    auto rest = pause_min;
    told_ = false;
    while (Clock::now() - since < patience_.grace) {
        auto attempt_ends = std::min(Clock::now() + patience_.attempt, since + patience_.grace);
        link_.channel().cut(true);
        auto outcome = link_.dial() ? Outcome::late : Outcome::failed;
        while (outcome == Outcome::late && Clock::now() < attempt_ends) {
            say_trying(since);
            outcome = wait(told_ ? attempt_ends : std::min(attempt_ends, since + patience_.unnoticed));
        }
        if (outcome == Outcome::open) return nullptr;
        if (outcome == Outcome::stopped) return "stopped";
        if (outcome != Outcome::failed || !refuses(link_.channel().endpoint()))
            refused_since = Clock::time_point::max();
        else if (refused_since = std::min(refused_since, Clock::now());
                 Clock::now() - refused_since >= patience_.refused)
            return "the GPU's worker has ended";
        say_trying(since);
        if (!pause(rest)) return "stopped";
        rest = std::min(rest * 2, pause_max);
    }
    return "the connection to the GPU's worker broke and did not come back";
}

void Keeper::run() {
    for (bool keep = true; keep;) {
        auto outcome = wait(Clock::now() + std::chrono::hours(24));
        if (outcome == Outcome::stopped) break;
        if (outcome != Outcome::failed) continue;
        keep = hooks_.broken();
        const char* why = keep ? reconnect() : nullptr;
        if (why)
            hooks_.lost(why);
        else if (keep)
            hooks_.back(told_);
        keep &= why == nullptr;
    }
    link_.channel().cut(false);
    link_.close();
}

}  // namespace tnr::wire
