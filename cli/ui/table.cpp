// See table.hpp.
#include "cli/ui/table.hpp"

#include <algorithm>

#include "cli/ui/text.hpp"

namespace tnr::ui {
void print_table(std::ostream& out, std::vector<std::vector<std::string>> rows, Paint paint) {
    std::vector<size_t> widths;
    for (auto& row : rows)
        for (auto& cell : row) cell = plain_cell(cell);
    for (const auto& row : rows)
        for (size_t i = 0; i < row.size(); ++i) {
            widths.resize(std::max(widths.size(), i + 1));
            widths[i] = std::max(widths[i], std::max<size_t>(1, columns(row[i])));
        }
    for (const auto& row : rows) {
        for (size_t i = 0; i < row.size(); ++i) {
            std::string cell = row[i].empty() ? "-" : row[i];
            out << (&row == &rows.front() ? paint.strong(cell) : cell)
                << (i + 1 < row.size() ? std::string(widths[i] - columns(cell) + 2, ' ') : "\n");
        }
    }
}

}  // namespace tnr::ui
