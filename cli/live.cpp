// See live.hpp.
#include "cli/live.hpp"

#include <sstream>

namespace tnr::cli {

void show_live(Session& session, const std::string& picture, bool first) {
    if (!session.out_redraws) {
        session.out << (first ? "" : "\n") << picture << std::flush;
        return;
    }
    auto size = session.out_size ? session.out_size() : ui::Size{};
    session.out << (first ? "\033[2J\033[H" : "\033[H");
    std::istringstream lines{picture};
    int shown = 0;
    for (std::string line; shown + 1 < size.rows && std::getline(lines, line); ++shown)
        session.out << ui::cut(line, static_cast<size_t>(size.columns)) << "\033[K\n";
    session.out << "\033[J" << std::flush;
}

}  // namespace tnr::cli
