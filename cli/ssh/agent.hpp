// The user's SSH agent for programs on a machine: `tnr connect -A`.
//
// OpenSSH's own way needs channels that the machine opens, which libssh2 before 1.11 refuses. So a small program of
// ours listens there, at a socket that only the login user may open, and passes each question of an agent's client
// through its own streams; here it is put to the agent. An agent answers questions one after the other, and so does this.
#pragma once

#include "cli/ssh/channel.hpp"

namespace tnr::ssh {

// The largest question and answer; OpenSSH's own limit.
inline constexpr size_t agent_message_bytes_max = size_t{256} << 10;

// Not thread-safe, as its Client is not. Moved by whoever runs the connection, with the companion that the client had
// before; goes before that one does.
class AgentRelay : public Companion {
public:
    // `agent` is the path of the agent's socket here. Starts the program there, which needs Python 3.
    static Result<std::unique_ptr<AgentRelay>> start(Client& client, const std::string& agent, Deadline deadline);
    ~AgentRelay() override;
    AgentRelay(const AgentRelay&) = delete;
    AgentRelay& operator=(const AgentRelay&) = delete;

    // Where the socket is on the machine: what programs there find in SSH_AUTH_SOCK.
    const std::string& path() const { return path_; }

    bool move() override;
    void add_polls(std::vector<pollfd>& polls) const override;
    void polled(const pollfd* polls) override;
    bool listens() const override;
    void settle(Deadline deadline) override;

private:
    AgentRelay(Client& client, Channel channel, std::string agent);
    Result<> read_path(Deadline deadline);
    bool pass();
    void ask();
    void give_up();

    Client& client_;
    Companion* before_;
    Channel channel_;
    std::string agent_, path_;
    std::string from_machine_, to_machine_;  // questions as they come; an answer, as far as it is not sent
    UniqueFd asked_;                         // the agent, while it has a question
    std::string to_agent_, from_agent_;
    bool ended_ = false;  // the program there has: nobody asks any more
};

}  // namespace tnr::ssh
