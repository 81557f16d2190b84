// Ports of loopback for servers of a test that cannot be told to take one of the kernel's choice. Those of ports.py: what
// the kernel chooses may be another's connection before the server listens there.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "api_client/base/handles.hpp"

namespace tnr::test {

// `count` ports in a row that nobody uses, ours for as long as this lives.
class Ports {
public:
    explicit Ports(int count) {
        for (first_ = 21000; first_ < 32000; first_ += block)
            if (count <= block && take() && are_free(count)) return;
        throw std::runtime_error("no free ports");
    }
    int first() const { return first_; }

private:
    static constexpr int block = 64;  // ports that are kept together, whoever needs how many of them

    // A name that only one socket can have, in the network's namespace, as ports are.
    bool take() {
        name_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const std::string name = '\0' + ("tnr-test-ports-" + std::to_string(first_));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::copy(name.begin(), name.end(), address.sun_path);
        const auto length = static_cast<socklen_t>(sizeof address.sun_family + name.size());
        return ::bind(name_.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
    }
    bool are_free(int count) const {
        for (int port = first_; port < first_ + count; ++port) {
            const UniqueFd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            sockaddr_in address{};
            address.sin_family = AF_INET;
            address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            address.sin_port = htons(static_cast<uint16_t>(port));
            if (::bind(one.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return false;
        }
        return true;
    }

    UniqueFd name_;
    int first_ = 0;
};

}  // namespace tnr::test
