// See table.hpp.
#include "cli/ui/table.hpp"

#include <algorithm>

#include "cli/ui/text.hpp"

namespace tnr::ui {

// A cloud may say megabytes where a word belongs.
static constexpr size_t cell_columns_max = 1000;

void print_table(std::ostream& out, std::vector<std::vector<std::string>> rows, Paint paint) {
    std::vector<size_t> widths;
    for (auto& row : rows)
        for (auto& cell : row) cell = cut(plain_cell(cell), cell_columns_max);
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
