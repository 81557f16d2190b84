// Lines and their halves.
#include "api_client/tool_files.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

namespace tnr {
namespace {

constexpr std::streamsize tool_file_bytes_max = 1 << 20;

std::string without(const char* around, const std::string& text) {
    const size_t begin = text.find_first_not_of(around);
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(around) - begin + 1);
}

std::string bare(const std::string& text) {
    return without(" \t\r\n\"'", text);
}

std::string lowered(std::string word) {
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    return word;
}

}  // namespace

std::string stripped(const std::string& text) {
    return without(" \t\r\n", text);
}

std::string small_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text(tool_file_bytes_max, '\0');
    file.read(text.data(), tool_file_bytes_max);
    if (file.gcount() == tool_file_bytes_max) return "";
    text.resize(static_cast<size_t>(file.gcount()));
    return text;
}

std::vector<std::pair<std::string, std::string>> settings_in(const std::string& path, char separator) {
    return settings_of(small_file(path), separator);
}

std::vector<std::pair<std::string, std::string>> settings_of(const std::string& text, char separator) {
    std::vector<std::pair<std::string, std::string>> settings;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t at = line.find(separator), begin = line.find_first_not_of(" \t-");
        if (at == std::string::npos || begin >= at || line[begin] == '#') continue;
        settings.emplace_back(bare(line.substr(begin, at - begin)), bare(line.substr(at + 1)));
    }
    return settings;
}

std::map<std::string, Section> sections_of(const std::string& text) {
    std::map<std::string, Section> sections;
    std::string section, parent;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::string bare = stripped(line);
        if (bare.empty() || bare.front() == '#' || bare.front() == ';') continue;
        if (bare.front() == '[') {
            std::istringstream words(bare.substr(1, bare.find(']') - 1));
            section.clear();
            for (std::string word; words >> word;) section += (section.empty() ? "" : " ") + word;
            parent.clear();
            continue;
        }
        const size_t equals = bare.find('=');
        if (equals == std::string::npos) continue;
        const std::string name = lowered(stripped(bare.substr(0, equals))), value = stripped(bare.substr(equals + 1));
        const bool below = (line.front() == ' ' || line.front() == '\t') && !parent.empty();
        if (!below) parent = value.empty() ? name : "";
        std::string whole = below ? parent : "";
        if (below) whole += '.';
        whole += name;
        if (!value.empty()) sections[section][whole] = value;
    }
    return sections;
}

}  // namespace tnr
