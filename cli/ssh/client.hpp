// An authenticated SSH connection to one machine, over libssh2; no ssh or scp program is involved.
//
// The one rule here is that the machine must prove itself first: its host key has to be the very key we planted. Where a
// cloud lets nobody plant one, `tnr start` alone trusts the key that a new machine shows first, and says so; from then on
// that is the key. There is no option to skip the check.
#pragma once

#include <libssh2.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api_client/base/interrupt.hpp"
#include "cli/ssh/keys.hpp"
#include "cli/ssh/wire.hpp"

namespace tnr::ssh {

struct Target {
    std::string name;  // the user's word for the machine, for messages
    std::string host;
    int port = 22;
    std::string user;
    std::string host_key;      // public line; nothing else is accepted
    KeyPair key;               // the user's own
    bool trust_first = false;  // whatever key it shows is accepted; Client::host_key() has it, and `host_key` is empty
};

// How long a machine is silent before somebody is told, and before it is given up for dead. Long enough for a Wi-Fi that
// comes back; told soon, since the user who waits for an answer wants to know.
struct SilenceLimits {
    std::chrono::milliseconds told{10'000};
    std::chrono::milliseconds lost{60'000};
};
// While the machine says nothing it is asked; a live SSH server always answers.
inline constexpr std::chrono::seconds keepalive_interval{3};

// How long an SSH server that answers may refuse our key before that is final. A new machine's is up before cloud-init has
// made our user; one that has let us in before refuses only until it has booted.
inline constexpr std::chrono::seconds auth_patience_new{180}, auth_patience_known{30};

// One TCP connect and handshake may take this long: an emulated machine on a busy host needs most of it.
inline constexpr std::chrono::seconds attempt_limit{30};

// What shares a connection with the command that runs over it: forwarded ports. Whoever waits for the machine also waits
// for this, and moves it.
class Companion {
public:
    virtual ~Companion() = default;
    // What can be done without waiting; true: something was.
    virtual bool move() = 0;
    virtual void add_polls(std::vector<pollfd>& polls) const = 0;
    virtual void polled(const pollfd* polls) = 0;  // those that it added last, in their order
    // Whether it waits for anything from the machine.
    virtual bool listens() const = 0;
    // libssh2 opens one channel at a time: ends an opening that has begun, before another one begins.
    virtual void settle(Deadline deadline) = 0;
};

// Not thread-safe. Must not move while channels of it exist, hence the unique_ptr.
class Client {
public:
    // One attempt. Fails with kind network (not reachable, not ready yet), auth (our key is refused), or remote
    // (it shows another host key: never retried).
    static Result<std::unique_ptr<Client>> connect(const Target& target, Deadline deadline);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // Repeats a non-blocking libssh2 call until it has an answer. LIBSSH2_ERROR_TIMEOUT: the deadline passed
    // or the user interrupted.
    template <class Call>
    long finish(Call&& call, Deadline deadline) {
        for (;;) {
            long answer = call();
            if (answer != LIBSSH2_ERROR_EAGAIN) return answer;
            if (!wire_.wait(std::min(deadline, Clock::now() + silence_look))) {
                if (interrupt::interrupted() || Clock::now() >= deadline || !listened()) return LIBSSH2_ERROR_TIMEOUT;
            }
        }
    }

    // Whoever waits calls both now and then. keep_alive() asks a machine that says nothing to say something; the answer is
    // when to call it again. listened() compares its silence with `silence`: false when it is given up for dead.
    std::chrono::seconds keep_alive();
    bool listened();
    // Hears that the machine has been silent for that long, and once it answers again, zero.
    std::function<void(std::chrono::milliseconds)> on_silence = {};
    SilenceLimits silence = {};
    bool lost() const { return lost_; }
    // Lost, or ended by the machine, as the last failure() tells: a new connection may do.
    bool broken() const { return broken_; }
    Companion* companion = nullptr;  // its owner's, who takes it away before it goes

    // From now on the machine may open channels to the user's SSH agent. `opened` hears each in the middle of a call of
    // libssh2's, in which it may not be used yet, and owns it. An Error where libssh2 is too old.
    Result<> take_agent_channels(std::function<void(LIBSSH2_CHANNEL*)> opened);
    std::function<void(LIBSSH2_CHANNEL*)> on_agent_channel = {};

    // The last failure as an Error; `doing` completes "tnr lost … while ".
    Error failure(const std::string& doing, long code);

    // The key that the machine has shown, as a public line.
    std::string host_key() const;

    LIBSSH2_SESSION* session() { return session_; }
    Wire& wire() { return wire_; }
    const Target& target() const { return target_; }

private:
    static constexpr std::chrono::milliseconds silence_look{1000};  // how often finish() looks

    Client(Target target, UniqueFd socket);
    Result<> handshake(Deadline deadline);
    Result<> check_host_key();
    Result<> authenticate(Deadline deadline);

    Target target_;
    Wire wire_;  // outlives session_: freeing a session still calls into it
    LIBSSH2_SESSION* session_ = nullptr;
    bool told_ = false, lost_ = false, broken_ = false;
};

// connect() again and again until the machine answers, the deadline passes, or the user interrupts. Authentication
// is retried as well: while cloud-init still works, sshd is up before our user exists. Another host key is final, also on a
// machine made from a copy of another: cloud-init replaces the keys before systemd may start sshd.
// `waiting` hears each failure; its own error ends the waiting. A refusal that lasts for `auth_patience` is final.
Result<std::unique_ptr<Client>> connect_when_ready(const Target& target, Deadline deadline,
                                                   const std::function<Result<>(const Error&)>& waiting = {},
                                                   std::chrono::milliseconds auth_patience = auth_patience_new);

}  // namespace tnr::ssh
