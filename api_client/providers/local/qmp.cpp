// One connection per command: greeting, capabilities, the command, its answer; events between them are skipped.
#include "api_client/providers/local/qmp.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "api_client/base/handles.hpp"

namespace tnr::local {
namespace {

using nlohmann::json;

constexpr timeval answer_limit{5, 0};                // QEMU answers in microseconds unless it hangs
constexpr size_t line_bytes_max = size_t{64} << 10;  // far above any answer to what we ask

Error silent() {
    return Error{Error::Kind::internal, "QEMU does not answer on its control socket"};
}

// Socket addresses end at 108 bytes, state folders need not: the kernel resolves the folder through a descriptor.
UniqueFd open_socket(const std::filesystem::path& folder) {
    const UniqueFd opened(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = "/proc/self/fd/" + std::to_string(opened.get()) + "/" + qmp_socket_name;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    if (!opened || !fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &answer_limit, sizeof answer_limit);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &answer_limit, sizeof answer_limit);
    return fd;
}

Result<std::string> read_line(int fd) {
    std::string line;
    for (char c = 0; line.size() < line_bytes_max; line += c) {
        if (::recv(fd, &c, 1, 0) != 1) return silent();
        if (c == '\n') return line;
    }
    return silent();
}

Result<> exchange(int fd, const std::string& command, const std::string& arguments) {
    const std::string line = "{\"execute\": \"" + command + "\", \"arguments\": " + arguments + "}\n";
    if (::send(fd, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) return silent();
    for (;;) {
        auto line = read_line(fd);
        if (!line) return line.error();
        if (auto answer = parse_qmp_answer(*line, command)) return *answer;
    }
}

}  // namespace

std::optional<Result<>> parse_qmp_answer(const std::string& line, const std::string& command) {
    const json answer = json::parse(line, nullptr, false);  // what is not JSON becomes a value without fields
    if (answer.contains("return")) return Result<>{Ok{}};
    const auto error = answer.find("error");
    if (error == answer.end()) return std::nullopt;
    const bool told = error->is_object() && error->contains("desc") && (*error)["desc"].is_string();
    const std::string why = told ? (*error)["desc"].get<std::string>() : "it does not say why";
    return Result<>{Error{Error::Kind::internal, "QEMU refused " + command + ": " + why}};
}

Result<> qmp_command(const std::filesystem::path& machine_folder, const std::string& command,
                     const std::string& arguments) {
    const UniqueFd fd = open_socket(machine_folder);
    if (!fd) return silent();
    if (auto greeting = read_line(fd.get()); !greeting) return greeting.error();
    if (auto ready = exchange(fd.get(), "qmp_capabilities", "{}"); !ready) return ready;
    return exchange(fd.get(), command, arguments);
}

}  // namespace tnr::local
