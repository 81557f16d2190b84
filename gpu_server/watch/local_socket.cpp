// See local_socket.hpp.
#include "gpu_server/watch/local_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace tnr::watch {
namespace {

constexpr int seconds_max = 5;
constexpr size_t answer_bytes_max = size_t{64} << 20;  // 8,000 GPUs' states are 4 MiB

Error failure(const std::string& doing) {
    return {Error::Kind::internal, doing + ": " + std::strerror(errno)};
}

// The kernel takes 107 bytes of path, and folders may be deeper: it is named by way of the folder's descriptor.
struct Place {
    explicit Place(const std::string& path) {
        const std::filesystem::path whole(path);
        folder = UniqueFd(open(whole.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        address.sun_family = AF_UNIX;
        const auto name = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + whole.filename().string();
        name.copy(address.sun_path, sizeof address.sun_path - 1);
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
    UniqueFd folder;
    sockaddr_un address{};
};

}  // namespace

Result<UniqueFd> listen_locally(const std::string& path, int backlog) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Place place(path);
    unlink(path.c_str());
    if (!socket || bind(socket.get(), place.get(), sizeof place.address) != 0 || listen(socket.get(), backlog) != 0)
        return failure("cannot listen at " + path);
    chmod(path.c_str(), 0600);
    return socket;
}

Result<pid_t> process_behind(const std::string& path) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Place place(path);
    ucred peer{};
    socklen_t size = sizeof peer;
    if (connect(socket.get(), place.get(), sizeof place.address) != 0 ||
        getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 1)
        return failure(path);
    return peer.pid;
}

Result<std::string> ask_locally(const std::string& path, const std::string& what) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{seconds_max, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    Place place(path);
    if (connect(socket.get(), place.get(), sizeof place.address) != 0) return failure(path);
    const std::string request = "GET " + what + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
        return failure(path);
    std::string answer;
    char piece[65536];
    ssize_t size = 0;
    while (answer.size() < answer_bytes_max && (size = recv(socket.get(), piece, sizeof piece, 0)) > 0)
        answer.append(piece, static_cast<size_t>(size));
    if (size < 0) return failure(path);
    const auto body = answer.find("\r\n\r\n");
    if (body == std::string::npos) return Error{Error::Kind::internal, path + " gave no answer"};
    if (!answer.starts_with("HTTP/1.1 200 "))
        return Error{Error::Kind::internal,
                     path + " says: " + answer.substr(body + 4, answer.find('\n', body + 4) - body - 4)};
    return answer.substr(body + 4);
}

}  // namespace tnr::watch
