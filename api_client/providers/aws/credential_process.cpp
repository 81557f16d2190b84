// https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html
#include "api_client/providers/aws/credential_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "api_client/base/handles.hpp"
#include "api_client/http/json_api.hpp"
#include "api_client/http/parse.hpp"

extern char** environ;

namespace tnr::aws {
namespace {

constexpr int seconds_max = 60;  // as AWS's SDKs; it may ask for a touch of a security key
constexpr int look_ms = 100;     // how soon the user's Ctrl-C is seen
constexpr size_t reply_bytes_max = 64 << 10;

struct Process {
    pid_t pid = -1;
    UniqueFd output;
};

Result<Process> begin(const std::string& command) {
    int ends[2];
    if (::pipe(ends) != 0) return Error{Error::Kind::internal, "no pipe can be made"};
    UniqueFd reads{ends[0]}, writes{ends[1]};
    for (int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, writes.get(), 1);
    const char* words[] = {"sh", "-c", command.c_str(), nullptr};
    Process process;
    const int failed =
        ::posix_spawn(&process.pid, "/bin/sh", &actions, nullptr, const_cast<char* const*>(words), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return Error{Error::Kind::internal, "/bin/sh cannot be started"};
    process.output = std::move(reads);
    return process;
}

// All that it prints; nothing when it took too long, printed too much, or the user interrupted.
std::optional<std::string> output_of(const Process& process, const CloudWorld& world) {
    std::string text;
    for (int waited_ms = 0; waited_ms < seconds_max * 1000;) {
        pollfd readable{process.output.get(), POLLIN, 0};
        if (::poll(&readable, 1, look_ms) <= 0) {
            if (world.http.pause && !world.http.pause(0)) return std::nullopt;
            waited_ms += look_ms;
            continue;
        }
        char piece[4096];
        const ssize_t got = ::read(process.output.get(), piece, sizeof piece);
        if (got <= 0) return text;
        text.append(piece, static_cast<size_t>(got));
        if (text.size() > reply_bytes_max) return std::nullopt;
    }
    return std::nullopt;
}

}  // namespace

Result<Keys> keys_from_process(const std::string& command, const CloudWorld& world) {
    auto process = begin(command);
    if (!process) return process.error();
    auto text = output_of(*process, world);
    if (!text) ::kill(process->pid, SIGTERM);
    int status = 0;
    while (::waitpid(process->pid, &status, 0) < 0 && errno == EINTR) {
    }
    auto failed = [](const std::string& why) {
        return Error{Error::Kind::auth, "the credential_process of ~/.aws/config " + why,
                     "try by hand what `aws configure get credential_process` shows"};
    };
    if (!text && world.http.pause && !world.http.pause(0)) return Error{Error::Kind::internal, "interrupted"};
    if (!text) return failed("did not end within " + std::to_string(seconds_max) + " s, or printed far too much");
    if (!WIFEXITED(status)) return failed("was killed");
    if (WEXITSTATUS(status) != 0) return failed("ended with code " + std::to_string(WEXITSTATUS(status)));
    const http::Json reply = http::parse_json(*text);
    auto field = [&](const char* name) {
        const http::Json value = reply.is_object() ? reply.value(name, http::Json()) : http::Json();
        return value.is_string() ? value.get<std::string>() : std::string();
    };
    if (!reply.is_object() || reply.value("Version", http::Json()) != 1 || field("AccessKeyId").empty() ||
        field("SecretAccessKey").empty())
        return failed("did not print keys: JSON with Version 1, AccessKeyId and SecretAccessKey");
    if (const std::string expires = field("Expiration"); !expires.empty() && expires < world.now())
        return failed("printed keys that expired at " + expires);
    return Keys{field("AccessKeyId"), field("SecretAccessKey"), field("SessionToken")};
}

}  // namespace tnr::aws
