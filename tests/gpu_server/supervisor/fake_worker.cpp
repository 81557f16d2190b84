// Stands in for `tnr-gpu-server worker` (and its helpers) without any driver: says what a worker says, does as told.
// What it shall do wrong comes in the environment, which the supervisor hands on for names that begin with TNR_WORKER_.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "gpu_client/protocol/device_description.hpp"
#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/worker/sandbox.hpp"
#include "tests/gpu_server/supervisor/fake_worker.hpp"

using nlohmann::json;
using tnr::server::child_control_fd;

static std::string environment(const char* name) {
    const char* value = getenv(name);
    return value ? value : "";
}

// GPU number i of TNR_WORKER_FAKE_GPUS has the UUID iiii…; where TNR_WORKER_FAKE_FIRST says f, they begin with ffff…
static std::string uuid(size_t i) {
    return std::string(32, static_cast<char>('0' + i));
}

static json describe(size_t i) {
    tnr::DeviceDescription device;
    device.name = "Fake GPU";
    device.uuid = uuid(i);
    device.pci_bus = static_cast<int>(i) + 1;
    device.memory_bytes = uint64_t{1} << 30;
    device.driver_version = 13000;
    device.granularity_bytes = 2 << 20;
    device.range_address = uint64_t{1} << 40;
    device.range_bytes = uint64_t{1} << 32;
    return to_json(device);
}

static json receive() {
    pollfd item{child_control_fd, POLLIN, 0};
    poll(&item, 1, -1);
    auto received = tnr::server::receive_message(child_control_fd);
    if (received.what != tnr::server::Received::What::message) _exit(0);
    return json::parse(received.text);
}

// One line per event, appended by all fakes of a test.
static void note(const std::string& what) {
    std::string line = what + "\n";
    int file = open(environment("TNR_WORKER_FAKE_NOTES").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)!write(file, line.data(), line.size());
    close(file);
}

static void act(const std::string& how) {
    if (how == "crash") abort();
    if (how == "exit") _exit(3);
    if (how == "silence") pause();
    if (how == "chatter") {
        (void)!ftruncate(STDERR_FILENO, 0);
        for (int i = 0; i < 20'000; ++i) fprintf(stderr, "2026-01-01T00:00:00.000Z error: forged %d\n", i);
        _exit(1);
    }
    if (how == "unconnected, late") usleep(400'000);
    if (how.starts_with("unconnected"))
        tnr::server::send_message(child_control_fd, {{"ended", "the client never connected"}}), _exit(0);
    if (how == "nonsense") (void)!write(child_control_fd, "{\"ready\":", 9);
    if (how == "fail") tnr::server::send_message(child_control_fd, {{"failed", "no such GPU"}}), _exit(1);
}

// ---- code images: the client says what to do in three bytes: '#', a letter, the image's number

static constexpr size_t image_bytes = 300'000;
static std::string hash_of_image(char number) {
    return std::string(64, number);
}

static int image_file(char number, size_t bytes, bool sealed) {
    int file = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    std::string content(bytes, number);
    (void)!write(file, content.data(), content.size());
    if (sealed) fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    return file;
}

static void keep_image(char number, size_t told_bytes, bool sealed = true, size_t bytes = image_bytes) {
    int file = image_file(number, bytes, sealed);
    tnr::server::send_message(child_control_fd,
                              {{"keep_image", {{"hash", hash_of_image(number)}, {"bytes", told_bytes}}}}, file);
    close(file);
}

// Of other sessions, or of the node's lease: not what was asked for.
static bool by_the_way(const json& message) {
    bool wanted = message.contains("memory_wanted");
    if (wanted) {
        const auto device = message["memory_wanted"]["device"];
        tnr::server::send_message(child_control_fd, {{"memory_back", {{"device", device}, {"bytes", 0}}}});
    }
    return wanted || message.contains("shared") || message.contains("lease_until_ms");
}

// 0: not there, 1: there, 2: there, and I could change it.
static uint64_t find_image(char number) {
    tnr::server::send_message(
        child_control_fd, {{"find_image", {{"hash", hash_of_image(number)}, {"bytes", image_bytes}, {"ticket", 7}}}});
    pollfd item{child_control_fd, POLLIN, 0};
    tnr::server::Received received;
    do {
        poll(&item, 1, -1);
        received = tnr::server::receive_message(child_control_fd);
    } while (by_the_way(json::parse(received.text)));
    if (json::parse(received.text)["image"]["ticket"] != 7) abort();
    if (!received.file) return 0;
    std::string content(image_bytes, '\0');
    if (pread(received.file.get(), content.data(), content.size(), 0) != static_cast<ssize_t>(image_bytes)) abort();
    if (content != std::string(image_bytes, number)) abort();
    bool changed = pwrite(received.file.get(), "!", 1, 0) == 1 || ftruncate(received.file.get(), 1) == 0;
    return changed ? 2 : 1;
}

// True: `first` was about images.
static bool image_command(int client, char first) {
    if (first != '#') return false;
    char letter = 0, number = 0;
    if (read(client, &letter, 1) != 1 || read(client, &number, 1) != 1) return true;
    if (letter == 'k') keep_image(number, image_bytes);
    if (letter == 'u') keep_image(number, image_bytes, false);
    if (letter == 'l') keep_image(number, image_bytes + 1);    // says more than there is
    if (letter == 's') keep_image(number, 10, true, 10);       // too small to be worth a file
    if (letter == 'm') keep_image(number, uint64_t{1} << 40);  // too large for anything
    if (letter == 'd')
        tnr::server::send_message(child_control_fd, {{"damaged_image", {{"hash", hash_of_image(number)}}}});
    if (letter == 'n')
        tnr::server::send_message(child_control_fd,
                                  {{"find_image", {{"hash", "../../../x"}, {"bytes", 1}, {"ticket", 1}}}});
    if (letter != 'f') return true;
    uint64_t found = find_image(number);
    (void)!write(client, &found, sizeof found);
    return true;
}

// ---- descriptors that are hard to close: the client says '!' and a letter

// Closing it takes a minute: the client reads none of what is on its way.
static int lingering(int client) {
    static const std::string piece(1 << 16, 'x');
    while (send(client, piece.data(), piece.size(), MSG_DONTWAIT) > 0) {
    }
    linger for_long{1, 60};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &for_long, sizeof for_long);
    return client;
}

// A local socket in whose queue the descriptor lies.
static int wrapped(int file) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) abort();
    tnr::server::send_message(ends[0], {{"here", "you are"}}, file);
    close(ends[0]);
    return ends[1];
}

static void send_two(int one, int other) {
    char byte = '{';
    int both[] = {one, other};
    iovec content{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof both)] = {};
    msghdr message{nullptr, 0, &content, 1, control, sizeof control, 0};
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof both);
    memcpy(CMSG_DATA(header), both, sizeof both);
    (void)!sendmsg(child_control_fd, &message, 0);
}

// True: `first` was about them. The worker has none of them any more when the supervisor gets to closing them.
static bool trap_command(int client, char first) {
    if (first != '!') return false;
    char letter = 0;
    if (read(client, &letter, 1) != 1) return true;
    json lend{
        {"exchange", {{"lend", std::string(32, 'a')}, {"kind", "memory"}, {"device", 0}, {"bytes", 1}, {"ticket", 1}}}};
    int trap = lingering(client);
    if (letter == 'w') trap = wrapped(trap);
    if (letter == 'n') (void)!write(child_control_fd, "{", 1);   // it stays in the queue behind what makes no sense
    if (letter == 'e') (void)!send(child_control_fd, "", 0, 0);  // likewise, behind what looks like the end
    if (letter == '2')
        send_two(trap, image_file('a', 1, false));
    else
        tnr::server::send_message(child_control_fd, lend, trap);
    close(trap);
    close(client);
    note("has sent a trap");
    pause();
    return true;
}

// As one that its tenant has taken over: as much as it can, for two seconds, of what needs no answer.
static void flood() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    for (uint64_t sent = 0; std::chrono::steady_clock::now() < until; ++sent) {
        tnr::server::send_message(child_control_fd, {{"away", sent % 2 == 0}});
        tnr::server::send_message(child_control_fd, {{"damaged_image", {{"hash", hash_of_image('d')}}}});
        tnr::server::send_message(child_control_fd, {{"moved", {{"up", sent}, {"down", sent}}}});
    }
    note("has flooded");
}

// Counts what the supervisor takes of what it says, as quickly as it can.
static void say_much() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    int said = 0;
    for (; std::chrono::steady_clock::now() < until; ++said)
        tnr::server::send_message(child_control_fd, {{"away", said % 2 == 0}});
    note("has said " + std::to_string(said) + ";");
}

// Memory that no process has mapped.
static void hold_in_a_file(size_t bytes) {
    int file = memfd_create("held", MFD_CLOEXEC);
    const std::string piece(1 << 20, 'f');
    for (size_t done = 0; done < bytes; done += piece.size()) (void)!write(file, piece.data(), piece.size());
    note("holds a file");
}

// From '{' to the end of the line: what a worker says that its tenant has taken over.
static bool said_as_told(int client, char first) {
    if (first != '{') return false;
    std::string text(1, first);
    for (char byte; read(client, &byte, 1) == 1 && byte != '\n';) text += byte;
    (void)!send(child_control_fd, text.data(), text.size(), 0);
    return true;
}

// What a session's traffic comes to; and that its client is away, or back.
static bool said_about_client(char byte) {
    if (byte == 'F') return flood(), true;
    if (byte == 'S') return say_much(), true;
    if (byte == 'H') return hold_in_a_file(100'000'000), true;
    json message;
    if (byte == 'v') message["moved"] = {{"up", 1000}, {"down", 10}, {"busy_ms", 700}};
    if (byte == 'a' || byte == 'r') message["away"] = byte == 'a';
    if (byte == 'E') message["ended"] = "so it says";
    if (byte == 'L') message = {{"away", true}, {"and", std::string(5'000, 'x')}};
    if (message.is_null()) return false;
    tnr::server::send_message(child_control_fd, message);
    return true;
}

static int accept_client() {
    while (true) {
        int client = accept(4, nullptr, nullptr);
        char greeting[tnr::test::fake_worker_greeting.size()];
        timeval patience{1, 0};
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        auto said = recv(client, greeting, sizeof greeting, MSG_WAITALL);
        patience = {};
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (said > 0 && std::string_view(greeting, static_cast<size_t>(said)) == tnr::test::fake_worker_greeting)
            return client;
        close(client);
    }
}

static int worker() {
    tnr::worker::end_on_signals();
    note("worker " + environment("CUDA_VISIBLE_DEVICES") + " secrets" + environment("TNR_API_TOKEN"));
    note("pid " + std::filesystem::read_symlink("/proc/self").string());  // the host's number
    act(environment("TNR_WORKER_FAKE_START"));
    auto folder = environment("TNR_WORKER_FAKE_NOTES").substr(0, environment("TNR_WORKER_FAKE_NOTES").rfind('/'));
    if (access((folder + "/fault").c_str(), F_OK) == 0) act("crash");
    json devices = json::array();
    auto visible = environment("CUDA_VISIBLE_DEVICES");  // GPU-iiiiiiii-…,GPU-…
    for (size_t at = 0; at < visible.size(); at += 41)
        devices.push_back(describe(static_cast<size_t>(visible[at + 4] - '0')));
    tnr::server::send_message(child_control_fd, {{"ready", true}, {"devices", devices}});
    while (true) {
        auto message = receive();
        if (message.contains("serve")) {
            note("serve " + visible + " " + message.dump());
            act(environment("TNR_WORKER_FAKE_SERVE"));
            // The client of these tests says nothing but bytes to repeat as wishes: see supervisor_test.cpp.
            int client = accept_client();
            tnr::server::send_message(child_control_fd, {{"connected", true}});
            char byte = 0;
            for (uint64_t ticket = 1; read(client, &byte, 1) == 1; ++ticket) {
                if (byte == 'x') abort();
                if (byte == 'h') {  // holds 100 MB more of the host's memory
                    auto* held = new std::string(100'000'000, 'h');
                    note("holds " + std::to_string(held->size()));
                    continue;
                }
                if (image_command(client, byte) || trap_command(client, byte) || said_about_client(byte) ||
                    said_as_told(client, byte))
                    continue;
                tnr::server::send_message(
                    child_control_fd, {{"grant", {{"device", 0}, {"bytes", uint64_t{64} << 20}, {"ticket", ticket}}}});
                auto granted = receive();
                while (by_the_way(granted)) granted = receive();
                if (granted.contains("end")) break;
                uint64_t bytes = granted["granted"]["bytes"];
                (void)!write(client, &bytes, sizeof bytes);
            }
            tnr::server::send_message(child_control_fd, {{"ended", "its client has gone"}});
            if (environment("TNR_WORKER_FAKE_END") == "slow") {
                note("ends slowly");
                poll(nullptr, 0, 300);  // a real driver takes as long to let go of its memory
            }
            return 0;
        }
        if (message.contains("end")) return 0;
    }
}

static int probe() {
    json devices = json::array();
    size_t count = std::max(1, atoi(environment("TNR_WORKER_FAKE_GPUS").c_str()));
    auto first = static_cast<size_t>(atoi(environment("TNR_WORKER_FAKE_FIRST").c_str()));
    for (size_t i = first; i < first + count; ++i)
        devices.push_back({{"name", "Fake GPU"}, {"uuid", uuid(i)}, {"memory_bytes", uint64_t{1} << 30}});
    tnr::server::send_message(child_control_fd, {{"devices", devices}});
    return 0;
}

int main(int argc, char** argv) {
    std::string command = argc > 1 ? argv[1] : "";
    if (command == "worker") return worker();
    if (command == "probe-gpus") return probe();
    note("wipe " + environment("CUDA_VISIBLE_DEVICES"));
    if (environment("TNR_WORKER_FAKE_WIPE") == "fail")
        return tnr::server::send_message(child_control_fd, {{"failed", "bits are stuck"}}), 1;
    tnr::server::send_message(child_control_fd, {{"wiped", 1 << 20}, {"checked", 1 << 18}});
    return 0;
}
