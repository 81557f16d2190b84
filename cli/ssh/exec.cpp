// The pump between a channel and our own descriptors.
//
// It never blocks on one stream while another could move: output is written in pieces that a pipe which polls
// ready is sure to take, input is read only when the channel has room for it, and while our reader is slow the
// channel's window holds the machine back.
#include "cli/ssh/exec.hpp"

#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "api_client/base/interrupt.hpp"
#include "cli/ssh/channel.hpp"
#include "cli/ssh/escapes.hpp"
#include "cli/ssh/signals.hpp"

namespace tnr::ssh {
namespace {

constexpr std::chrono::seconds request_limit{30};  // opening a channel, asking for a terminal or a command
constexpr size_t piece_bytes = size_t{256} << 10;  // what is held of each stream at a time
constexpr int pipe_closed_code = 128 + 13;         // what a local program ended by SIGPIPE would leave

bool is_regular(int fd) {
    struct stat found;
    return ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

// One of the command's output streams on its way to a descriptor or a string.
struct Outlet {
    int fd = -1;
    std::string* text = nullptr;
    int stream = 0;
    std::function<void(std::string_view)> said = {};
    std::string held = {};
    bool broken = false;  // nobody reads any more
    bool regular = fd >= 0 && is_regular(fd);

    bool room() const { return held.size() < piece_bytes; }
    bool wants_poll() const { return !held.empty(); }

    // A pipe that polls writable takes PIPE_BUF bytes without blocking, and promises nothing beyond.
    void drain_once() {
        size_t length = regular ? held.size() : std::min<size_t>(held.size(), PIPE_BUF);
        ssize_t took = ::write(fd, held.data(), length);
        if (took < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (took < 0) broken = true;
        held.erase(0, took < 0 ? held.size() : static_cast<size_t>(took));
    }
};

class Pump {
public:
    Pump(Channel& channel, int in, std::string in_text, Outlet out, Outlet err, const Pty* pty, Deadline deadline)
        : channel_(channel),
          client_(channel.client()),
          in_(in),
          in_held_(std::move(in_text)),
          outlets_{std::move(out), std::move(err)},
          pty_(pty),
          deadline_(deadline),
          piece_(piece_bytes) {}

    // Until the command has ended. After an interruption it may be called again, and goes on.
    Result<> run() {
        while (!finished()) {
            if (auto moved = move(); !moved) return moved;
            if (outlets_[0].broken || outlets_[1].broken) return Ok{};
            if (ended_by_user())
                return Error{Error::Kind::network,
                             "left '" + client_.target().name + "': the connection was ended here",
                             "what runs there has lost its terminal; `tnr status` shows the machine"};
            if (moved_ || news()) continue;
            if (auto waited = wait(); !waited) return waited;
        }
        return Ok{};
    }
    bool broken() const { return outlets_[0].broken || outlets_[1].broken; }

private:
    bool ended_by_user() {
        return pty_ && (escapes_.ended() || escapes_.gives_up(client_.wire().heard(), Clock::now()));
    }

    bool finished() { return channel_.eof() && outlets_[0].held.empty() && outlets_[1].held.empty(); }

    // Reading one stream, and writing, make libssh2 take packets of the other off the socket: then the socket stays
    // silent, and waiting for it would be waiting for the next keepalive.
    bool news() {
        for (auto& outlet : outlets_)
            if (outlet.room() && libssh2_poll_channel_read(channel_.get(), outlet.stream) == 1) return true;
        return finished();
    }

    // One turn of everything that can move without waiting.
    Result<> move() {
        moved_ = false;
        for (auto& outlet : outlets_)
            if (auto taken = take_output(outlet); !taken) return taken;
        auto given = give_input();
        if (client_.companion) moved_ |= client_.companion->move();
        return given;
    }

    Result<> take_output(Outlet& outlet) {
        while (outlet.room()) {
            ssize_t got = channel_.read(piece_.data(), piece_.size(), outlet.stream);
            if (got < 0) return client_.failure("reading the command's output", got);
            if (got == 0) return Ok{};
            moved_ = true;
            if (outlet.said) outlet.said({piece_.data(), static_cast<size_t>(got)});
            if (outlet.text) outlet.text->append(piece_.data(), static_cast<size_t>(got));
            if (outlet.fd >= 0) outlet.held.append(piece_.data(), static_cast<size_t>(got));
        }
        return Ok{};
    }

    Result<> give_input() {
        while (!in_held_.empty()) {
            ssize_t took = channel_.write(in_held_.data() + in_gone_, in_held_.size() - in_gone_);
            if (took == LIBSSH2_ERROR_CHANNEL_CLOSED || took == LIBSSH2_ERROR_CHANNEL_EOF_SENT) return in_end();
            if (took < 0) return client_.failure("sending it input", took);
            if (took == 0) return Ok{};
            moved_ = true;
            in_gone_ += static_cast<size_t>(took);
            if (in_gone_ == in_held_.size()) in_held_.clear(), in_gone_ = 0;
        }
        if (in_ < 0 && !eof_sent_) {
            long code = client_.finish([&] { return libssh2_channel_send_eof(channel_.get()); }, deadline_);
            if (code < 0 && code != LIBSSH2_ERROR_CHANNEL_CLOSED) return client_.failure("ending its input", code);
            eof_sent_ = true;
        }
        return Ok{};
    }

    // The command takes no more input; that is its right, and its output may still be coming.
    Result<> in_end() {
        in_ = -1;
        in_held_.clear(), in_gone_ = 0;
        eof_sent_ = true;
        return Ok{};
    }

    Result<> wait() {
        std::vector<pollfd> others = {
            {outlets_[0].wants_poll() ? outlets_[0].fd : -1, POLLOUT, 0},
            {outlets_[1].wants_poll() ? outlets_[1].fd : -1, POLLOUT, 0},
            {wants_input() ? in_ : -1, POLLIN, 0},
            {pty_ ? pty_->resized_fd : -1, POLLIN, 0},
        };
        // With no room for output and no input waiting for a window, news from the machine would only spin us.
        Companion* companion = client_.companion;
        bool listen = outlets_[0].room() || outlets_[1].room() || !in_held_.empty();
        listen |= companion && companion->listens();
        if (!listen) client_.wire().excuse_silence();
        size_t own = others.size();
        if (companion) companion->add_polls(others);
        client_.wire().wait(std::min(deadline_, Clock::now() + client_.keep_alive()), &others, listen);
        if (companion) companion->polled(others.data() + own);
        if (interrupt::interrupted()) return interrupt::error();
        if (Clock::now() >= deadline_ || !client_.listened())
            return client_.failure("running a command", LIBSSH2_ERROR_TIMEOUT);
        for (size_t i = 0; i < 2; ++i)
            if (others[i].revents) outlets_[i].drain_once();
        if (others[2].revents) read_input();
        if (others[3].revents) resize();
        return Ok{};
    }

    // From a terminal always: the key that ends a connection must be seen while nothing goes through it.
    bool wants_input() const { return in_held_.empty() || (pty_ && in_held_.size() < piece_bytes); }

    void read_input() {
        ssize_t got = ::read(in_, piece_.data(), piece_.size());
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) in_ = -1;
        if (got <= 0) return;
        std::string typed(piece_.data(), static_cast<size_t>(got));
        in_held_ += pty_ ? escapes_.take(typed, Clock::now()) : typed;
    }

    void resize() {
        char bytes[64];
        while (::read(pty_->resized_fd, bytes, sizeof bytes) > 0) {
        }
        WindowSize size = pty_->size();
        client_.finish(
            [&] { return libssh2_channel_request_pty_size_ex(channel_.get(), size.columns, size.rows, 0, 0); },
            Clock::now() + request_limit);
    }

    Channel& channel_;
    Client& client_;
    int in_;
    std::string in_held_;
    size_t in_gone_ = 0;  // how much of in_held_ is sent: erasing that each time would move the rest each time
    std::array<Outlet, 2> outlets_;
    const Pty* pty_;
    Deadline deadline_;
    std::vector<char> piece_;
    Escapes escapes_;
    bool eof_sent_ = false;
    bool moved_ = false;
};

Result<int> exit_code(Channel& channel, Deadline deadline) {
    Client& client = channel.client();
    // The exit code comes after the end of output, just before the channel closes.
    long code = client.finish([&] { return libssh2_channel_close(channel.get()); }, deadline);
    if (code == 0) code = client.finish([&] { return libssh2_channel_wait_closed(channel.get()); }, deadline);
    if (code != 0) return client.failure("waiting for the exit code", code);
    char* name = nullptr;
    libssh2_channel_get_exit_signal(channel.get(), &name, nullptr, nullptr, nullptr, nullptr, nullptr);
    if (!name) return libssh2_channel_get_exit_status(channel.get());
    int number = signal_number(name);
    libssh2_free(client.session(), name);
    return 128 + number;
}

Result<> request_pty(Channel& channel, const Pty& pty, Deadline deadline) {
    // IUTF8 (42) makes the machine's line editing erase whole characters; 0 ends the list.
    static const char modes[] = {42, 0, 0, 0, 1, 0};
    WindowSize size = pty.size();
    long code = channel.client().finish(
        [&] {
            return libssh2_channel_request_pty_ex(channel.get(), pty.term.data(),
                                                  static_cast<unsigned>(pty.term.size()), modes, sizeof modes,
                                                  size.columns, size.rows, 0, 0);
        },
        deadline);
    if (code != 0) return channel.client().failure("asking for a terminal", code);
    return Ok{};
}

Result<> request_agent(Channel& channel, Deadline deadline) {
    Client& client = channel.client();
    long code = client.finish([&] { return libssh2_channel_request_auth_agent(channel.get()); }, deadline);
    if (code == LIBSSH2_ERROR_CHANNEL_REQUEST_DENIED)
        return Error{Error::Kind::remote, "'" + client.target().name + "' takes no SSH agent",
                     "AllowAgentForwarding in its sshd_config is what decides; or leave out -A"};
    if (code != 0) return client.failure("forwarding the SSH agent", code);
    return Ok{};
}

void set_environment(Channel& channel, const Command& command, Deadline deadline) {
    for (const auto& [name, value] : command.environment)
        channel.client().finish(
            [&, &name = name, &value = value] {
                return libssh2_channel_setenv_ex(channel.get(), name.data(), static_cast<unsigned>(name.size()),
                                                 value.data(), static_cast<unsigned>(value.size()));
            },
            deadline);
}

Result<Channel> start(Client& client, const Command& command) {
    Deadline deadline = Clock::now() + request_limit;
    auto channel = Channel::open(client, deadline);
    if (!channel) return channel;
    set_environment(*channel, command, deadline);
    if (command.agent)
        if (auto agreed = request_agent(*channel, deadline); !agreed) return agreed.error();
    if (command.pty)
        if (auto made = request_pty(*channel, *command.pty, deadline); !made) return made.error();
    auto started = channel->start(command.line.empty() ? "shell" : "exec", command.line, deadline);
    if (!started) return started.error();
    return channel;
}

// Without a terminal over there, Ctrl-C ends tnr alone: sshd closes the command's streams, which a program that computes
// notices hours later. So the signal goes to the command, which may want to save its work, and tnr ends when it does.
// A second signal leaves the command to itself.
Result<> run_passing_signals(Client& client, Pump& pump) {
    auto ran = pump.run();
    if (ran || !interrupt::interrupted()) return ran;
    int signal = interrupt::take();
    auto sent = send_signal(client, signal);
    if (!sent) interrupt::again(signal);
    if (sent) ran = pump.run();
    if (ran || !interrupt::interrupted()) return ran;
    std::string name = client.target().name;
    return Error{ran.error().kind, "interrupted, and left the command on '" + name + "' to itself",
                 "it may still run there: `tnr connect " + name + " -- ps x`"};
}

}  // namespace

Result<int> run(Client& client, const Command& command, const Streams& streams) {
    auto channel = start(client, command);
    if (!channel) return channel.error();
    Pump pump{*channel,
              streams.in,
              {},
              Outlet{streams.out},
              Outlet{streams.err, nullptr, SSH_EXTENDED_DATA_STDERR},
              command.pty ? &*command.pty : nullptr,
              Deadline::max()};
    if (auto ran = command.pty ? pump.run() : run_passing_signals(client, pump); !ran) return ran.error();
    (void)client.listened();  // who was told of silence is told that it is over, though the command has ended with it
    if (pump.broken()) {
        (void)send_signal(client, SIGPIPE);  // what it would get here at its next write, which may be far away
        return pipe_closed_code;
    }
    return exit_code(*channel, Clock::now() + request_limit);
}

Result<int> follow(Client& client, const std::string& line, const std::function<void(std::string_view)>& said) {
    auto channel = start(client, Command{line, std::nullopt});
    if (!channel) return channel.error();
    Pump pump{*channel,
              -1,
              {},
              Outlet{-1, nullptr, 0, said},
              Outlet{-1, nullptr, SSH_EXTENDED_DATA_STDERR, said},
              nullptr,
              Deadline::max()};
    if (auto ran = run_passing_signals(client, pump); !ran) return ran.error();
    return exit_code(*channel, Clock::now() + request_limit);
}

Result<Output> capture(Client& client, const std::string& line, const std::string& in, Deadline deadline) {
    auto channel = start(client, Command{line, std::nullopt});
    if (!channel) return channel.error();
    Output output;
    Pump pump{*channel, -1,      in, Outlet{-1, &output.out}, Outlet{-1, &output.err, SSH_EXTENDED_DATA_STDERR},
              nullptr,  deadline};
    if (auto ran = pump.run(); !ran) return ran.error();
    auto code = exit_code(*channel, deadline);
    if (!code) return code.error();
    output.code = *code;
    return output;
}

std::string quoted(const std::string& argument) {
    static const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
    if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) return argument;
    std::string text = "'";
    for (char letter : argument) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    return text + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
    if (words.size() == 1) return words[0];
    std::string line;
    for (const auto& word : words) line += (line.empty() ? "" : " ") + quoted(word);
    return line;
}

}  // namespace tnr::ssh
