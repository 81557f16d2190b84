// See ask.hpp.
#include "cli/ask.hpp"

#include "api_client/base/interrupt.hpp"

namespace tnr::cli {

Result<std::optional<std::string>> ask(Session& session, const std::string& question) {
    if (session.in_is_terminal) session.err << question << std::flush;
    std::string answer;
    if (std::getline(session.in, answer)) return std::optional(answer);
    if (session.in_is_terminal) session.err << "\n";  // the question's line is not ended
    if (interrupt::interrupted()) return interrupt::error();
    return std::optional<std::string>();
}

std::function<void()> waiting_for(Session& session, const std::string& path) {
    return [&session, path] { session.err << "Waiting for somebody to write into " << path << "; Ctrl-C ends it\n"; };
}

Result<bool> ask_whether(Session& session, const std::string& question) {
    auto answer = ask(session, question + " [y/N] ");
    if (!answer) return answer.error();
    return *answer == "y" || *answer == "Y" || *answer == "yes";
}

}  // namespace tnr::cli
