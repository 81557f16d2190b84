// Lines and their halves.
#include "api_client/tool_files.hpp"

#include <fstream>
#include <sstream>

namespace tnr {
namespace {

constexpr std::streamsize tool_file_bytes_max = 1 << 20;

// Without blanks, list dashes and quotes around it.
std::string bare(const std::string& text) {
    constexpr const char* around = " \t\r\n\"'";
    const size_t begin = text.find_first_not_of(around);
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(around) - begin + 1);
}

}  // namespace

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

}  // namespace tnr
