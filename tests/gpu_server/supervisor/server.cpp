// See server.hpp.
#include "server.hpp"

#include "fake_worker.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include "tests/support/catch.hpp"
#include "tests/support/processes.hpp"

namespace tnr::test {

namespace fs = std::filesystem;

// Generous: a machine that builds at the same time is slow, and only a failing test waits this long.
static constexpr int patience_ms = 20'000;

Folder::Folder() {
    std::string name = (fs::temp_directory_path() / "tnr-server-XXXXXX").string();
    path = mkdtemp(name.data());
}
Folder::~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
}

static std::string contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

static pid_t start(const std::vector<std::string>& arguments, const std::vector<std::string>& settings, int out,
                   const std::string& err, rlim_t descriptors_max = 0) {
    std::vector<char*> command{const_cast<char*>(TNR_GPU_SERVER)};
    for (auto& argument : arguments) command.push_back(const_cast<char*>(argument.c_str()));
    command.push_back(nullptr);
    pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
    setenv("TNR_API_TOKEN", "=leaked", 1);  // workers must not see it
    rlimit descriptors{descriptors_max, descriptors_max};
    if (descriptors_max > 0) setrlimit(RLIMIT_NOFILE, &descriptors);
    for (auto& setting : settings) putenv(const_cast<char*>(setting.c_str()));
    execv(TNR_GPU_SERVER, command.data());
    _exit(127);
}

static int exit_code(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Output run_server_command(const std::vector<std::string>& arguments) {
    Folder folder;
    std::string out = folder.path + "/out", err = folder.path + "/err";
    UniqueFd file(open(out.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    pid_t pid = start(arguments, {}, file.get(), err);
    int status = 0;
    waitpid(pid, &status, 0);
    return {exit_code(status), contents(out), contents(err)};
}

Server::Server(std::vector<std::string> arguments, std::vector<std::string> settings, std::shared_ptr<Folder> where,
               rlim_t descriptors_max)
    : folder(std::move(where)) {
    arguments.insert(arguments.begin(), "serve");
    for (auto& more : {std::string("--listen"), std::string("tcp://127.0.0.1:0"), std::string("--state"),
                       folder->path + "/state", std::string("--worker-program"), std::string(TNR_FAKE_WORKER)})
        arguments.push_back(more);
    settings.push_back("TNR_WORKER_FAKE_NOTES=" + folder->path + "/notes");
    std::ofstream(folder->path + "/notes").flush();
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    out_.reset(ends[0]);
    UniqueFd theirs(ends[1]);
    pid = start(arguments, settings, theirs.get(), folder->path + "/log", descriptors_max);
    theirs.reset();

    std::string line;
    char c = 0;
    while (::read(out_.get(), &c, 1) == 1 && c != '\n') line += c;
    const std::string before = "listening on ";
    if (line.starts_with(before)) address = line.substr(before.size());
}

Server::~Server() {
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    if (!std::uncaught_exceptions()) return;
    WARN("the server said:\n" + log());
}

std::string Server::log() const {
    return contents(folder->path + "/log");
}
std::string Server::notes() const {
    return contents(folder->path + "/notes");
}

// Woken by the kernel whenever the file grows.
static bool wait_for(const std::string& path, const std::string& text, int times) {
    UniqueFd watch(inotify_init1(IN_CLOEXEC));
    inotify_add_watch(watch.get(), path.c_str(), IN_MODIFY);
    auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
    while (std::chrono::steady_clock::now() < deadline) {
        auto have = contents(path);
        int found = 0;
        for (size_t at = have.find(text); at != std::string::npos; at = have.find(text, at + 1)) ++found;
        if (found >= times) return true;
        pollfd item{watch.get(), POLLIN, 0};
        poll(&item, 1, 1000);
        char events[4096];
        if (item.revents) (void)!::read(watch.get(), events, sizeof events);
    }
    return false;
}

bool Server::wait_for_log(const std::string& text, int times) const {
    return wait_for(folder->path + "/log", text, times);
}
bool Server::wait_for_note(const std::string& text, int times) const {
    return wait_for(folder->path + "/notes", text, times);
}
void Server::signal(int number) const {
    send_signal(pid, number);
}
int Server::wait_for_exit() {
    int status = 0;
    waitpid(pid, &status, 0);
    pid = -1;
    return exit_code(status);
}

std::unique_ptr<control::Client> client_of(const Server& server, const wire::ClientKeys& keys) {
    auto client = control::Client::open(server.address, keys);
    REQUIRE(client);
    return std::move(*client);
}

void sign_in(zmq::socket_t& socket, const wire::ClientKeys& keys) {
    if (keys.plain()) return;
    socket.set(zmq::sockopt::curve_serverkey, keys.server_public);
    socket.set(zmq::sockopt::curve_publickey, keys.own.public_key);
    socket.set(zmq::sockopt::curve_secretkey, keys.own.secret_key);
}

json ask(control::Client& client, json request) {
    auto answer = client.request(std::move(request), std::chrono::milliseconds(patience_ms));
    if (!answer) return {{"error", control::to_json(answer.error())}};
    return *answer;
}

json session_request(const std::string& machine, const std::string& gpu, int count) {
    json request = {{"op", "session"}, {"gpu", gpu}, {"count", count}, {"pid", 42}, {"process", "train"}};
    if (!machine.empty()) request["machine"] = machine;
    return request;
}

int free_gpus(const Server& server) {
    auto types = ask(*client_of(server), {{"op", "types"}})["types"];
    return types.empty() ? 0 : types[0]["free"].get<int>();
}

bool wait_for_free_gpus(const Server& server, int wanted) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < until) {
        if (free_gpus(server) == wanted) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
}

UniqueFd knock_at(const std::string& endpoint) {
    auto colon = endpoint.rfind(':');
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(colon + 1))));
    inet_pton(AF_INET, endpoint.substr(6, colon - 6).c_str(), &address.sin_addr);
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return socket;
}

UniqueFd connect_to(const std::string& told) {
    auto socket = knock_at(control::worker_endpoint(told, "tcp://127.0.0.1:0"));
    REQUIRE(::send(socket.get(), fake_worker_greeting.data(), fake_worker_greeting.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(fake_worker_greeting.size()));
    return socket;
}

wire::ClientKeys enroll(const Server& server, const std::string& name) {
    auto output = run_server_command({"user", "add", name, "--state", server.folder->path + "/state"});
    INFO(output.out << output.err);
    REQUIRE(output.code == 0);
    std::istringstream words(output.out);
    std::string echo, secret, pipe, tnr, login, pool, address, server_key;
    words >> echo >> secret >> pipe >> tnr >> login >> pool >> address >> server_key;
    CHECK(echo + " " + pipe + " " + tnr + " " + login + " " + pool == "echo | tnr login pool");
    CHECK(address == server.address);
    auto unquoted = [](const std::string& text) { return text.substr(1, text.size() - 2); };
    wire::ClientKeys keys;
    keys.server_public = unquoted(server_key);
    keys.own = {wire::public_of(unquoted(secret)), unquoted(secret)};
    CHECK(wire::looks_like_key(keys.server_public));
    REQUIRE(wire::looks_like_key(keys.own.public_key));
    return keys;
}

}  // namespace tnr::test
