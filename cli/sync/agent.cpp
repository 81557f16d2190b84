// Bringing the server, starting it, and carrying bytes between its channel and our own end, which runs in another thread: the SSH
// connection belongs to this one.
#include "cli/sync/agent.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <memory>

#include "api_client/base/descriptors.hpp"
#include "api_client/base/handles.hpp"
#include "api_client/base/interrupt.hpp"
#include "cli/install/embedded.hpp"
#include "cli/ssh/channel.hpp"
#include "cli/ssh/exec.hpp"

namespace tnr::sync {
namespace {

constexpr std::chrono::seconds start_limit{30};
constexpr std::chrono::minutes bring_limit{5};  // 2 MB over a slow line
constexpr size_t piece_bytes = size_t{256} << 10;
constexpr int socket_buffer_bytes = 4 << 20;
constexpr size_t complaint_bytes_max = 2000;  // of what the server or its shell says on stderr
// What a login shell may say before our greeting.
constexpr size_t noise_bytes_max = size_t{64} << 10;
constexpr int code_missing = 97, code_architecture = 98;

#if defined(__x86_64__)
constexpr const char* architecture = "x86_64";
#elif defined(__aarch64__)
constexpr const char* architecture = "aarch64";
#else
constexpr const char* architecture = "";  // then the server that is embedded is for no machine
#endif

const std::string& server_hash() {
    static const std::string hash = install::sync_server().sha256();
    return hash;
}

// For whatever login shell there is: `exec sh -c` and single quotes are the same in all of them.
std::string in_sh(const std::string& script) {
    std::string place =
        "d=\"${XDG_CACHE_HOME:-$HOME/.cache}/tnr\"; f=\"$d/sync-server-" + server_hash().substr(0, 16) + "\"; ";
    return "exec sh -c " + ssh::quoted(place + script);
}

// Three programs at most (the shell, sha256sum, the server): each takes milliseconds to start.
std::string starting_line() {
    return in_sh("[ \"$(sha256sum <\"$f\" 2>/dev/null)\" = \"" + server_hash() + "  -\" ] || exit " +
                 std::to_string(code_missing) + "; exec \"$f\"");
}

// Other versions go a month after they were brought.
std::string bringing_line() {
    return in_sh("[ \"$(uname -m)\" = " + std::string(architecture) + " ] || exit " +
                 std::to_string(code_architecture) +
                 "; umask 077; mkdir -p \"$d\" && cat >\"$f.$$\" && chmod 700 \"$f.$$\" && mv -f \"$f.$$\" \"$f\" || "
                 "{ rm -f \"$f.$$\"; exit 1; }; find \"$d\" -name \"sync-server-*\" -mtime +30 -exec rm -f {} +");
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

struct Started {
    std::unique_ptr<ssh::Channel> channel;  // it has greeted
    int code = 0;                           // else: what it ended with
    std::string complaint;
};

// A turn of a channel that only listens; false: it has ended.
Result<bool> listen_once(ssh::Channel& channel, std::string& out, std::string& err, ssh::Deadline deadline) {
    char bytes[4096];
    ssize_t got = channel.read(bytes, sizeof bytes);
    if (got > 0) out.append(bytes, static_cast<size_t>(got));
    ssize_t complained = got < 0 ? got : channel.read(bytes, sizeof bytes, SSH_EXTENDED_DATA_STDERR);
    if (complained > 0 && err.size() < complaint_bytes_max) err.append(bytes, static_cast<size_t>(complained));
    if (complained < 0) return channel.client().failure("starting the sync server", complained);
    if (got > 0 || complained > 0) return true;
    if (channel.eof()) return false;
    ssh::Client& client = channel.client();
    client.wire().wait(std::min(deadline, ssh::Clock::now() + client.keep_alive()));
    if (interrupt::interrupted() || ssh::Clock::now() >= deadline || !client.listened())
        return client.failure("starting the sync server", LIBSSH2_ERROR_TIMEOUT);
    return true;
}

Result<Started> try_to_start(ssh::Client& client) {
    auto deadline = ssh::Clock::now() + start_limit;
    auto channel = ssh::Channel::open(client, deadline);
    if (!channel) return channel.error();
    if (auto started = channel->start("exec", starting_line(), deadline); !started) return started.error();
    Started started;
    for (std::string said; said.size() < noise_bytes_max;) {
        auto more = listen_once(*channel, said, started.complaint, deadline);
        if (!more) return more.error();
        if (said.ends_with(greeting)) {
            started.channel = std::make_unique<ssh::Channel>(std::move(*channel));
            return started;
        }
        if (!*more) break;
    }
    client.finish([&] { return libssh2_channel_close(channel->get()); }, deadline);
    client.finish([&] { return libssh2_channel_wait_closed(channel->get()); }, deadline);
    started.code = libssh2_channel_get_exit_status(channel->get());
    return started;
}

// Null, and `unusable` says why: the machine cannot run it.
Result<std::unique_ptr<ssh::Channel>> start_server(ssh::Client& client, std::string& unusable) {
    auto started = try_to_start(client);
    if (started && !started->channel && started->code == code_missing) {
        auto brought = ssh::capture(client, bringing_line(), std::string(install::sync_server().bytes),
                                    ssh::Clock::now() + bring_limit);
        if (!brought) return brought.error();
        if (brought->code != 0) {
            unusable = brought->code == code_architecture ? std::string("it is for ") + architecture
                                                          : "it cannot be put there: " + first_line(brought->err);
            return std::unique_ptr<ssh::Channel>{};
        }
        started = try_to_start(client);
    }
    if (!started) return started.error();
    if (!started->channel)
        unusable = started->complaint.empty() ? "it ended with " + std::to_string(started->code)
                                              : first_line(started->complaint);
    return std::move(started->channel);
}

// Carries bytes between the channel and `socket` until our end has closed its own.
class Carrier {
public:
    Carrier(ssh::Channel& channel, int socket) : channel_(channel), client_(channel.client()), socket_(socket) {}

    // `look` is called now and then.
    Result<> run(const std::function<void()>& look) {
        while (!(our_end_over_ && up_.empty())) {
            bool moved = false;
            if (auto sent = send(moved); !sent) return sent;
            // Last, and until nothing comes: any call of libssh2 may take packets off the socket, which then stays silent.
            if (auto heard = receive(moved); !heard) return heard;
            look();
            if (!moved)
                if (auto waited = wait(); !waited) return waited;
        }
        return Ok{};
    }
    const std::string& complaint() const { return complaint_; }

private:
    // What is on its way in one direction.
    struct Held {
        std::vector<char> bytes = std::vector<char>(piece_bytes);
        size_t begin = 0, end = 0;
        bool empty() const { return begin == end; }
        char* data() { return bytes.data() + begin; }
        size_t size() const { return end - begin; }
        void fill(ssize_t got) { begin = 0, end = static_cast<size_t>(std::max<ssize_t>(got, 0)); }
        void take(size_t count) { begin += count; }
    };

    Result<> send(bool& moved) {
        if (up_.empty() && !our_end_over_) {
            ssize_t got = ::recv(socket_, up_.bytes.data(), up_.bytes.size(), MSG_DONTWAIT);
            our_end_over_ = got == 0;
            up_.fill(got);
            moved = moved || got > 0;
        }
        while (!up_.empty()) {
            ssize_t took = channel_.write(up_.data(), up_.size());
            if (took == LIBSSH2_ERROR_CHANNEL_CLOSED || took == LIBSSH2_ERROR_CHANNEL_EOF_SENT || gone_)
                took = static_cast<ssize_t>(up_.size());  // it has ended, and its last words say why
            if (took < 0) return client_.failure("copying", took);
            if (took == 0) return Ok{};
            up_.take(static_cast<size_t>(took));
            moved = true;
        }
        return Ok{};
    }

    Result<> receive(bool& moved) {
        while (down_.empty()) {
            ssize_t got = channel_.read(down_.bytes.data(), down_.bytes.size());
            down_.fill(got);
            if (got < 0) return client_.failure("copying", got);
            if (got == 0) break;
            moved = true;
            pass_on();
        }
        pass_on();
        char bytes[512];
        ssize_t complained = channel_.read(bytes, sizeof bytes, SSH_EXTENDED_DATA_STDERR);
        if (complained > 0 && complaint_.size() < complaint_bytes_max)
            complaint_.append(bytes, static_cast<size_t>(complained));
        if (complained > 0) moved = true;
        if (!gone_ && down_.empty() && channel_.eof()) {
            gone_ = moved = true;
            ::shutdown(socket_, SHUT_WR);
        }
        return Ok{};
    }

    void pass_on() {
        if (down_.empty()) return;
        ssize_t took = ::send(socket_, down_.data(), down_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (took < 0 && (errno == EAGAIN || errno == EINTR)) return;
        down_.take(took < 0 ? down_.size() : static_cast<size_t>(took));  // nobody listens any more: thrown away
    }

    Result<> wait() {
        short events = static_cast<short>((up_.empty() && !our_end_over_ ? POLLIN : 0) | (down_.empty() ? 0 : POLLOUT));
        std::vector<pollfd> others{{socket_, events, 0}};
        bool listen = down_.empty() || !up_.empty();
        if (!listen) client_.wire().excuse_silence();
        client_.wire().wait(ssh::Clock::now() + std::min<ssh::Clock::duration>(client_.keep_alive(), look_interval),
                            &others, listen);
        if (interrupt::interrupted()) return interrupt::error();
        if (!client_.listened()) return client_.failure("copying", LIBSSH2_ERROR_TIMEOUT);
        return Ok{};
    }

    static constexpr std::chrono::milliseconds look_interval{500};
    ssh::Channel& channel_;
    ssh::Client& client_;
    const int socket_;
    Held up_, down_;
    std::string complaint_;
    bool our_end_over_ = false, gone_ = false;
};

// This computer's end, in a thread of its own, and the socket through which it speaks.
class OurEnd {
public:
    OurEnd(const SyncSettings& settings, bool up) : settings_(settings), up_(up) {}
    ~OurEnd() {
        if (over_.valid()) (void)end();
    }
    Result<> begin() {
        Ends pair = make_socket_pair();
        if (!pair) return Error{Error::Kind::internal, "cannot make a pair of sockets"};
        own_.reset(pair.one), carrying_.reset(pair.other);
        for (int fd : {pair.one, pair.other})
            ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &socket_buffer_bytes, sizeof socket_buffer_bytes);
        interrupt::SignalsBlocked blocked;
        over_ = std::async(std::launch::async, [this] { return run(); });
        return Ok{};
    }
    // What it came to; cuts it off when it has not come to its end yet.
    Result<Tally> end() {
        ::shutdown(carrying_.get(), SHUT_RDWR);
        return over_.get();
    }
    int socket() const { return carrying_.get(); }
    Tally now() const { return counters_.now(); }

private:
    Result<Tally> run() {
        Link link{own_.get(), own_.get(), [this] { ::shutdown(own_.get(), SHUT_RDWR); }};
        Inbox inbox(link.in);
        Outbox outbox(link.out);
        outbox.send(hello(settings_, !up_));
        auto done = up_ ? send_tree(link, inbox, outbox, settings_, counters_)
                        : receive_tree(link, inbox, outbox, settings_, counters_);
        ::shutdown(own_.get(), SHUT_WR);
        return done;
    }

    const SyncSettings& settings_;
    const bool up_;
    UniqueFd own_, carrying_;
    Counters counters_;
    std::future<Result<Tally>> over_;
};

}  // namespace

Result<Tally> sync_by_server(ssh::Client& client, const SyncSettings& settings, bool up, const Watch& watch,
                             std::string& unusable) {
    OurEnd ours(settings, up);
    if (auto begun = ours.begin(); !begun) return begun.error();
    auto channel = start_server(client, unusable);
    if (!channel) return channel.error();
    if (!*channel) return Error{Error::Kind::remote, "the sync server cannot run there: " + unusable};
    Carrier carrier(**channel, ours.socket());
    auto carried = carrier.run([&] { watch(ours.now()); });
    auto done = ours.end();
    if (!carried) return carried.error();
    if (done || done.error().kind != Error::Kind::network) return done;
    return Error{Error::Kind::network,
                 "the sync server on '" + client.target().name + "' ended before all was copied" +
                     (carrier.complaint().empty() ? "" : ": " + first_line(carrier.complaint())),
                 "sync again: it goes on where this stopped"};
}

}  // namespace tnr::sync
