// See keeper.hpp.
#include "gpu_client/protocol/keeper.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>

#include "gpu_client/protocol/greeting.hpp"
#include "gpu_client/protocol/ipv6.hpp"

namespace tnr::wire {

using std::chrono::milliseconds;

// Between attempts: at first the worker waits only for a moment (knocks_within), later it is the network that takes its time.
static constexpr milliseconds pause_min{20}, knocking_pause_max{150}, pause_max{1000};
// How long the kernel may take to say why an attempt has failed; it has just told ZeroMQ.
static constexpr milliseconds refusal_within{500};

// What the other end says first; nothing if it closes the connection. Ten zeros if it has not spoken in time.
static std::optional<GreetingStart> hear_greeting(int socket) {
    GreetingStart start{};
    const auto until = std::chrono::steady_clock::now() + refusal_within;
    for (size_t heard = 0; heard < start.size();) {
        auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
        pollfd answered{socket, POLLIN, 0};
        if (left.count() <= 0 || ::poll(&answered, 1, static_cast<int>(left.count())) != 1) return GreetingStart{};
        auto got = ::recv(socket, start.data() + heard, start.size() - heard, MSG_DONTWAIT);
        if (got <= 0) return std::nullopt;
        heard += static_cast<size_t>(got);
    }
    return start;
}

// Whether who answers there is not the worker of this session. `number`: of a port that several share, where who comes with one
// that is not known any more is reset.
static bool is_another(int socket, uint64_t number, const std::string& session) {
    auto start = greeting_with(number);
    if (number != 0 && ::send(socket, start.data(), start.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(start.size()))
        return false;
    auto greeting = hear_greeting(socket);
    if (!greeting) return number != 0;
    const auto said = number_in_greeting(*greeting).value_or(0);
    return said >= first_greeting_number && said != greeting_of_worker(session);  // older workers do not say it
}

// Whether nobody listens there, or somebody else. ZeroMQ knew, but does not tell.
static bool refuses(const std::string& dialled, const std::string& session) {
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
    return error == ECONNREFUSED || (error == 0 && is_another(socket.get(), number, session));
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
        if (outcome != Outcome::failed || !refuses(link_.channel().endpoint(), link_.channel().session()))
            refused_since = Clock::time_point::max();
        else if (refused_since = std::min(refused_since, Clock::now());
                 Clock::now() - refused_since >= patience_.refused)
            return "the GPU's worker has ended";
        say_trying(since);
        if (!pause(rest)) return "stopped";
        rest = std::min(rest * 2, Clock::now() - since < knocks_within ? knocking_pause_max : pause_max);
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
