// How a command that lists things shows them: -o and --columns, the same for all of them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/grammar.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

struct ListOptions {
    std::string format = {};   // table, wide, json, yaml, name; empty: table, or JSON under --json
    std::string columns = {};  // "name,state"; empty: those of the format
};
void add_list_options(Grammar& command, ListOptions& options);

// A heading is the column's name in capitals. The first column is the name of the thing.
struct Column {
    std::string name;
    bool wide = false;  // shown by -o wide and when it is asked for
};
using Row = std::vector<std::string>;  // a cell for each column; empty: "-"

// Before anything is asked: refuses what there is not, and makes -o json and -o yaml what --json is.
Result<> begin_list(Session& session, const ListOptions& options, const std::vector<Column>& columns);
// For people: after begin_list(), when session.json is not set.
void print_list(std::ostream& out, ui::Paint paint, const ListOptions& options, const std::vector<Column>& columns,
                const std::vector<Row>& rows);
// Whether the table that was asked for has this column.
bool shows(const ListOptions& options, const std::string& column, const std::vector<Column>& columns);
// -o name and --columns are for scripts: nothing but the rows, no summary.
bool bare(const ListOptions& options);

}  // namespace tnr::cli
