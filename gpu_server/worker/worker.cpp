// See worker.hpp.
#include "gpu_server/worker/worker.hpp"

#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "gpu_server/pool/zap.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/sandbox.hpp"
#include "gpu_server/worker/session.hpp"
#include "gpu_server/worker/strangers.hpp"

namespace tnr::worker {

// Everything lives until the process ends: threads of the driver and our own may still use it then.
template <class T>
static T& forever(T&& value) {
    return *new T(std::forward<T>(value));
}

[[noreturn]] static void give_up(SupervisorLink& supervisor, const Error& error) {
    supervisor.failed(error.what);
    _exit(1);
}

// What stays: the folder of a driver that is not where the system keeps its libraries, and that of emulated GPUs' memory.
static SandboxOptions sandbox_for(const std::string& driver, int control_fd) {
    SandboxOptions options;
    options.control_socket = control_fd;
    options.devices = given_nvidia_devices();
    std::error_code none;
    auto folder = std::filesystem::canonical(driver, none).parent_path();
    if (!none) options.readable.push_back(folder);
    if (auto* memory = std::getenv("TNR_EMULATED_MEMORY_FOLDER")) options.writable.emplace_back(memory);
    return options;
}

static std::vector<Device>& warm_up(SupervisorLink& supervisor, int control_fd) {
    auto* path = std::getenv("TNR_DRIVER");
    std::string driver_path = path ? path : "libcuda.so.1";
    end_on_signals();
    if (auto entered = enter_sandbox(sandbox_for(driver_path, control_fd)); !entered)
        give_up(supervisor, entered.error());
    if (auto loaded = load_driver(driver_path); !loaded) give_up(supervisor, loaded.error());
    auto devices = warm_devices();
    if (!devices) give_up(supervisor, devices.error());
    return forever(std::move(*devices));
}

// Only the key that the claim was made with may connect; plain text only from this host.
static Result<std::unique_ptr<server::Zap>> admit_only(zmq::context_t& context, const std::string& client_key,
                                                       Strangers& strangers) {
    return server::Zap::start(
        context, [client_key, &strangers](const server::Knock& knock) -> std::optional<std::string> {
            bool welcome = client_key.empty() ? knock.plain && knock.from_loopback() : knock.public_key == client_key;
            if (welcome) strangers.proven(knock.connection);
            return welcome ? std::optional<std::string>("client") : std::nullopt;
        });
}

static std::string serve(SupervisorLink& supervisor, std::vector<Device>& devices, const Serve& wanted, int listen_fd) {
    auto& context = *new zmq::context_t(static_cast<int>(1 + wanted.lanes));
    auto& strangers = *new Strangers(wanted.keys.secret_key);
    auto zap = admit_only(context, wanted.client_key, strangers);
    if (!zap) return zap.error().what;
    forever(std::move(*zap));
    auto channel =
        wire::Channel::serve(context, listen_fd, wanted.keys, wanted.session, wanted.lanes, strangers.hooks());
    if (!channel) return channel.error().what;
    auto& session = *new WorkerSession(std::make_unique<wire::Link>(std::move(*channel)), devices, supervisor);
    supervisor.start([&session](const std::string& why) { session.say_goodbye(why); });
    return session.run();
}

// ZeroMQ allocates every received piece of a copy anew. By default the C library gives such blocks back to the kernel at
// once; the page faults of each next one cost a tenth of a large copy's speed (tests/bench/results, 2026-11-21). What is
// kept is bounded by the credit window, and ends with the session.
static void keep_freed_memory() {
    (void)mallopt(M_MMAP_THRESHOLD, static_cast<int>(4 * wire::piece_bytes_max));
    (void)mallopt(M_TRIM_THRESHOLD, static_cast<int>(2 * wire::window_bytes));
}

void run_worker(int control_fd, int listen_fd) {
    keep_freed_memory();
    auto& supervisor = *new SupervisorLink(UniqueFd(control_fd));
    auto& devices = warm_up(supervisor, control_fd);
    std::vector<DeviceDescription> descriptions;
    for (auto& device : devices) descriptions.push_back(device.description);
    supervisor.ready(descriptions);

    Serve wanted;
    if (!supervisor.wait_for_work(wanted)) _exit(0);
    for (auto& device : devices)
        device.description.memory_bytes = std::min(device.description.memory_bytes, wanted.device_memory_max);
    limit_threads(wanted.threads_max);
    supervisor.ended(serve(supervisor, devices, wanted, listen_fd));
    _exit(0);
}

}  // namespace tnr::worker
