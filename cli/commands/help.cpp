// See help.hpp.
#include "cli/commands/help.hpp"

#include <algorithm>
#include <sstream>

#include "api_client/base/files.hpp"
#include "api_client/base/text.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/manual.hpp"
#include "cli/ui/text.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {
namespace {

struct HelpOptions {
    std::vector<std::string> topic;
    bool man = false;
    std::string folder = {};
};

nlohmann::json choices_json(const std::vector<Choice>& choices) {
    auto entries = nlohmann::json::array();
    for (const auto& choice : choices) entries.push_back({{"name", choice.word}, {"what", choice.what}});
    return entries;
}

void print_topic(Session& session, const Place& place, const std::string& text) {
    if (session.json)
        print_document(session, "help",
                       {{"about", place.path},
                        {"commands", choices_json(place.commands)},
                        {"options", choices_json(place.options)},
                        {"text", text}});
    else
        session.out << text;
}

// Broken between words, the rest below the words that explain an option where there is room for that.
std::string wrapped(std::string line, size_t width) {
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const size_t words = line.find_first_not_of(' ', line.find("  ", indent));
    const size_t hang = words <= width / 2 ? words : indent;
    std::string lines;
    while (ui::columns(line) > width) {
        size_t end = line.rfind(' ', width);
        if (end == std::string::npos || end <= hang) end = line.find(' ', hang + 1);  // a word that is too long
        const size_t next = line.find_first_not_of(' ', end);
        if (next == std::string::npos) break;
        lines += line.substr(0, line.find_last_not_of(' ', end) + 1) + "\n";
        line = std::string(hang, ' ') + line.substr(next);
    }
    return lines + line;
}

// As wide as the terminal is. Examples are left whole: they are there to be copied.
std::string help_text(Session& session, const Place& place) {
    if (session.json || !session.out_is_terminal || !session.out_size) return place.text;
    const auto width = static_cast<size_t>(std::max(session.out_size().columns, 1));
    std::istringstream lines(place.text);
    std::string text;
    for (std::string line; std::getline(lines, line);)
        text += (line.starts_with("  tnr ") ? line : wrapped(line, width)) + "\n";
    return text;
}

const Place* find_place(const std::vector<Place>& places, const std::string& path) {
    for (const auto& place : places)
        if (place.path == path) return &place;
    return nullptr;
}

// The path of what was typed, whose first word may be another name of a command.
std::string path_of(const std::vector<Place>& places, const std::vector<std::string>& words) {
    std::string path;
    for (const auto& word : words) path += (path.empty() ? "" : " ") + word;
    for (const auto& command : places.front().commands)
        for (const auto& alias : command.aliases)
            if (!words.empty() && words.front() == alias) path.replace(0, alias.size(), command.word);
    return path;
}

Result<> write_pages(Session& session, const std::vector<Place>& places, const std::string& folder) {
    constexpr mode_t for_everybody = 0644;
    auto write = [&](const std::string& name, const std::string& text) {
        return write_file(folder + "/" + name, text, for_everybody);
    };
    std::vector<std::string> commands = {""};
    for (const auto& command : places.front().commands) commands.push_back(command.word);
    for (const auto& command : commands)
        if (auto written = write(man_page_name(command), man_page(places, command, control::version())); !written)
            return written;
    if (auto written = write("commands.md", reference(places)); !written) return written;
    const std::string said = std::to_string(commands.size()) + " man pages and commands.md are in " + folder + "\n";
    print_topic(session, places.front(), said);
    return Ok{};
}

Result<> help(Session& session, const HelpOptions& options, const std::vector<Place>& places) {
    if (!options.folder.empty()) return write_pages(session, places, options.folder);
    const std::string path = path_of(places, options.topic);
    const auto* place = find_place(places, path);
    if (!place) {
        std::vector<std::string> names;
        for (const auto& each : places) names.push_back(each.path);
        return Error{Error::Kind::usage, "there is no command '" + path + "'",
                     did_you_mean(path, names) + "`tnr help` shows those there are"};
    }
    if (!options.man) {
        print_topic(session, *place, help_text(session, *place));
        return Ok{};
    }
    const std::string command = path.substr(0, path.find(' '));  // those below a command are on its page
    print_topic(session, *place, man_page(places, command, control::version()));
    return Ok{};
}

}  // namespace

void print_help(Session& session, const std::string& path, const std::vector<Place>& places) {
    if (const auto* place = find_place(places, path)) print_topic(session, *place, help_text(session, *place));
}

void add_help(Grammar& tnr, Session& session) {
    auto options = std::make_shared<HelpOptions>();
    auto command = tnr.command("help", "Show what a command does and takes");
    command.words("topic", options->topic, "The command; unless told, tnr as a whole");
    command.flag("--man", options->man, "As a man page: pipe it to `man -l -`");
    command.option("--write", options->folder, "Write all man pages and a reference, commands.md, into this folder");
    command.footer(
        "Examples:\n"
        "  tnr help start\n"
        "  tnr help login pool\n"
        "  tnr help --man status | man -l -\n"
        "  tnr help --write ~/.local/share/man/man1");
    command.run([&session, tnr, options] { session.result = help(session, *options, tnr.places()); });
}

}  // namespace tnr::cli
