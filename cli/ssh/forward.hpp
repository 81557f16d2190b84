// Ports of this computer that lead to what a machine can reach, `tnr connect -L`, and the way back for one thing alone:
// this computer's SSH agent for programs there, `tnr connect -A`.
//
// The ports are bound before the first connection to the machine and stay bound while it is dialled again. Whoever runs
// the connection (Pump in exec.cpp, or hold_open()) moves the bytes.
#pragma once

#include <list>

#include "cli/ssh/client.hpp"

namespace tnr::ssh {

struct Forward {
    std::string bind = "127.0.0.1";
    int port = 0;  // 0: one that the kernel chooses
    std::string host = "localhost";
    int host_port = 0;  // as the machine sees it
};

// "8888", "8888:80", "8888:host:80" or "address:8888:host:80"; an IPv6 address stands in brackets.
Result<Forward> parse_forward(const std::string& text);
std::string to_string(const Forward& forward);

// How many connections one `tnr` carries at a time; more wait in the kernel's queue. Each takes up to 4.5 MiB when both its
// ends are slow.
inline constexpr size_t forwarded_connections_max = 256;

// Not thread-safe, as its Client is not.
class Forwards : public Companion {
public:
    // `tell` hears, once for each port in a row, why the machine refuses connections.
    explicit Forwards(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}
    ~Forwards() override { detach(); }

    // Binds the port. The answer has the one that the kernel chose.
    Result<Forward> listen(const Forward& forward);
    // Programs started with Command::agent may ask the agent whose socket is at `path` here. An Error when none
    // answers there.
    Result<> let_agent(const std::string& path);
    bool empty() const { return listeners_.empty() && agent_.empty(); }

    // From now on connections go through `client`, until detach(), which must come before the client goes: it ends the
    // connections, and keeps the ports.
    Result<> attach(Client& client);
    void detach();

    bool move() override;
    void add_polls(std::vector<pollfd>& polls) const override;
    void polled(const pollfd* polls) override;
    bool listens() const override;
    void settle(Deadline deadline) override;

private:
    struct Listener {
        Forward forward;
        UniqueFd socket;
        bool told = false;  // that the machine refuses
    };
    // Its life: waiting → opening → open → closing, and it is erased. Each end may stop sending long before the other.
    // One to the agent is open from the beginning, and of no listener.
    struct Connection {
        enum class State { waiting, opening, open, closing };
        Listener* listener;
        UniqueFd local;
        State state = State::waiting;
        LIBSSH2_CHANNEL* channel = nullptr;
        std::string to_machine = {}, to_local = {};
        bool local_ended = false, machine_ended = false;  // no more comes from there
        bool told_machine = false, told_local = false;    // that no more will come

        short wants() const;  // what to poll `local` for
    };

    bool pass();
    void open(Connection& connection);
    bool move_open(Connection& connection);
    bool take_from_machine(Connection& connection);
    bool give_local(Connection& connection);
    bool give_machine(Connection& connection);
    void close(Connection& connection);
    void take_from_local(Connection& connection);
    void accept(Listener& listener);
    void accept_agent(LIBSSH2_CHANNEL* channel);
    bool full() const { return connections_.size() >= forwarded_connections_max; }

    std::function<void(const std::string&)> tell_;
    Client* client_ = nullptr;
    std::string agent_ = {};         // its socket; empty: none is let there
    bool agent_is_late_ = false;     // what it is waited for holds all up: no more once it was in vain
    std::list<Listener> listeners_;  // lists: connections point to them
    std::list<Connection> connections_;
};

// Keeps the connection open for its companion alone, without a shell. An Error, always: the connection was lost, or the
// user pressed Ctrl-C.
Error hold_open(Client& client);

}  // namespace tnr::ssh
