// Tables, times and sizes as the operator's commands print them, for people; programs ask for JSON.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace tnr::server {

// The first row is the heading; all rows have as many cells. Empty cells show as "-". What others say may stand in them: it is
// made harmless to a terminal.
void print_table(std::ostream& out, std::vector<std::vector<std::string>> rows);

// "59s", "12m3s", "26h5m".
std::string duration_text(int64_t ms);
// In the largest unit in which it is whole: "3 bytes", "64 KiB", "1536 MiB".
std::string exact_bytes(uint64_t bytes);
// Rounded down to a tenth: "1.5 GiB".
std::string gib_text(uint64_t bytes);

}  // namespace tnr::server
