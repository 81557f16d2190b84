// What the tests of this folder share: folders, files and ports of their own.
#pragma once

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/files.hpp"

namespace tnr::test {

// An environment variable for the life of the object; nullptr: unset.
class Environment {
public:
    Environment(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        value ? ::setenv(name, value, 1) : ::unsetenv(name);
    }
    ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

private:
    const char* name_;
    std::optional<std::string> before_;
};

inline sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
}

inline bool is_listening(int port) {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

inline UniqueFd listen_on(int port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    const int yes = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(fd.get(), 1) != 0)
        fd.reset();
    return fd;
}

}  // namespace tnr::test

// A failed REQUIRE(result) says what the error was.
template <class T>
struct Catch::StringMaker<tnr::Result<T>> {
    static std::string convert(const tnr::Result<T>& result) {
        return result ? "ok" : result.error().what + " (" + result.error().hint + ")";
    }
};
