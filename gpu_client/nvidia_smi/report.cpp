// See report.hpp. To add a line: one in `lines`. Titles, names and their order are NVIDIA's, as programs look for them.
#include "gpu_client/nvidia_smi/report.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "gpu_client/nvidia_smi/csv.hpp"
#include "gpu_client/nvidia_smi/fields.hpp"
#include "gpu_client/nvidia_smi/table.hpp"

namespace tnr::smi {
namespace {

// One value. Sections lead to it, in both forms.
struct Line {
    const char* titles;          // "FB Memory Usage/Total"
    const char* tags;            // "fb_memory_usage/total"
    const char* field;           // of --query-gpu
    const char* part = "";       // of -d; empty: only shown with all
    const char* unit = nullptr;  // where it is not the field's own
};

constexpr Line lines[] = {
    {"Product Name", "product_name", "name"},
    {"Display Mode", "display_mode", "display_mode"},
    {"Display Active", "display_active", "display_active"},
    {"Persistence Mode", "persistence_mode", "persistence_mode"},
    {"MIG Mode/Current", "mig_mode/current_mig", "mig.mode.current"},
    {"Serial Number", "serial", "serial"},
    {"GPU UUID", "uuid", "uuid"},
    {"VBIOS Version", "vbios_version", "vbios_version"},
    {"PCI/Bus", "pci/pci_bus", "pci.bus"},
    {"PCI/Device", "pci/pci_device", "pci.device"},
    {"PCI/Domain", "pci/pci_domain", "pci.domain"},
    {"PCI/Device Id", "pci/pci_device_id", "pci.device_id"},
    {"PCI/Bus Id", "pci/pci_bus_id", "pci.bus_id"},
    {"PCI/Sub System Id", "pci/pci_sub_system_id", "pci.sub_device_id"},
    {"PCI/GPU Link Info/PCIe Generation/Max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "pcie.link.gen.max"},
    {"PCI/GPU Link Info/PCIe Generation/Current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
     "pcie.link.gen.current"},
    {"PCI/GPU Link Info/Link Width/Max", "pci/pci_gpu_link_info/link_widths/max_link_width", "pcie.link.width.max"},
    {"PCI/GPU Link Info/Link Width/Current", "pci/pci_gpu_link_info/link_widths/current_link_width",
     "pcie.link.width.current"},
    {"Fan Speed", "fan_speed", "fan.speed"},
    {"Performance State", "performance_state", "pstate", "PERFORMANCE"},
    {"FB Memory Usage/Total", "fb_memory_usage/total", "memory.total", "MEMORY"},
    {"FB Memory Usage/Used", "fb_memory_usage/used", "memory.used", "MEMORY"},
    {"FB Memory Usage/Free", "fb_memory_usage/free", "memory.free", "MEMORY"},
    {"Compute Mode", "compute_mode", "compute_mode", "COMPUTE"},
    {"Utilization/GPU", "utilization/gpu_util", "utilization.gpu", "UTILIZATION"},
    {"Utilization/Memory", "utilization/memory_util", "utilization.memory", "UTILIZATION"},
    {"Utilization/Encoder", "utilization/encoder_util", "utilization.encoder", "UTILIZATION"},
    {"Utilization/Decoder", "utilization/decoder_util", "utilization.decoder", "UTILIZATION"},
    {"ECC Mode/Current", "ecc_mode/current_ecc", "ecc.mode.current", "ECC"},
    {"Temperature/GPU Current Temp", "temperature/gpu_temp", "temperature.gpu", "TEMPERATURE", "C"},
    {"GPU Power Readings/Average Power Draw", "gpu_power_readings/average_power_draw", "power.draw", "POWER"},
    {"GPU Power Readings/Current Power Limit", "gpu_power_readings/current_power_limit", "power.limit", "POWER"},
    {"GPU Power Readings/Default Power Limit", "gpu_power_readings/default_power_limit", "power.default_limit",
     "POWER"},
    {"GPU Power Readings/Min Power Limit", "gpu_power_readings/min_power_limit", "power.min_limit", "POWER"},
    {"GPU Power Readings/Max Power Limit", "gpu_power_readings/max_power_limit", "power.max_limit", "POWER"},
    {"Clocks/Graphics", "clocks/graphics_clock", "clocks.gr", "CLOCK"},
    {"Clocks/SM", "clocks/sm_clock", "clocks.sm", "CLOCK"},
    {"Clocks/Memory", "clocks/mem_clock", "clocks.mem", "CLOCK"},
    {"Clocks/Video", "clocks/video_clock", "clocks.video", "CLOCK"},
    {"Max Clocks/Graphics", "max_clocks/graphics_clock", "clocks.max.gr", "CLOCK"},
    {"Max Clocks/SM", "max_clocks/sm_clock", "clocks.max.sm", "CLOCK"},
    {"Max Clocks/Memory", "max_clocks/mem_clock", "clocks.max.mem", "CLOCK"},
};
constexpr const char* processes_part = "PIDS";

std::string value_of(const System& system, const Gpu& gpu, const Line& line) {
    const auto* field = find_gpu_field(line.field);
    auto value = field->value(system, gpu);
    if (value == not_available) return "N/A";
    const std::string unit = line.unit ? line.unit : field->unit;
    return value.starts_with("[") || unit.empty() ? value : value.append(" ").append(unit);
}

// Foreign bytes: a process is called what its owner likes.
std::string escaped(const std::string& text) {
    std::string safe;
    for (char letter : text) {
        if (letter == '&')
            safe += "&amp;";
        else if (letter == '<')
            safe += "&lt;";
        else if (letter == '>')
            safe += "&gt;";
        else
            safe += letter >= 0 && letter < ' ' ? '?' : letter;
    }
    return safe;
}

// Opens and closes sections as the lines go from one into the next.
class Writer {
public:
    explicit Writer(bool xml, size_t depth) : xml_(xml), outermost_(depth) {}
    void line(const std::string& path, const std::string& value) {
        auto parts = split(path, '/');
        const std::string name = parts.back();
        parts.pop_back();
        enter(parts);
        if (xml_)
            text_ += indent(open_.size()) + "<" + name + ">" + escaped(value) + "</" + name + ">\n";
        else
            text_ += titled(indent(open_.size()) + name) + ": " + value + "\n";
    }
    void enter(const std::vector<std::string>& wanted) {
        auto same = std::mismatch(open_.begin(), open_.end(), wanted.begin(), wanted.end()).first - open_.begin();
        while (std::ssize(open_) > same) leave();
        for (auto at = wanted.begin() + same; at != wanted.end(); ++at) {
            text_ += indent(open_.size()) + (xml_ ? "<" + *at + ">" : *at) + "\n";
            open_.push_back(*at);
        }
    }
    // The text of all, with nothing left open.
    std::string take() {
        enter({});
        return std::exchange(text_, "");
    }
    static std::string titled(const std::string& title) {
        constexpr size_t column = 42;
        return title + std::string(title.size() < column ? column - title.size() : 1, ' ');
    }

private:
    std::string indent(size_t depth) const {
        return xml_ ? std::string(outermost_ + depth, '\t') : std::string(4 * (outermost_ + depth), ' ');
    }
    void leave() {
        const std::string name = open_.back();
        open_.pop_back();
        if (xml_) text_ += indent(open_.size()) + "</" + name + ">\n";
    }
    const bool xml_;
    const size_t outermost_;
    std::vector<std::string> open_;
    std::string text_;
};

std::string processes(const Gpu& gpu, bool xml) {
    std::string text;
    for (auto& process : gpu.processes) {
        Writer one(xml, 2);
        auto tell = [&](const char* title, const char* tag, const std::string& value) {
            one.line(xml ? std::string("process_info/") + tag : title, value);
        };
        tell("Process ID", "pid", std::to_string(process.pid));
        tell("Type", "type", "C");
        tell("Name", "process_name", process.name);
        tell("Used GPU Memory", "used_memory", mib(process.used_bytes) + " MiB");
        text += one.take();
    }
    if (xml) return "\t\t<processes>\n" + text + "\t\t</processes>\n";
    return text.empty() ? Writer::titled("    Processes") + ": None\n" : "    Processes\n" + text;
}

Result<std::vector<std::string>> parts_of(const std::string& text) {
    std::vector<std::string> known = {processes_part};
    for (auto& line : lines)
        if (*line.part && std::find(known.begin(), known.end(), line.part) == known.end())
            known.emplace_back(line.part);
    std::string list;
    for (auto& each : known) list += (list.empty() ? "" : ", ") + each;
    auto parts = split(text, ',');
    for (auto& part : parts) {
        std::transform(part.begin(), part.end(), part.begin(), [](unsigned char c) { return std::toupper(c); });
        if (std::find(known.begin(), known.end(), part) == known.end())
            return Error{Error::Kind::usage, "-d knows no '" + part + "'", "it knows " + list};
    }
    return parts;
}

}  // namespace

Result<std::string> report(const System& system, const ReportOptions& options) {
    auto parts = parts_of(options.parts);
    if (!parts) return parts.error();
    auto shown = [&](const char* part) {
        return parts->empty() || std::find(parts->begin(), parts->end(), part) != parts->end();
    };
    const bool xml = options.xml;
    Writer head(xml, xml ? 1 : 0);
    head.line(xml ? "timestamp" : "Timestamp", now());
    head.line(xml ? "driver_version" : "Driver Version", system.driver_version);
    head.line(xml ? "cuda_version" : "CUDA Version", system.cuda_version);
    head.line(xml ? "attached_gpus" : "Attached GPUs", std::to_string(system.gpus.size()));
    std::string text = xml ? "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n"
                             "<nvidia_smi_log>\n"
                           : "\n==============NVSMI LOG==============\n\n";
    text += head.take();
    for (auto& gpu : system.gpus) {
        text += xml ? "\t<gpu id=\"" + gpu.bus_id + "\">\n" : "GPU " + gpu.bus_id + "\n";
        Writer one(xml, xml ? 2 : 1);
        for (auto& line : lines)
            if (shown(line.part)) one.line(xml ? line.tags : line.titles, value_of(system, gpu, line));
        text += one.take();
        if (shown(processes_part)) text += processes(gpu, xml);
        text += xml ? "\t</gpu>\n" : "\n";
    }
    return xml ? text + "</nvidia_smi_log>\n" : text;
}

}  // namespace tnr::smi
