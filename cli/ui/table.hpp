// Columns that line up, for people; scripts use --json.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/ui/text.hpp"

namespace tnr::ui {

// The first row is the heading. Empty cells show as "-".
void print_table(std::ostream& out, std::vector<std::vector<std::string>> rows, Paint paint = {});

}  // namespace tnr::ui
