// Width is counted in characters, not bytes: names may be in any language.
#include "cli/ui/table.hpp"

#include <algorithm>

namespace tnr::ui {
namespace {

size_t width(const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& rows) {
    std::vector<size_t> widths;
    for (const auto& row : rows)
        for (size_t i = 0; i < row.size(); ++i) {
            widths.resize(std::max(widths.size(), i + 1));
            widths[i] = std::max(widths[i], std::max<size_t>(1, width(row[i])));
        }
    for (const auto& row : rows) {
        for (size_t i = 0; i < row.size(); ++i) {
            std::string cell = row[i].empty() ? "-" : row[i];
            out << cell << (i + 1 < row.size() ? std::string(widths[i] - width(cell) + 2, ' ') : "\n");
        }
    }
}

}  // namespace tnr::ui
