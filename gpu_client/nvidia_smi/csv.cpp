// See csv.hpp.
#include "gpu_client/nvidia_smi/csv.hpp"

#include <sstream>

#include "gpu_client/nvidia_smi/fields.hpp"

namespace tnr::smi {

std::vector<std::string> split(const std::string& text, char between) {
    std::vector<std::string> parts;
    std::stringstream in(text);
    for (std::string part; std::getline(in, part, between);) {
        auto first = part.find_first_not_of(' ');
        parts.push_back(first == std::string::npos ? "" : part.substr(first, part.find_last_not_of(' ') - first + 1));
    }
    return parts;
}

Result<CsvFormat> parse_format(const std::string& text) {
    CsvFormat format;
    bool csv = false;
    for (auto& part : split(text, ',')) {
        if (part == "csv")
            csv = true;
        else if (part == "noheader")
            format.header = false;
        else if (part == "nounits")
            format.units = false;
        else
            return Error{Error::Kind::usage, "format '" + part + "' is unknown", "csv, noheader and nounits are known"};
    }
    if (!csv) return Error{Error::Kind::usage, "only the format csv is known", "add --format=csv"};
    return format;
}

// The fields the user named, or an Error for the first that does not exist.
template <class F, class Find>
static Result<std::vector<const F*>> choose(const std::string& names, Find find, const char* help) {
    std::vector<const F*> chosen;
    for (auto& name : split(names, ',')) {
        auto* field = find(name);
        if (!field) return Error{Error::Kind::usage, "field \"" + name + "\" is not a valid field to query", help};
        chosen.push_back(field);
    }
    return chosen;
}

template <class F, class Value>
static void add_row(std::string& text, const std::vector<const F*>& fields, Value value, bool units) {
    const char* between = "";
    for (auto* field : fields) {
        auto cell = value(*field);
        text += between + cell;
        if (units && *field->unit && !cell.starts_with("["))  // a value, not the reason why there is none
            text += std::string(" ") + field->unit;
        between = ", ";
    }
    text += "\n";
}

template <class F>
static std::string header_of(const std::vector<const F*>& fields, CsvFormat format) {
    std::string text;
    if (!format.header) return text;
    auto title = [&](const F& field) {
        bool unit = format.units && *field.unit;
        return std::string(field.name) + (unit ? " [" + std::string(field.unit) + "]" : "");
    };
    add_row(text, fields, title, false);
    return text;
}

Result<std::string> query_gpus(const System& system, const std::string& names, CsvFormat format) {
    auto fields = choose<Field>(names, find_gpu_field, "nvidia-smi --help-query-gpu lists them");
    if (!fields) return fields.error();
    auto text = header_of(*fields, format);
    for (auto& gpu : system.gpus)
        add_row(
            text, *fields, [&](const Field& field) { return field.value(system, gpu); }, format.units);
    return text;
}

Result<std::string> query_processes(const System& system, const std::string& names, CsvFormat format) {
    auto fields = choose<ProcessField>(names, find_process_field, "pid, process_name, used_gpu_memory, gpu_uuid, …");
    if (!fields) return fields.error();
    auto text = header_of(*fields, format);
    for (auto& gpu : system.gpus)
        for (auto& process : gpu.processes)
            add_row(
                text, *fields, [&](const ProcessField& field) { return field.value(gpu, process); }, format.units);
    return text;
}

}  // namespace tnr::smi
