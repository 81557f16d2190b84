// `tnr completion`: written out of the grammar itself, so that it knows each option there is. Names of machines, providers
// and types of GPU come from `tnr completion --values KIND`, which the scripts call and which asks nobody.
#include "cli/commands/completion.hpp"

#include <sstream>

#include "api_client/base/files.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/money/bill.hpp"
#include "cli/overview.hpp"
#include "cli/ssh/exec.hpp"

namespace tnr::cli {
namespace {

// The shell goes through the words before the cursor, follows those that are commands where they stand, and counts the
// others, but for options and their values. Options are offered after a dash only; where nothing of ours can stand, files
// are, which is the shell's own default. zsh runs this, too: there `path` is the list of folders with programs, and an
// array's bounds want $(( )). bash breaks --gpu=h100:2 at its signs, zsh does not.
constexpr const char* bash_functions = R"sh(
_tnr() {
    local place="" word value="" count=0 current="${COMP_WORDS[COMP_CWORD]}" kind="" known="" options="" begun=""
    for word in "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
        case "$word" in
            --) COMPREPLY=(); return ;;
            =) continue ;;
            :) value=any; continue ;;
        esac
        if [ -n "$value" ]; then value=""; continue; fi
        case "$word" in
            -*=*) continue ;;
            -*) value="$(_tnr_value "$place $word")"; continue ;;
        esac
        if [ -n "$(_tnr_next "${place:+$place }$word")" ]; then
            place="${place:+$place }$word"
        else
            count=$((count + 1))
        fi
    done
    case "$current" in
        =) current="" ;;
        --*=*) begun="${current%%=*}="; value="$(_tnr_value "$place ${current%%=*}")"; current="${current#*=}" ;;
        -*) options=shown ;;
    esac
    kind="${value:-$(_tnr_argument "$place $count")}"
    if [ -n "$value" ] || { [ -n "$kind" ] && [ -z "$options" ]; }; then
        known="$("${COMP_WORDS[0]}" completion --values "$kind" 2>/dev/null)"
    else
        for word in $(_tnr_next "$place"); do
            case "$word" in
                -*) [ -z "$options" ] || known="$known $word" ;;
                *) known="$known $word" ;;
            esac
        done
    fi
    COMPREPLY=($(compgen -P "$begun" -W "$known" -- "$current"))
}
complete -o default -F _tnr tnr
)sh";

// Read by `source`, or found by compinit in a folder of $fpath: then the whole file is _tnr, and runs at the first Tab.
constexpr const char* zsh_begin = R"sh(#compdef tnr
autoload -U +X bashcompinit && bashcompinit
)sh";
constexpr const char* zsh_end = R"sh([ "${funcstack[1]}" != _tnr ] || _bash_complete -o default -F _tnr
)sh";

constexpr const char* fish_function = R"sh(
function __tnr_at
    set -l path ''
    for word in (commandline -opc)[2..-1]
        test "$word" = --; and return 1
        set -l further (string trim -- "$path $word")
        contains -- "$further" $__tnr_paths; and set path $further
    end
    test "$path" = "$argv[1]"
end
)sh";

// What `tnr completion --values` can list; a value that is none of it is the shell's own business: a file, a number.
const std::vector<std::string> value_kinds = {"name", "provider", "gpu", "output", "by", "shell"};

std::string kind_of(const std::string& word) {
    std::string name = word.substr(word.find_first_not_of('-'));
    if (name == "machine") return "name";
    for (const auto& kind : value_kinds)
        if (name == kind) return kind;
    return "";
}

// Each place once more for each other name of its command: what is typed is followed, whatever name it has.
std::vector<Place> with_aliases(const std::vector<Place>& places) {
    std::vector<Place> all = places;
    for (const auto& command : places.front().commands)
        for (const auto& alias : command.aliases)
            for (const auto& place : places) {
                if (place.path != command.word &&
                    place.path.compare(0, command.word.size() + 1, command.word + " ") != 0)
                    continue;
                all.push_back(place);
                all.back().path.replace(0, command.word.size(), alias);
            }
    return all;
}

std::string bash(const std::vector<Place>& places) {
    std::ostringstream next, value, argument;
    for (const auto& place : with_aliases(places)) {
        next << "        '" << place.path << "') echo '";
        for (const auto& choice : place.commands) next << choice.word << " ";
        for (const auto& choice : place.options) next << choice.word << " ";
        next << "' ;;\n";
        for (const auto& choice : place.options) {
            if (!choice.takes_value) continue;
            value << "        '" << place.path << " " << choice.word << "'";
            for (const auto& alias : choice.aliases) value << "|'" << place.path << " " << alias << "'";
            value << ") echo '" << (kind_of(choice.word).empty() ? "any" : kind_of(choice.word)) << "' ;;\n";
        }
        for (size_t i = 0; i < place.arguments.size(); ++i) {
            const auto& choice = place.arguments[i];
            if (kind_of(choice.word).empty()) continue;
            argument << "        '" << place.path << " '" << (choice.many ? "*" : std::to_string(i)) << ") echo '"
                     << kind_of(choice.word) << "' ;;\n";
        }
    }
    return "_tnr_next() {\n    case \"$1\" in\n" + next.str() + "    esac\n}\n_tnr_value() {\n    case \"$1\" in\n" +
           value.str() + "    esac\n}\n_tnr_argument() {\n    case \"$1\" in\n" + argument.str() + "    esac\n}" +
           bash_functions;
}

std::string fish(const std::vector<Place>& places) {
    std::ostringstream paths, lines;
    for (const auto& place : with_aliases(places)) {
        paths << " '" << place.path << "'";
        std::string at = "complete -c tnr -n '__tnr_at \"" + place.path + "\"' ";
        auto values = [](const std::string& kind) { return "-a '(tnr completion --values " + kind + " 2>/dev/null)'"; };
        for (const auto& choice : place.commands)
            lines << at << "-f -a " << choice.word << " -d " << ssh::quoted(choice.what) << "\n";
        for (const auto& choice : place.arguments)
            if (auto kind = kind_of(choice.word); !kind.empty()) lines << at << "-f " << values(kind) << "\n";
        for (const auto& choice : place.options) {
            lines << at << "-l " << choice.word.substr(2) << " -d " << ssh::quoted(choice.what);
            if (auto kind = kind_of(choice.word); choice.takes_value)
                lines << (kind.empty() ? " -r" : " -x " + values(kind));
            lines << "\n";
        }
    }
    return "set -g __tnr_paths" + paths.str() + fish_function + lines.str();
}

// Whoever presses Tab does not want to wait for a network: types are those that `status` and `gpus` saw last.
std::string values_of(Session& session, const std::string& kind) {
    std::string text;
    auto add = [&](const std::string& word) { text += word + "\n"; };
    if (kind == "name")
        for (const auto& record : session.records().all().records) add(record.name);
    if (kind == "provider")
        for (const auto& name : session.provider_names) add(name);
    if (kind == "gpu")
        if (auto types = read_file(seen_gpu_types_path(session))) text = *types;
    if (kind == "output")
        for (const char* format : {"table", "wide", "json", "yaml", "name"}) add(format);
    if (kind == "by")
        for (const auto& group : bill_groups()) add(group);
    if (kind == "shell")
        for (const char* shell : {"bash", "zsh", "fish"}) add(shell);
    return text;
}

}  // namespace

Result<std::string> completion(const std::string& shell, const std::vector<Place>& places) {
    if (shell == "bash") return bash(places);
    if (shell == "zsh") return zsh_begin + bash(places) + zsh_end;
    if (shell == "fish") return fish(places);
    if (shell.empty())
        return Error{Error::Kind::usage, "`tnr completion` needs SHELL (bash, zsh or fish)",
                     "`tnr completion --help` shows where it goes"};
    return Error{Error::Kind::usage, "there is no completion for '" + shell + "'", "shells: bash, zsh, fish"};
}

void add_completion(Grammar& tnr, Session& session) {
    auto shell = std::make_shared<std::string>(), kind = std::make_shared<std::string>();
    auto command = tnr.command("completion", "Print what a shell needs to complete tnr's commands and options");
    command.option("shell", *shell, "bash, zsh or fish");
    command.option("--values", *kind, "What the scripts ask for: the names, providers or types of GPU there are");
    command.footer(
        "Examples:\n"
        "  tnr completion bash > ~/.local/share/bash-completion/completions/tnr\n"
        "  source <(tnr completion zsh)       in ~/.zshrc, after compinit\n"
        "  tnr completion fish > ~/.config/fish/completions/tnr.fish");
    command.run([&session, tnr, shell, kind] {
        auto script = kind->empty() ? completion(*shell, tnr.places()) : Result<std::string>{values_of(session, *kind)};
        if (script && session.json)
            print_document(session, "completion", {{"shell", *shell}, {"script", *script}});
        else if (script)
            session.out << *script;
        session.result = script ? Result<>{Ok{}} : Result<>{script.error()};
    });
}

}  // namespace tnr::cli
