// Lines and their halves.
#include "api_client/tool_files.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <sstream>

#include "api_client/base/handles.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr {
namespace {

constexpr size_t tool_file_bytes_max = 1 << 20;
constexpr int pipe_patience_ms = 2000;  // a program that keeps credentials out of files writes into it at once

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
    const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
    std::string text;
    std::vector<char> piece(size_t{64} << 10);
    while (fd && text.size() < tool_file_bytes_max) {
        pollfd readable{fd.get(), POLLIN, 0};
        const int ready = ::poll(&readable, 1, pipe_patience_ms);
        if (ready < 0 && errno == EINTR && !interrupt::interrupted()) continue;
        const ssize_t got = ready > 0 ? ::read(fd.get(), piece.data(), piece.size()) : -1;
        if (got == 0) return text;
        if (got < 0) return "";
        text.append(piece.data(), static_cast<size_t>(got));
    }
    return "";
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
