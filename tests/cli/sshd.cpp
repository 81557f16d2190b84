// `sshd -i` behind a listener of our own.
#include "tests/cli/sshd.hpp"

#include <arpa/inet.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include "tests/support/catch.hpp"

namespace tnr::test {

Sshd::Sshd(const std::string& more_configuration, const std::string& world) : world_(world) {
    host_key_ = *ssh::generate_key();
    user_key_ = *ssh::generate_key();
    write_text(folder_ / "host_key", ssh::private_file(host_key_, "host"));
    REQUIRE(::chmod((folder_ / "host_key").c_str(), 0600) == 0);
    write_text(folder_ / "authorized_keys", ssh::public_line(user_key_, "user") + "\n");
    REQUIRE(::chmod(folder_.path().c_str(), 0711) == 0);  // sshd reads a user's authorised keys as that user
    write_text(folder_ / "config",
               "HostKey " + (folder_ / "host_key") + "\nAuthorizedKeysFile " + (folder_ / "authorized_keys") +
                   "\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
                   "Subsystem sftp internal-sftp\nAcceptEnv LANG LC_*\nPrintMotd no\nPrintLastLog no\n" +
                   more_configuration);
    if (::geteuid() == 0) ::mkdir("/run/sshd", 0755);  // where root's sshd puts its unprivileged half

    listener_ = UniqueFd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), 16) == 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
}

void Sshd::accept_all() {
    while (true) {
        UniqueFd connection{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        if (!connection || leaving_) return;
        ++accepted_;
        // The connection is its standard input and output, on which the script must not speak.
        std::string config = folder_ / "config", program = world_.empty() ? "/usr/sbin/sshd" : "/usr/bin/unshare";
        std::string script = "wrap=\n{\n" + world_ + "\n} </dev/null >&2\nexec $wrap /usr/sbin/sshd -i -f " + config;
        std::vector<const char*> arguments = {"sshd", "-i", "-f", config.c_str(), nullptr};
        if (!world_.empty())
            arguments = {"unshare", "--mount", "--propagation", "private", "sh", "-ec", script.c_str(), nullptr};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, connection.get(), 0);
        posix_spawn_file_actions_adddup2(&actions, connection.get(), 1);
        pid_t child = 0;
        if (::posix_spawn(&child, program.c_str(), &actions, nullptr, const_cast<char**>(arguments.data()), environ) ==
            0)
            children_.push_back(child);
        posix_spawn_file_actions_destroy(&actions);
    }
}

void Sshd::kill_connections() {
    for (int child : children_) ::kill(child, SIGKILL);
}

// sshd may have a child that does the talking.
void Sshd::signal_all(int signal) {
    for (int child : children_) {
        std::ifstream list{"/proc/" + std::to_string(child) + "/task/" + std::to_string(child) + "/children"};
        for (int grandchild = 0; list >> grandchild;) ::kill(grandchild, signal);
        ::kill(child, signal);
    }
}

void Sshd::freeze() {
    signal_all(SIGSTOP);
}

void Sshd::thaw() {
    signal_all(SIGCONT);
}

Sshd::~Sshd() {
    leaving_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (int child : children_) {
        ::kill(child, SIGTERM);
        ::kill(child, SIGCONT);  // it may be frozen
        ::waitpid(child, nullptr, 0);
    }
}

ssh::Target Sshd::target() const {
    return {"demo",   "127.0.0.1", port_, ::getpwuid(::geteuid())->pw_name, ssh::public_line(host_key_, "host"),
            user_key_};
}

}  // namespace tnr::test
