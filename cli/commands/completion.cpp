// `tnr completion`: written out of the grammar itself, so that it knows each option there is.
#include "cli/commands/completion.hpp"

#include <sstream>

#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/ssh/exec.hpp"

namespace tnr::cli {
namespace {

// The shell goes through the words before the cursor and follows those that are commands where they stand. Options are
// offered after a dash only; where no command can stand, files are, which is the shell's own default.
constexpr const char* bash_functions = R"sh(
_tnr() {
    local path="" word current="${COMP_WORDS[COMP_CWORD]}" hidden=''
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [ "$word" != -- ] || { COMPREPLY=(); return; }
        [ -z "$(_tnr_next "${path:+$path }$word")" ] || path="${path:+$path }$word"
    done
    [ "${current#-}" != "$current" ] || hidden='-*'
    COMPREPLY=($(compgen -X "$hidden" -W "$(_tnr_next "$path")" -- "$current"))
}
complete -o default -F _tnr tnr
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

std::string bash(const std::vector<Place>& places) {
    std::ostringstream script;
    script << "_tnr_next() {\n    case \"$1\" in\n";
    for (const auto& place : places) {
        script << "        '" << place.path << "') echo '";
        for (const auto& choice : place.commands) script << choice.word << " ";
        for (const auto& choice : place.options) script << choice.word << " ";
        script << "' ;;\n";
    }
    script << "    esac\n}" << bash_functions;
    return script.str();
}

std::string fish(const std::vector<Place>& places) {
    std::ostringstream paths, lines;
    for (const auto& place : places) {
        paths << " '" << place.path << "'";
        std::string at = "complete -c tnr -n '__tnr_at \"" + place.path + "\"' ";
        for (const auto& choice : place.commands)
            lines << at << "-f -a " << choice.word << " -d " << ssh::quoted(choice.what) << "\n";
        for (const auto& choice : place.options)
            lines << at << "-l " << choice.word.substr(2) << " -d " << ssh::quoted(choice.what) << "\n";
    }
    return "set -g __tnr_paths" + paths.str() + fish_function + lines.str();
}

}  // namespace

Result<std::string> completion(const std::string& shell, const std::vector<Place>& places) {
    if (shell == "bash") return bash(places);
    if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + bash(places);
    if (shell == "fish") return fish(places);
    return Error{Error::Kind::usage, "there is no completion for '" + shell + "'", "shells: bash, zsh, fish"};
}

void add_completion(Grammar& tnr, Session& session) {
    auto shell = std::make_shared<std::string>();
    auto command = tnr.command("completion", "Print what a shell needs to complete tnr's commands and options");
    command.required("shell", *shell, "bash, zsh or fish");
    command.footer(
        "Examples:\n"
        "  tnr completion bash > ~/.local/share/bash-completion/completions/tnr\n"
        "  source <(tnr completion zsh)       in ~/.zshrc, after compinit\n"
        "  tnr completion fish > ~/.config/fish/completions/tnr.fish");
    command.run([&session, tnr, shell] {
        auto script = completion(*shell, tnr.places());
        if (script && session.json)
            print_document(session, "completion", {{"shell", *shell}, {"script", *script}});
        else if (script)
            session.out << *script;
        session.result = script ? Result<>{Ok{}} : Result<>{script.error()};
    });
}

}  // namespace tnr::cli
