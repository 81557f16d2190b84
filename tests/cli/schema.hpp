// The schema of --json that cli/README.md writes down. FakeSession::document() holds every document to it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/cli/sshd.hpp"

namespace tnr::test {

using nlohmann::json;

// The block of README.md: a name, and the type of each of its fields.
class Schema {
public:
    Schema() {
        std::string text = read_text(TNR_CLI_README), fence = "```schema\n";
        size_t begin = text.find(fence) + fence.size();
        std::istringstream lines{text.substr(begin, text.find("```", begin) - begin)};
        for (std::string line; std::getline(lines, line);) {
            size_t brace = line.find('{');
            if (brace == std::string::npos) continue;
            std::string name = line.substr(0, line.find_last_not_of(' ', brace - 1) + 1);
            auto& fields = shapes_[name];
            static const std::regex field{R"(([a-z_0-9]+): (\[?[a-z_]+\]?\??))"};
            for (std::sregex_iterator at{line.begin() + static_cast<std::ptrdiff_t>(brace), line.end(), field}, end;
                 at != end; ++at)
                fields[(*at)[1]] = (*at)[2];
        }
    }
    std::set<std::string> commands() const {
        std::set<std::string> names;
        for (const auto& [name, fields] : shapes_)
            if (name.starts_with("tnr ")) names.insert(name.substr(4));
        return names;
    }
    // The name of the line that a command's results are to follow: "login PROVIDER" for "login hetzner".
    std::string line_of(const std::string& command) const {
        std::string any = command.substr(0, command.rfind(' ')) + " PROVIDER";
        return !shapes_.count("tnr " + command) && shapes_.count("tnr " + any) ? any : command;
    }
    // What is wrong with a command's document; empty: nothing. One that failed as a whole has no results.
    std::string complaint(const json& document) const {
        auto fields = shapes_.at("every");
        std::string command = document.value("command", "");
        auto results = shapes_.find("tnr " + line_of(command));
        bool failed = !document.value("errors", json::array()).empty() && document.size() == fields.size();
        if (results == shapes_.end() && !failed) return "no line for `tnr " + command + "`";
        if (!failed) fields.insert(results->second.begin(), results->second.end());
        return object(document, fields, command);
    }

private:
    using Fields = std::map<std::string, std::string>;

    std::string object(const json& value, const Fields& fields, const std::string& where) const {
        if (!value.is_object()) return where + " is no object";
        for (const auto& [name, type] : fields) {
            if (!value.contains(name)) return std::string(where).append(" has no ").append(name);
            if (auto wrong = check(value[name], type, std::string(where).append(".").append(name)); !wrong.empty())
                return wrong;
        }
        for (const auto& [name, unused] : value.items())
            if (!fields.count(name)) return std::string(where).append(".").append(name).append(" is not in the schema");
        return "";
    }
    std::string check(const json& value, std::string type, const std::string& where) const {
        if (type.back() == '?') {
            if (value.is_null()) return "";
            type.pop_back();
        }
        if (type.front() == '[') {
            if (!value.is_array()) return where + " is no list";
            for (const auto& each : value)
                if (auto wrong = check(each, type.substr(1, type.size() - 2), where + "[]"); !wrong.empty())
                    return wrong;
            return "";
        }
        if (auto shape = shapes_.find(type); shape != shapes_.end()) return object(value, shape->second, where);
        static const std::regex time{"\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ"};
        bool good = type == "text"     ? value.is_string()
                    : type == "int"    ? value.is_number_integer()
                    : type == "number" ? value.is_number()
                    : type == "bool"   ? value.is_boolean()
                    : type == "time"   ? value.is_string() && std::regex_match(value.get<std::string>(), time)
                                       : false;
        return good ? "" : where + " is no " + type + ": " + value.dump();
    }

    std::map<std::string, Fields> shapes_;
};

}  // namespace tnr::test
