// A real OpenSSH server for one test: its own host key, its own authorised key, a port from the kernel, and no
// state outside one temporary folder. It listens itself and starts `sshd -i` for each connection, so no port has to be
// guessed and nothing has to be waited for.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cli/ssh/client.hpp"
#include "tests/support/files.hpp"

namespace tnr::test {

class Sshd {
public:
    // `world`, a shell script, makes each connection's server run in a file system view of its own, which the script may
    // change as root: what a client finds there is another machine. It may set `wrap` to a command that runs the server.
    explicit Sshd(const std::string& more_configuration = "", const std::string& world = "");
    ~Sshd();
    // What a client that tnr set up would use.
    ssh::Target target() const;
    // Ends every connection at once, as a crash of the machine would.
    void kill_connections();
    // As a machine that hangs: connections stay open, and nothing answers. thaw() ends it.
    void freeze();
    void thaw();
    // Connections so far.
    int accepted() const { return accepted_; }

private:
    void accept_all();
    void signal_all(int signal);

    TemporaryFolder folder_;
    std::string world_;
    ssh::KeyPair host_key_, user_key_;
    UniqueFd listener_;
    int port_ = 0;
    std::atomic<bool> leaving_{false};
    std::atomic<int> accepted_{0};
    std::vector<int> children_;  // the acceptor's, until it has ended
    std::thread acceptor_;
};

}  // namespace tnr::test
