// Stands in for `tnr-gpu-server worker` (and its helpers) without any driver: says what a worker says, does as told.
// What it shall do wrong comes in the environment, which the supervisor hands on for names that begin with TNR_WORKER_.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "gpu_client/protocol/device_description.hpp"
#include "gpu_server/supervisor/child.hpp"

using nlohmann::json;
using tnr::server::child_control_fd;

static std::string environment(const char* name) {
    const char* value = getenv(name);
    return value ? value : "";
}

// GPU number i of TNR_WORKER_FAKE_GPUS has the UUID iiii…
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
    if (how == "nonsense") (void)!write(child_control_fd, "{\"ready\":", 9);
    if (how == "fail") tnr::server::send_message(child_control_fd, {{"failed", "no such GPU"}}), _exit(1);
}

static int worker() {
    note("worker " + environment("CUDA_VISIBLE_DEVICES") + " secrets" + environment("TNR_API_TOKEN"));
    act(environment("TNR_WORKER_FAKE_START"));
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
            int client = accept(4, nullptr, nullptr);
            char byte = 0;
            for (uint64_t ticket = 1; read(client, &byte, 1) == 1; ++ticket) {
                if (byte == 'x') abort();
                tnr::server::send_message(
                    child_control_fd, {{"grant", {{"device", 0}, {"bytes", uint64_t{64} << 20}, {"ticket", ticket}}}});
                auto granted = receive();
                while (granted.contains("shared")) granted = receive();  // word of other sessions
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
    for (size_t i = 0; i < count; ++i)
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
    tnr::server::send_message(child_control_fd, {{"wiped", 1 << 20}});
    return 0;
}
