// See config_file.hpp. CLI11 reads the file and checks the values, as it does those of the command line.
#include "gpu_server/config_file.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "api_client/base/text.hpp"
#include "gpu_server/usage_error.hpp"

namespace tnr::server {
namespace {

// A configuration has some dozens of lines.
constexpr size_t config_bytes_max = size_t{64} << 10;

constexpr const char* looks_like = "a line looks like: listen = \"tcp://0.0.0.0:14900\"";

// What is for people: --help, --config and hidden ones are no settings.
std::vector<std::string> settings_of(const CLI::App& command) {
    std::vector<std::string> names;
    for (auto* option : command.get_options())
        for (auto& name : option->get_lnames())
            if (name != "help" && name != "config" && !option->get_group().empty()) names.push_back(name);
    return names;
}

class ConfigFile {
public:
    ConfigFile(CLI::App& command, std::string path, std::string text)
        : command_(command), path_(std::move(path)), text_(std::move(text)) {
        for (auto* option : command.get_options())
            if (option->count() > 0) told_.insert(option);  // on the command line
    }

    Result<> read() {
        std::istringstream stream(text_);
        std::vector<CLI::ConfigItem> items;
        try {
            items = CLI::ConfigTOML().from_config(stream);
        } catch (const CLI::Error& error) {
            return Error{Error::Kind::usage, path_ + ": " + error.what(), looks_like};
        }
        for (auto& item : items)
            if (auto taken = take(item); !taken) return taken;
        return Ok{};
    }

private:
    std::string place(const std::string& name) const {
        std::istringstream stream(text_);
        int number = 0;
        for (std::string line; std::getline(stream, line);) {
            ++number;
            auto begin = line.find_first_not_of(" \t[");
            const bool begins = begin != std::string::npos && line.compare(begin, name.size(), name) == 0;
            const auto end = begin + name.size();
            if (begins && (end == line.size() || line.find_first_of(" \t=]", end) == end))
                return path_ + ", line " + std::to_string(number);
        }
        return path_;
    }

    bool has_sections() const {
        std::istringstream stream(text_);
        for (std::string line; std::getline(stream, line);) {
            auto begin = line.find_first_not_of(" \t");
            if (begin != std::string::npos && line[begin] == '[') return true;
        }
        return false;
    }

    Result<> take(const CLI::ConfigItem& item) {
        if (!item.parents.empty() && !has_sections())  // what has a dot is read as a part of one
            return Error{Error::Kind::usage, place(item.fullname()) + ": there is no setting '" + item.fullname() + "'",
                         looks_like};
        if (!item.parents.empty())
            return Error{Error::Kind::usage, place(item.parents[0]) + ": there are no sections here",
                         "remove the line [" + item.parents[0] + "]"};
        const auto known = settings_of(command_);
        if (std::find(known.begin(), known.end(), item.name) == known.end()) {
            auto near = nearest(item.name, known);
            return Error{Error::Kind::usage, place(item.name) + ": there is no setting '" + item.name + "'",
                         near.empty() ? "tnr-gpu-server serve --help lists them" : "did you mean '" + near + "'?"};
        }
        auto* option = command_.get_option("--" + item.name);
        if (told_.count(option)) return Ok{};
        if (!seen_.insert(option).second)
            return Error{Error::Kind::usage, place(item.name) + ": '" + item.name + "' is there twice"};
        for (auto* other : option->get_excludes()) {
            if (told_.count(other)) return Ok{};
            if (other->count() > 0)
                return Error{Error::Kind::usage, place(item.name) + ": '" + item.name + "' and '" +
                                                     other->get_name().substr(2) + "' exclude each other"};
        }
        return set(*option, item);
    }

    Result<> set(CLI::Option& option, const CLI::ConfigItem& item) try {
        const bool flag = option.get_expected_max() == 0;
        if (flag && item.inputs.size() == 1 && (item.inputs[0] == "false" || item.inputs[0] == "true")) {
            if (item.inputs[0] == "false") return Ok{};
            option.add_result("true");
        } else if (!flag && item.inputs.size() == 1) {
            option.add_result(item.inputs[0]);
        } else {
            return Error{Error::Kind::usage,
                         place(item.name) + ": '" + item.name + "' takes " + (flag ? "true or false" : "one value")};
        }
        option.run_callback();
        return Ok{};
    } catch (const CLI::Error& error) {
        return Error{Error::Kind::usage, place(item.name) + ": " + value_error(error),
                     "`tnr-gpu-server serve --help` says what its settings take"};
    }

    CLI::App& command_;
    std::string path_, text_;
    std::set<const CLI::Option*> told_, seen_;
};

}  // namespace

Result<> read_config(CLI::App& command, const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text(config_bytes_max + 1, '\0');
    if (!file) return Error{Error::Kind::usage, "cannot read " + path, "--config names a file"};
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    if (file.bad() || (text.empty() && !file.eof()))
        return Error{Error::Kind::usage, "cannot read " + path, "is it a file?"};
    if (text.size() > config_bytes_max) return Error{Error::Kind::usage, path + " is too long to be a configuration"};
    return ConfigFile(command, path, std::move(text)).read();
}

}  // namespace tnr::server
