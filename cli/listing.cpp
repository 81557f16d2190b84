// See listing.hpp.
#include "cli/listing.hpp"

#include <algorithm>
#include <sstream>

#include "api_client/base/text.hpp"
#include "cli/ui/table.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

const std::vector<std::string> list_formats = {"table", "wide", "json", "yaml", "name"};

std::vector<std::string> split_at_commas(const std::string& text) {
    std::vector<std::string> words;
    std::istringstream parts{text};
    for (std::string word; std::getline(parts, word, ',');) words.push_back(ui::lower(word));
    return words;
}

std::vector<std::string> names_of(const std::vector<Column>& columns) {
    std::vector<std::string> names;
    for (const auto& column : columns) names.push_back(column.name);
    return names;
}

// The columns to show, by their places in `columns`.
std::vector<size_t> chosen(const ListOptions& options, const std::vector<Column>& columns) {
    std::vector<size_t> places;
    for (const auto& word : split_at_commas(options.columns))
        for (size_t i = 0; i < columns.size(); ++i)
            if (columns[i].name == word) places.push_back(i);
    if (!places.empty()) return places;
    for (size_t i = 0; i < columns.size(); ++i)
        if (!columns[i].wide || options.format == "wide") places.push_back(i);
    return places;
}

std::string heading(std::string name) {
    std::replace(name.begin(), name.end(), '_', ' ');
    return ui::upper(name);
}

}  // namespace

void add_list_options(Grammar& command, ListOptions& options) {
    command.option("-o,--output", options.format, "How to show it: " + comma_separated(list_formats));
    command.option("--columns", options.columns, "The columns to show, by their names: a,b,c");
}

Result<> begin_list(Session& session, const ListOptions& options, const std::vector<Column>& columns) {
    const std::string& format = options.format;
    if (!format.empty() && std::find(list_formats.begin(), list_formats.end(), format) == list_formats.end())
        return Error{Error::Kind::usage, "there is no output '" + format + "'",
                     did_you_mean(format, list_formats) + "there are " + comma_separated(list_formats)};
    session.json |= format == "json" || format == "yaml";
    session.yaml |= format == "yaml";
    auto names = names_of(columns);
    for (const auto& word : split_at_commas(options.columns))
        if (std::find(names.begin(), names.end(), word) == names.end())
            return Error{Error::Kind::usage, "there is no column '" + word + "'",
                         did_you_mean(word, names) + "columns: " + comma_separated(names)};
    if (!options.columns.empty() && (session.json || format == "name"))
        return Error{Error::Kind::usage, "--columns is for tables",
                     "take `-o table`, or choose from the document: `-o json | jq …`"};
    return Ok{};
}

bool shows(const ListOptions& options, const std::string& column, const std::vector<Column>& columns) {
    if (options.format == "name" || options.format == "json" || options.format == "yaml") return false;
    for (size_t place : chosen(options, columns))
        if (columns[place].name == column) return true;
    return false;
}

void print_list(std::ostream& out, ui::Paint paint, const ListOptions& options, const std::vector<Column>& columns,
                const std::vector<Row>& rows) {
    if (options.format == "name") {
        for (const auto& row : rows) out << ui::plain_cell(row.front()) << "\n";
        return;
    }
    auto places = chosen(options, columns);
    std::vector<Row> shown(1);
    for (size_t place : places) shown.front().push_back(heading(columns[place].name));
    for (const auto& row : rows) {
        shown.emplace_back();
        for (size_t place : places) shown.back().push_back(row[place]);
    }
    ui::print_table(out, shown, paint);
}

bool bare(const ListOptions& options) {
    return options.format == "name" || !options.columns.empty();
}

}  // namespace tnr::cli
