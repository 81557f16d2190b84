// Servers in Python, each for as long as its object lives.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"

namespace tnr::test {

// A script of this folder that prints `port N` and ends when its stdin does. Both are one socket.
class PythonServer {
public:
    explicit PythonServer(const std::string& script, const std::vector<std::string>& arguments = {}) {
        child_ = run(script, arguments, line_);
        read_port();
    }
    // A mock takes a second of processor time to read its cloud's description. So the first of each kind stays as it is
    // until the test program ends, and makes twins of itself, which nobody has asked anything yet (cloud_mock.py).
    static std::shared_ptr<PythonServer> twin(const std::string& script) {
        static std::map<std::string, UniqueFd> firsts;
        UniqueFd& first = firsts[script];
        if (!first) run(script, {"--twins"}, first);
        std::shared_ptr<PythonServer> made(new PythonServer());
        UniqueFd its;
        make_line(made->line_, its);
        send(first, its);
        its.reset();
        made->read_port();
        return made;
    }
    ~PythonServer() {
        ::shutdown(line_.get(), SHUT_WR);
        for (char c; ::read(line_.get(), &c, 1) > 0;) {
        }  // until it has gone
        if (child_ > 0) ::waitpid(child_, nullptr, 0);
    }
    PythonServer(const PythonServer&) = delete;
    PythonServer& operator=(const PythonServer&) = delete;

    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    int port() const { return port_; }

private:
    PythonServer() = default;

    static void make_line(UniqueFd& ours, UniqueFd& its) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
        ours.reset(ends[0]), its.reset(ends[1]);
    }

    static pid_t run(const std::string& script, const std::vector<std::string>& arguments, UniqueFd& line) {
        std::vector<std::string> words = {TNR_TEST_PYTHON, std::string(TNR_MOCKS) + "/" + script};
        words.insert(words.end(), arguments.begin(), arguments.end());
        std::vector<char*> argv;
        for (auto& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        UniqueFd its;
        make_line(line, its);
        pid_t child = ::fork();
        if (child == 0) {
            ::dup2(its.get(), 0);
            ::dup2(its.get(), 1);
            ::execv(argv[0], argv.data());
            ::_exit(127);
        }
        return child;
    }

    // One byte, and the descriptor beside it.
    static void send(const UniqueFd& to, const UniqueFd& descriptor) {
        char byte = 0, room[CMSG_SPACE(sizeof(int))] = {};
        iovec bytes{&byte, 1};
        msghdr message{};
        message.msg_iov = &bytes, message.msg_iovlen = 1;
        message.msg_control = room, message.msg_controllen = sizeof room;
        cmsghdr* beside = CMSG_FIRSTHDR(&message);
        beside->cmsg_level = SOL_SOCKET, beside->cmsg_type = SCM_RIGHTS, beside->cmsg_len = CMSG_LEN(sizeof(int));
        const int fd = descriptor.get();
        std::memcpy(CMSG_DATA(beside), &fd, sizeof fd);
        if (::sendmsg(to.get(), &message, MSG_NOSIGNAL) != 1) std::abort();
    }

    void read_port() {
        std::string said;
        for (char c; ::read(line_.get(), &c, 1) == 1 && c != '\n';) said += c;
        if (std::sscanf(said.c_str(), "port %d", &port_) != 1) std::abort();
    }

    pid_t child_ = -1;  // none: a twin, which is the first one's child
    UniqueFd line_;
    int port_ = 0;
};

}  // namespace tnr::test
