// Messages of the agent's protocol are a length in four bytes, most significant first, and as many bytes.
#include "cli/ssh/agent.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <optional>

#include "cli/ssh/exec.hpp"

namespace tnr::ssh {
namespace {

// Tells the path of its socket in a line, then passes questions to its output and answers from its input, until that
// ends. A client that sends half a question is waited for, but not for long: the others wait for it.
constexpr const char* program_there = R"(
import os, select, shutil, socket, sys, tempfile
def exactly(read, size):
    data = b""
    while len(data) < size:
        piece = read(size - len(data))
        if not piece: return b""
        data += piece
    return data
def message(read):
    head = exactly(read, 4)
    size = int.from_bytes(head, "big")
    return head + exactly(read, size) if head and 0 < size <= 262140 else b""
def tell(data):
    while data: data = data[os.write(1, data):]
folder = tempfile.mkdtemp(prefix="tnr-agent-")
try:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(folder + "/socket")
    listener.listen(16)
    tell((folder + "/socket\n").encode())
    clients = []
    while True:
        ready = select.select([0, listener] + clients, [], [])[0]
        if 0 in ready: break
        for each in ready:
            if each is listener:
                clients.append(listener.accept()[0])
                clients[-1].settimeout(10)
                continue
            try:
                question = message(each.recv)
                if question:
                    tell(question)
                    answer = message(lambda size: os.read(0, size))
                    if not answer: sys.exit()
                    each.sendall(answer)
                    continue
            except OSError: pass
            each.close()
            clients.remove(each)
finally:
    shutil.rmtree(folder)
)";

const std::string failure_answer{"\0\0\0\1\5", 5};  // SSH_AGENT_FAILURE

enum class Part { half, whole, senseless };
// What there is of the first message in `bytes`; `size` is that of a whole one.
Part first_message(const std::string& bytes, size_t& size) {
    if (bytes.size() < 4) return Part::half;
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    size = length + 4;
    if (length == 0 || size > agent_message_bytes_max) return Part::senseless;
    return bytes.size() < size ? Part::half : Part::whole;
}

// Local sockets connect at once or not at all.
UniqueFd connect_agent(const std::string& path) {
    UniqueFd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return {};
    std::memcpy(address.sun_path, path.c_str(), path.size());
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
    return socket;
}

}  // namespace

Result<std::unique_ptr<AgentRelay>> AgentRelay::start(Client& client, const std::string& agent, Deadline deadline) {
    if (!connect_agent(agent))
        return Error{Error::Kind::usage, "no SSH agent answers at " + agent,
                     "start one: `eval $(ssh-agent) && ssh-add`; or leave out -A"};
    auto channel = Channel::open(client, deadline);
    if (!channel) return channel.error();
    if (auto started = channel->start("exec", "exec python3 -c " + quoted(program_there), deadline); !started)
        return started.error();
    std::unique_ptr<AgentRelay> relay{new AgentRelay(client, std::move(*channel), agent)};
    if (auto told = relay->read_path(deadline); !told) return told.error();
    return relay;
}

AgentRelay::AgentRelay(Client& client, Channel channel, std::string agent)
    : client_(client), before_(client.companion), channel_(std::move(channel)), agent_(std::move(agent)) {
    client.companion = this;
}

AgentRelay::~AgentRelay() {
    client_.companion = before_;
}

Result<> AgentRelay::read_path(Deadline deadline) {
    constexpr size_t path_bytes_max = 200;  // a socket's is shorter
    for (char letter = 0; path_.size() < path_bytes_max; path_ += letter) {
        long got = client_.finish([&] { return libssh2_channel_read_ex(channel_.get(), 0, &letter, 1); }, deadline);
        if (got < 0) return client_.failure("forwarding the agent", got);
        if (got == 0) break;
        if (letter == '\n') return Ok{};
    }
    return Error{Error::Kind::remote, "'" + client_.target().name + "' cannot take the SSH agent: it has no Python 3",
                 "install it there (python3), or leave out -A"};
}

bool AgentRelay::move() {
    for (bool moved = false;;) {
        auto received = client_.wire().received();
        bool again = before_ && before_->move();
        again |= pass();
        moved |= again;
        if (!again && received == client_.wire().received()) return moved;
    }
}

bool AgentRelay::pass() {
    if (ended_) return false;
    char piece[4096];
    ssize_t got = from_machine_.size() < agent_message_bytes_max ? channel_.read(piece, sizeof piece) : 0;
    if (got < 0 || (got == 0 && channel_.eof())) return ended_ = true;
    from_machine_.append(piece, static_cast<size_t>(got));
    const bool idle = !asked_ && to_machine_.empty();
    if (size_t size = 0; idle && first_message(from_machine_, size) != Part::half) ask();
    ssize_t took = to_machine_.empty() ? 0 : channel_.write(to_machine_.data(), to_machine_.size());
    if (took < 0) return ended_ = true;
    to_machine_.erase(0, static_cast<size_t>(took));
    return got > 0 || took > 0;
}

void AgentRelay::ask() {
    size_t size = 0;
    if (first_message(from_machine_, size) == Part::senseless) {  // nothing after it makes sense either
        ended_ = true;
        return;
    }
    to_agent_ = from_machine_.substr(0, size);
    from_machine_.erase(0, size);
    from_agent_.clear();
    asked_ = connect_agent(agent_);
    if (!asked_) give_up();
}

void AgentRelay::give_up() {
    asked_.reset();
    to_machine_ = failure_answer;
}

void AgentRelay::add_polls(std::vector<pollfd>& polls) const {
    polls.push_back({asked_ ? asked_.get() : -1, static_cast<short>(to_agent_.empty() ? POLLIN : POLLOUT), 0});
    if (before_) before_->add_polls(polls);
}

void AgentRelay::polled(const pollfd* polls) {
    if (before_) before_->polled(polls + 1);
    if (!asked_ || !polls->revents) return;
    if (!to_agent_.empty()) {
        ssize_t took = ::send(asked_.get(), to_agent_.data(), to_agent_.size(), MSG_NOSIGNAL);
        if (took < 0 && !would_block(took)) return give_up();
        if (took > 0) to_agent_.erase(0, static_cast<size_t>(took));
        return;
    }
    char piece[4096];
    ssize_t got = ::recv(asked_.get(), piece, sizeof piece, 0);
    if (would_block(got)) return;
    if (got <= 0) return give_up();
    from_agent_.append(piece, static_cast<size_t>(got));
    size_t size = 0;
    const Part part = first_message(from_agent_, size);
    if (part == Part::senseless) return give_up();
    if (part == Part::half) return;
    to_machine_ = from_agent_.substr(0, size);
    asked_.reset();
}

bool AgentRelay::listens() const {
    return (before_ && before_->listens()) || !ended_;
}

void AgentRelay::settle(Deadline deadline) {
    if (before_) before_->settle(deadline);
}

}  // namespace tnr::ssh
