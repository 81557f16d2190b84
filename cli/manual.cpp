// See manual.hpp.
#include "cli/manual.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

// Text that roff shows as it is: neither a backslash nor a line's first dot or quote means anything.
std::string roff(const std::string& text) {
    std::string out;
    bool begins = true;
    for (char letter : text) {
        if (begins && (letter == '.' || letter == '\'')) out += "\\&";
        if (letter == '\\')
            out += "\\e";
        else if (letter == '-')
            out += "\\-";
        else
            out += letter;
        begins = letter == '\n';
    }
    return out;
}

std::string as_written(const std::string& text) {
    return ".nf\n" + roff(text) + "\n.fi\n";
}

// Lines that stand for themselves: some are indented, or end before the page does.
bool is_list(const std::string& paragraph) {
    constexpr size_t prose_line = 60;
    std::istringstream lines(paragraph);
    size_t length = prose_line;
    for (std::string line; std::getline(lines, line); length = line.size())
        if (length < prose_line || line.starts_with(' ')) return true;
    return false;
}

// Prose takes the width of whoever reads it, lists keep their lines.
std::string paragraphs(const std::string& text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find("\n\n", at), text.size());
        const auto paragraph = text.substr(at, end - at);
        out += ".PP\n" + (is_list(paragraph) ? as_written(paragraph) : roff(paragraph) + "\n");
        at = std::min(text.find_first_not_of('\n', end), text.size());
    }
    return out;
}

// Notes end with their examples, if they have any.
struct Notes {
    std::string words, examples;
};
Notes split_notes(const std::string& notes) {
    for (const char* heading : {"Examples:\n", "Example:\n"}) {
        size_t at = notes.rfind(heading);
        if (at == std::string::npos || (at > 0 && notes[at - 1] != '\n')) continue;
        std::string words = notes.substr(0, at);
        words.erase(words.find_last_not_of('\n') + 1);
        return {words, notes.substr(at + std::string(heading).size())};
    }
    return {notes, ""};
}

// The description of `tnr` itself begins with its name.
std::string what_of(const Place& place) {
    constexpr std::string_view name = "tnr: ";
    return place.what.compare(0, name.size(), name) == 0 ? place.what.substr(name.size()) : place.what;
}

std::string typed(const Place& place) {
    return place.path.empty() ? "tnr" : "tnr " + place.path;
}

// "tnr start [OPTIONS] [NAME]"
std::string synopsis(const Place& place) {
    std::string text = typed(place) + " [OPTIONS]";
    if (!place.commands.empty()) text += " COMMAND …";
    for (const auto& argument : place.arguments) {
        std::string word = ui::upper(argument.word) + (argument.many ? "…" : "");
        text += " ";
        text += argument.required ? word : "[" + word + "]";
    }
    return text;
}

std::string option_text(const Choice& option) {
    std::string text;
    for (const auto& name : option.aliases) text += name + ", ";
    return text + option.word + (option.takes_value ? " VALUE" : "");
}

std::string entries(const std::vector<Choice>& choices, std::string (*shown)(const Choice&)) {
    std::string text;
    for (const auto& choice : choices) text += ".TP\n.B " + roff(shown(choice)) + "\n" + roff(choice.what) + "\n";
    return text;
}

std::string command_text(const Choice& command) {
    std::string text = command.word;
    for (const auto& alias : command.aliases) text += ", " + alias;
    return text;
}

std::string argument_text(const Choice& argument) {
    return ui::upper(argument.word);
}

// What there is to say of one place, each part below a heading of the given kind.
std::string sections(const Place& place, const std::string& heading) {
    std::string text;
    auto notes = split_notes(place.notes);
    if (!notes.words.empty()) text += heading + " DESCRIPTION\n" + paragraphs(notes.words);
    if (!place.commands.empty()) text += heading + " COMMANDS\n" + entries(place.commands, command_text);
    if (!place.arguments.empty()) text += heading + " ARGUMENTS\n" + entries(place.arguments, argument_text);
    text += heading + " OPTIONS\n" + entries(place.options, option_text);
    if (!notes.examples.empty()) text += heading + " EXAMPLES\n" + as_written(notes.examples);
    return text;
}

bool is_below(const Place& place, const std::string& command) {
    return place.path.compare(0, command.size() + 1, command + " ") == 0;
}

// Of a table in Markdown: a bar would end the cell.
std::string cell(const std::string& text) {
    std::string out;
    for (char letter : text) {
        if (letter == '|') out += '\\';
        out += letter == '\n' ? ' ' : letter;
    }
    return out;
}

std::string markdown_table(const std::vector<Choice>& choices, std::string (*shown)(const Choice&)) {
    if (choices.empty()) return "";
    std::string text = "| | |\n|---|---|\n";
    for (const auto& choice : choices) text += "| `" + cell(shown(choice)) + "` | " + cell(choice.what) + " |\n";
    return text + "\n";
}

}  // namespace

std::string man_page_name(const std::string& command) {
    return command.empty() ? "tnr.1" : "tnr-" + command + ".1";
}

std::string man_page(const std::vector<Place>& places, const std::string& command, const std::string& version) {
    std::ostringstream page;
    const std::string title = command.empty() ? "tnr" : "tnr-" + command;
    for (const auto& place : places) {
        if (place.path == command) {
            page << ".TH " << ui::upper(roff(title)) << " 1 \"\" \"tnr " << version << "\" \"tnr manual\"\n.SH NAME\n"
                 << roff(title) << " \\- " << roff(what_of(place)) << "\n.SH SYNOPSIS\n.B " << roff(synopsis(place))
                 << "\n"
                 << sections(place, ".SH");
        } else if (!command.empty() && is_below(place, command)) {
            page << ".SH " << ui::upper(roff(typed(place))) << "\n"
                 << roff(place.what) << "\n.PP\n.B " << roff(synopsis(place)) << "\n"
                 << sections(place, ".SS");
        }
    }
    page << ".SH SEE ALSO\n";
    if (!command.empty())
        page << ".BR tnr (1)\n";
    else
        for (const auto& each : places.front().commands)
            page << ".BR " << roff("tnr-" + each.word) << " (1)"
                 << (&each == &places.front().commands.back() ? "" : ",") << "\n";
    return page.str();
}

std::string reference(const std::vector<Place>& places) {
    std::ostringstream page;
    page << "# Commands of tnr\n\nWritten by `tnr help --write`, from what the program itself knows.\n\n";
    for (const auto& place : places) {
        const std::string level = place.path.find(' ') == std::string::npos ? "## " : "### ";
        auto notes = split_notes(place.notes);
        page << level << typed(place) << "\n\n"
             << place.what << "\n\n```\n"
             << synopsis(place) << "\n```\n\n"
             << markdown_table(place.commands, command_text) << markdown_table(place.arguments, argument_text)
             << markdown_table(place.options, option_text);
        if (!notes.words.empty()) page << "```text\n" << notes.words << "\n```\n\n";
        if (!notes.examples.empty()) page << "```sh\n" << notes.examples << "\n```\n\n";
    }
    return page.str();
}

}  // namespace tnr::cli
