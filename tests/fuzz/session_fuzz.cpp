// Whole sessions of foreign records, by a worker's dispatcher on the emulated driver. Each input gets a process of its
// own, as each session does: a worker tears nothing down, the kernel does that.
//
// A finding is not only what the sanitizers say: every record that wants a reply must get one, with its own op, unless it
// waits for a device that nobody adds; and the session must end when the client says goodbye.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "gpu_client/protocol/ops.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"
#include "tests/fuzz/session_coverage.hpp"
#include "tests/fuzz/session_input.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

// All that a session of our size needs takes moments; kernels end by themselves, and host functions are answered.
constexpr auto session_takes = 30s;  // a hundred times what it takes: the machine may be busy with others

[[noreturn]] void found(const std::string& what) {
    std::fprintf(stderr, "session_fuzz: %s\n", what.c_str());
    std::abort();
}

// ---- in the session's process

// Grants what is asked, as long as there is any; takes what is lent, and knows of nobody else's.
void supervise(int control) {
    std::thread([control] {
        auto tell = [control](const nlohmann::json& message) {
            auto text = message.dump();
            (void)!::send(control, text.data(), text.size(), MSG_NOSIGNAL);
        };
        uint64_t left = uint64_t{48} << 20;
        std::string message(wire::control_bytes_max, '\0');
        while (true) {
            auto size = ::recv(control, message.data(), message.size(), 0);
            if (size <= 0) return;
            auto wish = nlohmann::json::parse(message.begin(), message.begin() + size);
            if (auto thing = wish.find("exchange"); thing != wish.end() && thing->contains("ticket"))
                tell({{"exchanged", {{"ticket", (*thing)["ticket"]}, {"ok", thing->contains("lend")}}}});
            if (!wish.contains("grant")) continue;
            auto bytes = wish["grant"]["bytes"].get<uint64_t>();
            if (bytes > left) bytes = 0;
            left -= bytes;
            tell({{"granted", {{"ticket", wish["grant"]["ticket"]}, {"bytes", bytes}}}});
        }
    }).detach();
}

int listening(uint16_t& port) {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd, 4) != 0) found("no socket");
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
    return fd;
}

class Client {
public:
    explicit Client(wire::Link& link) : link_(link), until_(Clock::now() + session_takes) {}

    void send(fuzz::SentBatch&& batch) {
        for (auto& [number, op] : batch.calls) waiting_[number] = op;
        goodbye_ |= batch.says_goodbye;
        link_.send(batch.frame, std::move(batch.bulk));
    }

    // Until everything is answered that must be, or the worker has been told goodbye.
    void wait_for_replies() {
        auto due = [](const auto& call) { return !may_wait_for_ever(call.second); };
        while (std::any_of(waiting_.begin(), waiting_.end(), due) && !goodbye_) receive();
    }

    void leave(const std::atomic<bool>& ended) {
        link_.send_record(wire::op_goodbye, {});
        while (!ended) receive();
    }

private:
    using Clock = std::chrono::steady_clock;

    // Until all devices are in a multicast object's team, as cuda.h says.
    static bool may_wait_for_ever(uint16_t op) { return op == wire::op_cuMulticastBindMem || op == wire::op_cuMemMap; }

    void receive() {
        wire::Batch batch;
        auto event = link_.receive(batch, 1ms);
        if (event == wire::Link::Event::malformed) found("the worker sent something that is no batch");
        if (event == wire::Link::Event::batch) {
            wire::RecordReader records(batch.records);
            for (wire::Record record; records.next(record);) take(record);
            link_.worked_off(batch.header.sequence);
        }
        if (Clock::now() < until_) return;
        if (waiting_.empty()) found("the session does not end");
        found("no reply to " + name(waiting_.begin()->first, waiting_.begin()->second));
    }

    static std::string name(uint64_t number, uint16_t op) {
        char text[64];
        std::snprintf(text, sizeof text, "record %d, op 0x%04x", static_cast<int>(number), op);
        return text;
    }

    void trace(uint16_t op, std::span<const std::byte> payload) const {
        std::string_view text{reinterpret_cast<const char*>(payload.data()), payload.size()};
        if (!traces_) return;
        if (op == wire::op_failed || op == wire::op_printed)
            std::fprintf(stderr, "     %s\n", std::string(text.substr(std::min<size_t>(10, text.size()))).c_str());
        else
            std::fprintf(stderr, "     op 0x%04x, %zu bytes\n", op, text.size());
    }

    void take(const wire::Record& record) {
        wire::Reader in(record.payload);
        auto first = in.get<uint64_t>();
        if (record.op == wire::op_run_host_function) {
            wire::Bytes payload;
            wire::Writer(payload).put(first);
            link_.send_record(wire::op_host_function_done, payload);
        }
        if (record.op >= wire::op_completed) return trace(record.op, record.payload);
        auto call = waiting_.find(first);
        auto result = in.get<int32_t>();
        if (traces_) std::fprintf(stderr, "%3d: op 0x%04x answers %d\n", static_cast<int>(first), record.op, result);
        if (!in.ok() || call == waiting_.end() || call->second != record.op)
            found("an unwanted reply to " + name(first, record.op));
        waiting_.erase(call);
    }

    wire::Link& link_;
    const Clock::time_point until_;
    std::map<uint64_t, uint16_t> waiting_;  // op by call number
    bool goodbye_ = false;
    const bool traces_ = std::getenv("TNR_FUZZ_TRACE") != nullptr;  // to see what a seed does
};

void play(std::span<const uint8_t> input) {
    if (auto loaded = worker::load_driver(TNR_EMULATED_DRIVER); !loaded) found(loaded.error().what);
    auto devices = worker::warm_devices();
    if (!devices) found(devices.error().what);
    int control[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0) found("no socket pair");
    auto& supervisor = *new worker::SupervisorLink(UniqueFd(control[0]));
    supervise(control[1]);

    auto& context = *new zmq::context_t(1);
    uint16_t port = 0;
    auto served = wire::Channel::serve(context, listening(port), {}, "session");
    if (!served) found(served.error().what);
    auto& kept = *new std::vector<worker::Device>(std::move(*devices));
    const auto range = kept.front().description.range_address;
    auto& session = *new worker::WorkerSession(std::make_unique<wire::Link>(std::move(*served)), kept, supervisor);
    supervisor.start([](const std::string&) {});

    std::atomic<bool> ended{false};
    std::thread dispatcher([&] {
        session.run();
        ended = true;
    });
    auto channel = wire::Channel::connect(context, "tcp://127.0.0.1:" + std::to_string(port), {}, "session");
    if (!channel) found(channel.error().what);
    wire::Link link(std::move(*channel));
    Client client(link);
    for (auto& batch : fuzz::read_session(input, range)) client.send(std::move(batch));
    client.wait_for_replies();
    client.leave(ended);
    dispatcher.join();
}

// ---- in the fuzzer's

fuzz::Coverage* coverage = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    setenv("TNR_EMULATED_GPUS", "h100:2", 1);
    setenv("TNR_EMULATED_MEMORY_MIB", "64", 1);
    setenv("TNR_LOG", "off", 1);
    // Found and bound once; each session's process starts it, which it does not let others inherit.
    void* driver = dlopen(TNR_EMULATED_DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (!driver) found(dlerror());
    coverage = new fuzz::Coverage(driver);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const pid_t fuzzer = getpid();
    const pid_t child = fork();
    if (child < 0) found("cannot fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != fuzzer) _exit(1);
        play({data, size});
        coverage->save();
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (status != 0) found("the session's process has failed");
    coverage->restore();
    return 0;
}
