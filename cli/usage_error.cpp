// See usage_error.hpp.
#include "cli/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "api_client/base/text.hpp"
#include "api_client/command_line/parsed.hpp"

namespace tnr::cli {
namespace {

// With their other names: who types `sl` means `ls`.
std::vector<std::string> words_below(const CLI::App& command) {
    auto words = commands_of(command);
    for (const auto* one : command.get_subcommands([](const CLI::App*) { return true; }))
        words.insert(words.end(), one->get_aliases().begin(), one->get_aliases().end());
    return words;
}

// CLI11 only says that a command is missing. What was typed where one goes, with the words that lead there.
std::string unknown_command(const Reached& at, const std::vector<std::string>& words) {
    if (commands_of(*at.command).empty()) return "";
    auto depth = std::count(at.path.begin(), at.path.end(), ' ');
    for (const auto& word : words)
        if (word.empty() || word[0] != '-')
            if (depth-- == 0) return word;
    return "";
}

// It is told before what is missing: perhaps it was meant to be that.
std::string unknown_option(const CLI::App& tnr) {
    const auto words = tnr.remaining(true);
    auto is_option = [](auto& word) { return word.starts_with('-') && word != "-" && word != "--"; };
    const auto found = std::find_if(words.begin(), words.end(), is_option);
    return found == words.end() ? "" : *found;
}

std::string missing(const Reached& at) {
    const std::string what = what_is_missing(at);
    return what.empty() ? "`" + at.path + "` needs a command: " + comma_separated(commands_of(*at.command)) : what;
}

// "The following argument was not expected: WORD …"
std::string unexpected_word(const std::string& said) {
    constexpr std::string_view before = "expected: ";
    auto begin = said.find(before);
    if (begin == std::string::npos) return "";
    std::istringstream rest{said.substr(begin + before.size())};
    std::string first, word;
    rest >> first;
    for (word = first; word[0] != '-' && rest >> word;) {
    }
    return word[0] == '-' ? word : first;  // an option that there is not left its value behind, too
}

// "did you mean '--gpu'? "
std::string nearest_hint(const Reached& at, const std::string& said) {
    const std::string word = unexpected_word(said);
    if (word.empty() || word[0] != '-') return did_you_mean(word, words_below(*at.command));
    std::vector<std::string> options;
    for (const auto* command = at.command; command; command = command->get_parent())
        for (const auto* option : command->get_options())
            for (const auto& name : option->get_lnames()) options.push_back("--" + name);
    if (std::find(options.begin(), options.end(), word) != options.end())
        return "what comes after `--` is no option: '" + word + "' goes before it; ";
    return did_you_mean(word.substr(0, word.find('=')), options);
}

std::string not_expected(const Reached& at, const std::string& said) {
    const std::string word = unexpected_word(said);
    if (word.empty()) return said;
    if (word[0] == '-') return "`" + at.path + "` has no option '" + word + "'";
    return "`" + at.path + "` does not expect '" + word + "'";
}

// "Could not convert: --yes = maybe": values are texts, so only a flag's can be wrong.
std::string not_a_flags_value(const std::string& said) {
    const size_t begin = said.find("--"), end = said.find(' ', begin);
    return begin == std::string::npos ? said : said.substr(begin, end - begin) + " takes no value";
}

// What the original tnr, of Thunder Compute, calls things: its users type it.
std::string other_word_hint(const std::string& said) {
    const std::string word = unexpected_word(said);
    for (const auto& [theirs, ours] : {std::pair{"--num-gpus", "the number of GPUs is part of --gpu: `--gpu h100:2`"},
                                       {"--mode",
                                        "the mode is part of a size: `--size h100_x1_production`, as "
                                        "`tnr offers --provider thunder` shows them"},
                                       {"--vcpus", "it is called --cpus here"},
                                       {"--disk-size-gb", "it is called --disk here"},
                                       {"--template", "it is called --image here"}})
        if (word.substr(0, word.find('=')) == theirs) return std::string(ours) + "; ";
    return "";
}

std::string other_command_hint(const std::string& word) {
    for (const auto& [theirs, ours] : {std::pair{"modify", "it is called `tnr resize` here"},
                                       {"device", "`tnr attach NAME TYPE` gives a machine another GPU"},
                                       {"update", "what has installed tnr updates it: pipx, pip or apt"}})
        if (word == theirs) return std::string(ours) + "; ";
    return "";
}

}  // namespace

std::optional<Error> other_way(const std::vector<std::string>& words) {
    struct Pair {
        const char *first, *second, *ours;
    };
    std::vector<std::string> said;
    for (const auto& word : words)
        if (word != "--json" && word != "--explain") said.push_back(word);
    if (said.size() < 2) return std::nullopt;
    for (const auto& [first, second, ours] :
         {Pair{"ports", "list", "`tnr ports NAME` shows what is open"},
          Pair{"ports", "forward",
               "`tnr ports NAME open PORT…` opens it to everybody, `close` ends that; for you alone: "
               "`tnr connect NAME -L PORT`"},
          Pair{"snapshot", "list", "`tnr snapshot --list` shows them"},
          Pair{"snapshot", "create", "`tnr snapshot NAME --name SNAPSHOT` makes one"},
          Pair{"snapshot", "delete", "`tnr snapshot --delete SNAPSHOT` removes one"},
          Pair{"login", "--token", "`tnr login thunder` asks for the token, or takes it on stdin"}})
        if (said[0] == first && said[1].substr(0, said[1].find('=')) == second)
            return Error{Error::Kind::usage, std::string("`tnr ") + first + " " + second + "` is called otherwise here",
                         ours};
    return std::nullopt;
}

bool takes_program(const CLI::App& command) {
    return command.get_option_no_throw("command") != nullptr;
}

Error usage_error(const CLI::App& tnr, const CLI::ParseError& problem, const std::vector<std::string>& words) {
    if (auto other = other_way(words)) return *other;
    auto at = reached(tnr);
    std::string what = problem.what(), hint = "`" + at.path + " --help` shows what there is";
    if (auto unknown = unknown_command(at, words); !unknown.empty()) {
        const auto known = words_below(*at.command);
        if (std::find(known.begin(), known.end(), unknown) != known.end())
            return {Error::Kind::usage, "`--` goes behind the command, not before '" + unknown + "'", hint};
        hint = did_you_mean(unknown, known);
        if (at.command == &tnr) {
            const std::string other = other_command_hint(unknown);
            return {Error::Kind::usage, "there is no command '" + unknown + "'",
                    (other.empty() ? hint : other) + "commands: " + comma_separated(commands_of(tnr))};
        }
        return {Error::Kind::usage, "`" + at.path + "` does not know '" + unknown + "'",
                hint + "it knows: " + comma_separated(commands_of(*at.command))};
    }
    const bool lacks = dynamic_cast<const CLI::RequiredError*>(&problem) != nullptr;
    const std::string option = lacks ? unknown_option(tnr) : "";
    if (lacks) what = option.empty() ? missing(at) : "not expected: " + option;
    if (!option.empty() || dynamic_cast<const CLI::ExtrasError*>(&problem)) {
        const std::string other = other_word_hint(what);
        hint = (other.empty() ? nearest_hint(at, what) : other) + hint;
        what = not_expected(at, what);
        if (takes_program(*at.command))
            hint = "what a program shall get goes after `--`: `" + at.path + " … -- PROGRAM …`; " + hint;
    }
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&problem)) what = wrong_number_of_values(what);
    if (dynamic_cast<const CLI::ConversionError*>(&problem)) what = not_a_flags_value(what);
    return {Error::Kind::usage, what, hint};
}

}  // namespace tnr::cli
