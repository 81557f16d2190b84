// See gpu_source.hpp.
#include "gpu_server/supervisor/gpu_source.hpp"

#include <cuda.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/gpu_facts.hpp"
#include "gpu_server/pool/gpu_types.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// A driver that wakes its GPUs from deep sleep takes seconds each.
constexpr int probe_timeout_ms = 60'000;
constexpr int emulated_gpus_max = 32;  // as many as the emulated driver has room for

constexpr const char* without_gpu_hint = "to try without a GPU: tnr-gpu-server serve --emulate h100:2";
constexpr const char* own_driver_hint =
    "--driver takes the path of NVIDIA's libcuda.so.1; without it the system's is used";

std::string emulated_driver() {
    std::error_code error;
    fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
    constexpr const char* name = "libcuda-emulated.so.1";
    for (auto& folder : {here / "../lib", here / "../lib/tnr", here, fs::path("/usr/lib/tnr")}) {
        if (fs::exists(folder / name, error)) return fs::canonical(folder / name, error);
    }
    return {};
}

// The file behind a library that the loader would find by name; without running any of it.
std::string real_driver() {
    for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
                               "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"}) {
        fs::path path = fs::path(folder) / "libcuda.so.1";
        std::error_code error;
        if (fs::exists(path, error)) return path;
    }
    return {};
}

// One answer of a helper process, within the timeout.
Result<json> ask(const ChildPlan& plan) {
    auto child = start_child(plan);
    if (!child) return child.error();
    pollfd item{child->control.get(), POLLIN, 0};
    int ready = poll(&item, 1, probe_timeout_ms);
    auto received = ready > 0 ? receive_message(child->control.get()) : Received{Received::What::nothing_now, {}};
    kill_child(child->pid);
    int status = 0;
    waitpid(child->pid, &status, 0);
    if (received.what == Received::What::nothing_now)
        return Error{Error::Kind::internal, "the driver did not list its GPUs within a minute"};
    if (received.what != Received::What::message)
        return Error{Error::Kind::internal, "the process that lists the GPUs " + describe_exit(status)};
    return control::parse(received.text.data(), received.text.size());
}

}  // namespace

Result<std::vector<std::string>> parse_emulate(const std::string& text) {
    std::vector<std::string> types;
    size_t at = 0;
    while (at <= text.size()) {
        auto comma = std::min(text.find(',', at), text.size());
        std::string part = text.substr(at, comma - at);
        at = comma + 1;
        auto colon = part.find(':');
        int count = 1;
        if (colon != std::string::npos) {
            auto [end, error] = std::from_chars(part.data() + colon + 1, part.data() + part.size(), count);
            if (error != std::errc{} || end != part.data() + part.size()) count = 0;
        }
        std::string type = part.substr(0, colon);
        if (type.empty() || count < 1)
            return Error{Error::Kind::usage, "'" + text + "' is no list of GPUs", "it looks like h100:2,a100"};
        if (static_cast<int>(types.size()) + count > emulated_gpus_max)
            return Error{Error::Kind::usage,
                         "at most " + std::to_string(emulated_gpus_max) + " GPUs can be emulated on one node",
                         "name fewer of them"};
        types.insert(types.end(), static_cast<size_t>(count), type);
    }
    return types;
}

Result<GpuSource> GpuSource::choose(const GpuOptions& options) {
    if (options.emulate.empty() && (options.unsafe_no_wipe || !options.emulated_memory_folder.empty()))
        return Error{Error::Kind::usage, "--unsafe-no-wipe and --emulated-memory-folder are for emulated GPUs"};
    GpuSource source;
    source.options_ = options;
    if (!options.driver.empty()) {
        std::error_code error;
        if (!fs::exists(options.driver, error))
            return Error{Error::Kind::usage, "there is no driver at " + options.driver, own_driver_hint};
        source.driver_ = fs::absolute(options.driver, error);
    } else if (!options.emulate.empty()) {
        if (auto types = parse_emulate(options.emulate); !types) return types.error();
        source.driver_ = emulated_driver();
        if (source.driver_.empty() && options.program == GpuOptions().program)
            return Error{Error::Kind::usage, "libcuda-emulated.so.1 is neither beside this program nor in /usr/lib/tnr",
                         "name its path with --driver"};
    } else {
        source.driver_ = real_driver();
        if (source.driver_.empty())
            return Error{Error::Kind::usage, "this machine has no NVIDIA driver (no libcuda.so.1)", without_gpu_hint};
    }
    return source;
}

// What helps where the driver is there and has no GPUs for us.
std::string GpuSource::hint() const {
    if (emulated()) return "the line above says why: --emulate takes types that there are, as h100:2,a100";
    if (!options_.driver.empty()) return own_driver_hint;
    return std::string("`nvidia-smi` may say why; ") + without_gpu_hint;
}

uint64_t GpuSource::wipe_bytes_max() const {
    if (!emulated()) return 0;
    if (options_.unsafe_no_wipe) return wipe_block_bytes_min;
    return options_.emulated_memory_folder.empty() ? emulated_wipe_bytes : 0;
}

ChildPlan GpuSource::plan(const std::string& command, const std::vector<std::string>& selectors) const {
    ChildPlan plan{options_.program, {command}, inherited_environment()};
    auto set = [&](const std::string& name, const std::string& value) {
        plan.environment.push_back(name + "=" + value);
    };
    set("TNR_DRIVER", driver_);
    if (emulated()) {
        set("TNR_EMULATED_GPUS", options_.emulate);
        set("TNR_EMULATED_SEED", options_.emulated_seed);
        if (options_.emulated_memory_mib > 0)
            set("TNR_EMULATED_MEMORY_MIB", std::to_string(options_.emulated_memory_mib));
        if (!options_.emulated_memory_folder.empty())
            set("TNR_EMULATED_MEMORY_FOLDER", options_.emulated_memory_folder);
    }
    std::string visible;
    for (auto& selector : selectors) visible += (visible.empty() ? "" : ",") + selector;
    if (!selectors.empty()) set("CUDA_VISIBLE_DEVICES", visible);
    // A driver that finds an MPS server connects to it, and then shares what is to be one tenant's alone.
    set("CUDA_MPS_PIPE_DIRECTORY", "/dev/null");
    set("TNR_GPU_MINORS", minors(selectors));
    // Ordinals are the bus's order for us, NVML and nvidia-smi alike, not "fastest first".
    set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    return plan;
}

// "0,3", or nothing unless all are known: a worker that does not see its GPU's file sees no GPU.
std::string GpuSource::minors(const std::vector<std::string>& selectors) const {
    std::string text;
    for (auto& selector : selectors) {
        auto found = minors_.find(selector);
        if (found == minors_.end()) return {};
        text += (text.empty() ? "" : ",") + std::to_string(found->second);
    }
    return text;
}

static void warn_of_compute_mode(const FoundGpu& gpu, int mode) {
    if (mode == CU_COMPUTEMODE_DEFAULT) return;
    log(LogLevel::warning, gpu.name + " (" + gpu.selector +
                               ") has a compute mode that lets one process use it, or none, "
                               "so a machine's second program will fail: set it with nvidia-smi -c 0");
}

Result<std::vector<FoundGpu>> GpuSource::find() const try {
    auto answer = ask(plan("probe-gpus", {}));
    if (!answer) return answer.error();
    if (answer->contains("failed"))
        return Error{Error::Kind::usage, driver_ + ": " + answer->at("failed").get<std::string>(), hint()};
    std::vector<std::string> types;
    if (emulated()) types = *parse_emulate(options_.emulate);
    std::vector<FoundGpu> found;
    for (auto& device : answer->at("devices")) {
        FoundGpu gpu;
        gpu.name = device.at("name").get<std::string>();
        gpu.uuid = device.at("uuid").get<std::string>();
        gpu.memory_bytes = device.at("memory_bytes").get<uint64_t>();
        gpu.type = found.size() < types.size() ? types[found.size()] : gpu_type(gpu.name);
        if (gpu.uuid.size() != 32) return Error{Error::Kind::internal, "the driver tells a strange UUID: " + gpu.uuid};
        gpu.selector = uuid_text(gpu.uuid);
        if (gpu.name.find(" MIG ") != std::string::npos) {  // a slice, with another kind of UUID and device files
            log(LogLevel::error, gpu.name + " is divided (MIG), which this server does not serve: nvidia-smi -mig 0");
            continue;
        }
        warn_of_compute_mode(gpu, device.value("compute_mode", 0));
        found.push_back(std::move(gpu));
    }
    if (found.empty()) return Error{Error::Kind::usage, driver_ + " finds no GPU", hint()};
    return found;
} catch (const json::exception& error) {
    return Error{Error::Kind::internal, std::string("the list of GPUs cannot be read: ") + error.what()};
}

}  // namespace tnr::server
