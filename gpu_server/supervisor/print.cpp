// See print.hpp.
#include "gpu_server/supervisor/print.hpp"

#include <algorithm>

#include "gpu_server/pool/log.hpp"

namespace tnr::server {

void print_table(std::ostream& out, std::vector<std::vector<std::string>> rows) {
    for (auto& row : rows)
        for (auto& cell : row) cell = harmless(cell);
    std::vector<size_t> widths(rows.front().size(), 1);
    for (auto& row : rows)
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (auto& row : rows)
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string cell = row[i].empty() ? "-" : row[i];
            out << cell << (i + 1 < row.size() ? std::string(widths[i] + 2 - cell.size(), ' ') : "\n");
        }
}

std::string duration_text(int64_t ms) {
    const int64_t s = ms / 1000;
    if (s < 60) return std::to_string(s) + "s";
    if (s < 3600) return std::to_string(s / 60) + "m" + std::to_string(s % 60) + "s";
    return std::to_string(s / 3600) + "h" + std::to_string(s / 60 % 60) + "m";
}

std::string exact_bytes(uint64_t bytes) {
    const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) bytes /= 1024, ++unit;
    return std::to_string(bytes) + " " + units[unit];
}

std::string gib_text(uint64_t bytes) {
    return std::to_string(bytes >> 30) + "." + std::to_string((bytes >> 20) % 1024 * 10 / 1024) + " GiB";
}

}  // namespace tnr::server
