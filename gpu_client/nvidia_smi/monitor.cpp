// See monitor.hpp. To add a column: a line in device_columns or process_columns.
#include "gpu_client/nvidia_smi/monitor.hpp"

#include <algorithm>
#include <ctime>

#include "gpu_client/nvidia_smi/fields.hpp"

namespace tnr::smi {
namespace {

struct Column {
    char group;
    const char* title;
    const char* unit;
    const char* field;  // of --query-gpu; null: nobody tells
};

constexpr Column device_columns[] = {
    {'p', "pwr", "W", "power.draw"},
    {'p', "gtemp", "C", "temperature.gpu"},
    {'p', "mtemp", "C", "temperature.memory"},
    {'u', "sm", "%", "utilization.gpu"},
    {'u', "mem", "%", "utilization.memory"},
    {'u', "enc", "%", "utilization.encoder"},
    {'u', "dec", "%", "utilization.decoder"},
    {'u', "jpg", "%", "utilization.jpeg"},
    {'u', "ofa", "%", "utilization.ofa"},
    {'c', "mclk", "MHz", "clocks.mem"},
    {'c', "pclk", "MHz", "clocks.gr"},
    {'v', "pviol", "%", nullptr},
    {'v', "tviol", "bool", nullptr},
    {'m', "fb", "MB", "memory.used"},
    {'m', "bar1", "MB", nullptr},
    {'m', "ccpm", "MB", nullptr},
    {'e', "sbecc", "errs", "ecc.errors.corrected.volatile.total"},
    {'e', "dbecc", "errs", "ecc.errors.uncorrected.volatile.total"},
    {'e', "pci", "errs", "pcie.replay_counter"},
    {'t', "rxpci", "MB/s", nullptr},
    {'t', "txpci", "MB/s", nullptr},
};
// What a process does of all that its GPU does is not known.
constexpr Column process_columns[] = {
    {'u', "sm", "%", nullptr},  {'u', "mem", "%", nullptr}, {'u', "enc", "%", nullptr}, {'u', "dec", "%", nullptr},
    {'u', "jpg", "%", nullptr}, {'u', "ofa", "%", nullptr}, {'m', "fb", "MB", ""},      {'m', "ccpm", "MB", nullptr},
};

const char* groups_of(const MonitorOptions& options, const char* otherwise) {
    return options.groups.empty() ? otherwise : options.groups.c_str();
}
constexpr const char *device_groups = "puc", *process_groups = "u";

bool has(const std::string& letters, char letter) {
    return letters.find(letter) != std::string::npos;
}

std::string cell(const std::string& text, size_t width = 6) {
    return " " + (text.size() < width ? std::string(width - text.size(), ' ') : "") + text;
}

// What a heading has before the columns: "#" and, where they are wanted, the names of date and time.
std::string lead(const MonitorOptions& options, const char* date, const char* time) {
    std::string text = "#";
    if (has(options.when, 'D')) text += date;
    if (has(options.when, 'T')) text += (text == "#" ? "" : " ") + std::string(time);
    return text + (text == "#" ? " " : "    ");
}

std::string stamp(const MonitorOptions& options) {
    if (options.when.empty()) return "";
    char text[40];
    auto now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    const char* format = !has(options.when, 'T')   ? " %Y%m%d    "
                         : !has(options.when, 'D') ? " %H:%M:%S  "
                                                   : " %Y%m%d   %H:%M:%S  ";
    std::strftime(text, sizeof text, format, &local);
    return text;
}

// One line of names and one of units; `first` and `last` stand around the columns.
struct Around {
    const char *first_title, *first_unit, *last_title, *last_unit;
};

template <size_t Count>
Result<std::string> heading(const Column (&columns)[Count], const MonitorOptions& options, const char* otherwise,
                            const Around& around) {
    const std::string groups = groups_of(options, otherwise);
    for (char letter : groups) {
        bool known = false;
        for (auto& column : columns) known |= column.group == letter;
        if (!known) return Error{Error::Kind::usage, std::string("-s knows no '") + letter + "'"};
    }
    auto titles = lead(options, "Date      ", "Time    ") + around.first_title;
    auto units = lead(options, "YYYYMMDD  ", "HH:MM:SS") + around.first_unit;
    for (auto& column : columns) {
        if (!has(groups, column.group)) continue;
        titles += cell(column.title);
        units += cell(column.unit);
    }
    return titles + around.last_title + " \n" + units + around.last_unit + " \n";
}

std::string value_of(const System& system, const Gpu& gpu, const Column& column) {
    if (!column.field) return "-";
    auto value = find_gpu_field(column.field)->value(system, gpu);
    return value.starts_with("[") ? "-" : value.substr(0, value.find('.'));
}

std::string process_line(const MonitorOptions& options, const Gpu& gpu, const Process* process) {
    const std::string groups = groups_of(options, process_groups);
    auto text = stamp(options) + cell(std::to_string(gpu.index), 4) +
                cell(process ? std::to_string(process->pid) : "-", 10) + cell(process ? "C" : "-", 5);
    for (auto& column : process_columns)
        if (has(groups, column.group)) text += cell(process && column.field ? mib(process->used_bytes) : "-");
    auto name = process ? process->name.substr(process->name.rfind('/') + 1) : "-";
    name.resize(std::max<size_t>(name.size(), 15), ' ');
    return text + "    " + name + "\n";
}

}  // namespace

Result<std::string> device_heading(const MonitorOptions& options) {
    return heading(device_columns, options, device_groups, {"gpu", "Idx", "", ""});
}

std::string device_lines(const System& system, const MonitorOptions& options) {
    const std::string groups = groups_of(options, device_groups);
    std::string text;
    for (auto& gpu : system.gpus) {
        text += stamp(options) + cell(std::to_string(gpu.index), 4);
        for (auto& column : device_columns)
            if (has(groups, column.group)) text += cell(value_of(system, gpu, column));
        text += " \n";
    }
    return text;
}

Result<std::string> process_heading(const MonitorOptions& options) {
    return heading(process_columns, options, process_groups,
                   {"gpu         pid   type", "Idx           #    C/G", "    command", "    name"});
}

std::string process_lines(const System& system, const MonitorOptions& options) {
    std::string text;
    for (auto& gpu : system.gpus) {
        if (gpu.processes.empty()) text += process_line(options, gpu, nullptr);
        for (auto& process : gpu.processes) text += process_line(options, gpu, &process);
    }
    return text;
}

}  // namespace tnr::smi
