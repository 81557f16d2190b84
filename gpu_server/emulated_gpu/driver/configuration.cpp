// The environment to a list of devices. README.md lists the variables for users.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "gpu_server/emulated_gpu/driver/device.hpp"

namespace tnr::emulated {
namespace {

// Public data sheets. Bus widths of HBM types are those that give the type's bandwidth with its clock.
constexpr GpuType types[] = {
    {"h100", "NVIDIA H100 (emulated)", 132, 1980000, 2619000, 5120, 50, 0x233010DE, true},
    {"h200", "NVIDIA H200 (emulated)", 132, 1980000, 3201000, 6144, 50, 0x233510DE, true},
    {"b200", "NVIDIA B200 (emulated)", 148, 1965000, 3996000, 8192, 126, 0x290110DE, true},
    {"a100", "NVIDIA A100-SXM4-40GB (emulated)", 108, 1410000, 1215000, 5120, 40, 0x20B010DE},
    {"a100-80gb", "NVIDIA A100-SXM4-80GB (emulated)", 108, 1410000, 1593000, 5120, 40, 0x20B210DE},
    {"a10", "NVIDIA A10 (emulated)", 72, 1695000, 6251000, 384, 6, 0x223610DE},
    {"a40", "NVIDIA A40 (emulated)", 84, 1740000, 7251000, 384, 6, 0x223510DE},
    {"a6000", "NVIDIA RTX A6000 (emulated)", 84, 1800000, 8001000, 384, 6, 0x223010DE},
    {"l4", "NVIDIA L4 (emulated)", 58, 2040000, 6251000, 192, 48, 0x27B810DE},
    {"l40s", "NVIDIA L40S (emulated)", 142, 2520000, 9001000, 384, 96, 0x26B910DE},
    {"t4", "Tesla T4 (emulated)", 40, 1590000, 5001000, 256, 4, 0x1EB810DE},
    {"v100", "Tesla V100-SXM2-16GB (emulated)", 80, 1530000, 877000, 4096, 6, 0x1DB110DE},
    {"rtx3090", "NVIDIA GeForce RTX 3090 (emulated)", 82, 1695000, 9751000, 384, 6, 0x220410DE},
    {"rtx4090", "NVIDIA GeForce RTX 4090 (emulated)", 128, 2520000, 10501000, 384, 72, 0x268410DE},
    {"rtx5090", "NVIDIA GeForce RTX 5090 (emulated)", 170, 2407000, 14001000, 512, 96, 0x2B8510DE},
    {"rtx6000-pro", "NVIDIA RTX PRO 6000 (emulated)", 188, 2617000, 14001000, 512, 128, 0x2BB110DE},
};

constexpr char default_gpus[] = "h100";
// Committed lazily, so this is a limit and not a need; small enough for a laptop to honour.
constexpr uint64_t default_memory_mib = 2048;
// The address map keeps one bit per device, and no machine has more than 16 GPUs anyway.
constexpr size_t devices_max = 32;
// 1 TiB: four times this per device still fits the 47 bits of user addresses with devices_max of them.
constexpr uint64_t memory_mib_max = uint64_t{1} << 20;

const GpuType* type_named(std::string_view name) {
    auto found = std::find_if(std::begin(types), std::end(types), [&](auto& t) { return name == t.short_name; });
    return found == std::end(types) ? nullptr : found;
}

std::string known_types() {
    std::string list;
    for (auto& type : types) list += (list.empty() ? "" : ", ") + std::string(type.short_name);
    return list;
}

bool parse_number(std::string_view text, uint64_t& number) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size();
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

// "h100:2,a100" to {h100, h100, a100}.
std::vector<const GpuType*> parse_gpus(std::string_view text, std::string& error) {
    std::vector<const GpuType*> found;
    for (std::string_view part : split(text, ',')) {
        size_t colon = part.find(':');
        std::string_view name = part.substr(0, colon);
        uint64_t count = 1;
        const GpuType* type = type_named(name);
        if (!type)
            error = "there is no GPU type '" + std::string(name) + "'; known are " + known_types();
        else if (colon != std::string_view::npos && !parse_number(part.substr(colon + 1), count))
            error = "'" + std::string(part) + "' should be TYPE or TYPE:COUNT";
        else if (found.size() + count > devices_max)
            error = "at most " + std::to_string(devices_max) + " GPUs can be emulated";
        if (!error.empty()) return {};
        found.insert(found.end(), count, type);
    }
    return found;
}

// Spreads a seed over 64 bits (the finaliser known as splitmix64).
uint64_t mix(uint64_t value) {
    value += 0x9E3779B97F4A7C15;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
}

// The same device of the same configuration has the same identity in every process.
CUuuid uuid_for(const GpuType& type, int ordinal, std::string_view seed) {
    uint64_t state = static_cast<uint64_t>(ordinal);
    for (char c : std::string(type.short_name) + "/" + std::string(seed))
        state = mix(state ^ static_cast<unsigned char>(c));
    uint64_t halves[2] = {mix(state), mix(state ^ 1)};
    CUuuid uuid;
    std::memcpy(uuid.bytes, halves, sizeof(uuid.bytes));
    uuid.bytes[6] = static_cast<char>((uuid.bytes[6] & 0x0f) | 0x40);  // version 4, as GPUs have it
    uuid.bytes[8] = static_cast<char>((uuid.bytes[8] & 0x3f) | 0x80);
    return uuid;
}

std::string uuid_text(const CUuuid& uuid) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        auto byte = static_cast<unsigned char>(uuid.bytes[i]);
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

// As the driver reads it: ordinals or beginnings of UUIDs; the first that names no device ends the list.
void keep_visible(std::vector<std::unique_ptr<Device>>& devices, std::string_view visible) {
    std::vector<std::unique_ptr<Device>> kept;
    for (std::string_view part : split(visible, ',')) {
        while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
        uint64_t ordinal = 0;
        auto match = [&](auto& device) {
            if (!device) return false;
            if (part.starts_with("GPU-")) return uuid_text(device->uuid).starts_with(part);
            return parse_number(part, ordinal) && static_cast<uint64_t>(device->ordinal) == ordinal;
        };
        auto found = std::find_if(devices.begin(), devices.end(), match);
        if (found == devices.end()) break;
        kept.push_back(std::move(*found));
    }
    devices = std::move(kept);
}

const char* environment(const char* name, const char* otherwise) {
    const char* value = getenv(name);
    return value && *value ? value : otherwise;
}

}  // namespace

bool Device::charge(uint64_t bytes) {
    uint64_t used = memory_used;
    do {
        if (bytes > memory_total - used) return false;
    } while (!memory_used.compare_exchange_weak(used, used + bytes));
    return true;
}

Configuration configuration_from_environment() {
    Configuration result;
    auto gpus = parse_gpus(environment("TNR_EMULATED_GPUS", default_gpus), result.error);
    uint64_t memory_mib = default_memory_mib;
    std::string_view memory = environment("TNR_EMULATED_MEMORY_MIB", "");
    if (!memory.empty() && (!parse_number(memory, memory_mib) || memory_mib == 0 || memory_mib > memory_mib_max))
        result.error = "TNR_EMULATED_MEMORY_MIB should be a number from 1 to " + std::to_string(memory_mib_max);
    if (!result.error.empty()) return result;
    for (const GpuType* type : gpus) {
        auto device = std::make_unique<Device>();
        device->ordinal = static_cast<int>(result.devices.size());
        device->type = type;
        device->uuid = uuid_for(*type, device->ordinal, environment("TNR_EMULATED_SEED", ""));
        device->pci_bus = 1 + device->ordinal;
        device->memory_total = memory_mib << 20;
        result.devices.push_back(std::move(device));
    }
    if (const char* visible = getenv("CUDA_VISIBLE_DEVICES")) keep_visible(result.devices, visible);
    for (size_t i = 0; i < result.devices.size(); ++i) result.devices[i]->ordinal = static_cast<int>(i);
    const std::string folder = environment("TNR_EMULATED_MEMORY_FOLDER", "");
    for (auto& device : result.devices) {
        if (folder.empty()) break;
        device->file = DeviceFile::open(folder + "/" + uuid_text(device->uuid), device->memory_total);
        if (!device->file) result.error = "TNR_EMULATED_MEMORY_FOLDER: no file can be made in " + folder;
    }
    return result;
}

}  // namespace tnr::emulated
