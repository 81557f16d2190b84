// Text as a terminal shows it: how wide it is, how to cut it, how to colour it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tnr::ui {

// Columns that UTF-8 text takes: letters of East Asian scripts take two, colours none.
size_t columns(const std::string& text);
// At most that many columns of it, ending with "…" where something was left out. Control characters, which a server's
// words may hold, become spaces.
std::string cut(const std::string& text, size_t columns_max);

// Words of somebody else's (a cloud, a pool, a machine) as they may be shown: what a terminal would obey instead of showing
// it, what turns the direction of writing, and what is no UTF-8, is escaped: "\033[2J". Ends of lines and tabs stay unless they
// are among what shall be escaped, `also`.
std::string plain(const std::string& text, std::string_view also = "");
// The same of a table's cell, which is one line, and which Paint may have coloured.
std::string plain_cell(const std::string& text);
// Of a JSON document, in which what a terminal obeys is escaped as JSON does: "\u009b".
std::string plain_json(const std::string& json);

// Of a terminal's window, in characters.
struct Size {
    int rows = 24, columns = 80;
};

inline constexpr const char* colour_ends = "\033[0m";

// Colours where a terminal shows them, and nothing elsewhere.
struct Paint {
    bool on = false;
    std::string good(const std::string& text) const { return with("32", text); }
    std::string bad(const std::string& text) const { return with("31", text); }
    std::string doubtful(const std::string& text) const { return with("33", text); }
    std::string strong(const std::string& text) const { return with("1", text); }

private:
    std::string with(const char* code, const std::string& text) const {
        return on ? std::string("\033[") + code + "m" + text + colour_ends : text;
    }
};

// The number that `text` begins with, and what follows it: 8 and "GiB", 0.05 and "EUR". Whatever the language of the
// environment, a dot is a dot. Nothing where there is none or one that is below 0. (std::from_chars, which macOS lacks.)
struct LeadingNumber {
    double number = 0;
    std::string_view rest;
};
std::optional<LeadingNumber> leading_number(std::string_view text);

std::string lower(std::string text);
std::string upper(std::string text);

}  // namespace tnr::ui
