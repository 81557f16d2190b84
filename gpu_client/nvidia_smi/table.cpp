// See table.hpp. The columns stand where people and scripts look for them; 91 characters wide.
#include "gpu_client/nvidia_smi/table.hpp"

#include <cstdio>
#include <ctime>

#include "gpu_client/nvidia_smi/fields.hpp"

namespace tnr::smi {

static std::string fit(const std::string& text, size_t width) {
    if (text.size() <= width) return text + std::string(width - text.size(), ' ');
    return text.substr(0, width - 3) + "...";
}

static std::string right(const std::string& text, size_t width) {
    return text.size() >= width ? text.substr(0, width) : std::string(width - text.size(), ' ') + text;
}

static std::string short_value(const System& system, const Gpu& gpu, const char* field) {
    auto value = find_gpu_field(field)->value(system, gpu);
    if (value == not_available) return "N/A";
    return value.starts_with("[") ? "ERR!" : value;  // as nvidia-smi says of a GPU that is lost; the column is narrow
}

static std::string with_unit(const std::string& value, const char* unit) {
    return value == "N/A" || value == "ERR!" ? value : value + unit;
}

static std::string whole(const std::string& number) {
    return number.substr(0, number.find('.'));
}

static std::string gpu_rows(const System& system, const Gpu& gpu) {
    auto value = [&](const char* field) { return short_value(system, gpu, field); };
    auto power = with_unit(whole(value("power.draw")), "W") + " / " + with_unit(whole(value("power.limit")), "W");
    auto memory = mib(gpu.memory_used) + "MiB / " + mib(gpu.memory_total) + "MiB";
    auto persistence = value("persistence_mode");
    persistence = persistence == "Enabled" ? "On" : persistence == "Disabled" ? "Off" : persistence;
    std::string text;
    text += "| " + right(std::to_string(gpu.index), 3) + "  " + fit(gpu.name, 26) + right(persistence, 8) + " | " +
            right(gpu.bus_id, 17) + " " + right("Off", 4) + " | " +
            right(value("ecc.errors.uncorrected.volatile.total"), 20) + " |\n";
    text += "| " + fit(value("fan.speed"), 4) + " " + fit(with_unit(value("temperature.gpu"), "C"), 5) + " " +
            fit(value("pstate"), 5) + right(power, 23) + " | " + right(memory, 22) + " | " +
            right(with_unit(value("utilization.gpu"), "%"), 7) + " " + right(value("compute_mode"), 12) + " |\n";
    text += "| " + std::string(39, ' ') + " | " + std::string(22, ' ') + " | " + right(value("mig.mode.current"), 20) +
            " |\n";
    return text;
}

static std::string process_rows(const System& system) {
    std::string text;
    for (auto& gpu : system.gpus)
        for (auto& process : gpu.processes)
            text += "| " + right(std::to_string(gpu.index), 4) + "   N/A  N/A  " +
                    right(std::to_string(process.pid), 14) + "      C   " + fit(process.name, 35) +
                    right(mib(process.used_bytes) + "MiB", 11) + " |\n";
    return text.empty() ? "|  " + fit("No running processes found", 86) + " |\n" : text;
}

static std::string line(char fill) {
    return std::string(41, fill) + "+" + std::string(24, fill) + "+" + std::string(22, fill);
}

std::string now() {
    char text[64];
    auto time = std::time(nullptr);
    std::tm local{};
    std::strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", localtime_r(&time, &local));
    return text;
}

std::string table(const System& system) {
    auto full = "+" + std::string(89, '-') + "+\n";
    std::string text = now() + "\n" + full;
    text += "| " + fit("NVIDIA-SMI (tnr) " TNR_VERSION, 33) + fit("Driver Version: " + system.driver_version, 30) +
            right("CUDA Version: " + system.cuda_version, 24) + " |\n";
    text += "|" + line('-') + "+\n";
    text += "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n";
    text += "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n";
    text += "|                                         |                        |               MIG M. |\n";
    text += "|" + line('=') + "|\n";
    for (auto& gpu : system.gpus) text += gpu_rows(system, gpu) + "+" + line('-') + "+\n";
    text += "\n" + full + "| Processes:" + std::string(78, ' ') + "|\n";
    text += "|  GPU   GI   CI              PID   Type   Process name" + right("GPU Memory", 33) + "  |\n";
    text += "|" + std::string(89, '=') + "|\n" + process_rows(system) + full;
    return text;
}

std::string list(const System& system) {
    std::string text;
    for (auto& gpu : system.gpus)
        text += "GPU " + std::to_string(gpu.index) + ": " + gpu.name + " (UUID: " + gpu.uuid + ")\n";
    return text;
}

}  // namespace tnr::smi
