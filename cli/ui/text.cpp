// See text.hpp.
#include "cli/ui/text.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <locale>
#include <sstream>
#include <utility>

namespace tnr::ui {
namespace {

// One character, or one colour sequence, of which `text` from `at` on begins.
struct Glyph {
    size_t bytes = 1;
    size_t columns = 1;
};

bool is_wide(uint32_t code) {
    return (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
           (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) ||
           (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) ||
           (code >= 0xffe0 && code <= 0xffe6) || (code >= 0x1f300 && code <= 0x1faff) ||
           (code >= 0x20000 && code <= 0x3fffd);
}

bool is_combining(uint32_t code) {
    return (code >= 0x300 && code <= 0x36f) || (code >= 0x200b && code <= 0x200f) || (code >= 0xfe00 && code <= 0xfe0f);
}

Glyph glyph_at(const std::string& text, size_t at) {
    auto first = static_cast<unsigned char>(text[at]);
    if (first == '\033' && at + 1 < text.size() && text[at + 1] == '[') {
        size_t end = text.find('m', at);
        return {(end == std::string::npos ? text.size() : end + 1) - at, 0};
    }
    size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    bytes = std::min(bytes, text.size() - at);
    uint32_t code = bytes == 1 ? first : first & (0xffu >> (bytes + 1));
    for (size_t i = 1; i < bytes; ++i) code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
    return {bytes, is_combining(code) ? size_t{0} : is_wide(code) ? size_t{2} : size_t{1}};
}

bool is_obeyed(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

struct Character {
    size_t bytes = 0;  // 0: that is no UTF-8
    uint32_t code = 0;
};

Character character_at(const std::string& text, size_t at) {
    auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) return {1, first};
    const size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (bytes == 0 || at + bytes > text.size()) return {};
    uint32_t code = first & (0xffu >> (bytes + 1));
    for (size_t i = 1; i < bytes; ++i) {
        auto next = static_cast<unsigned char>(text[at + i]);
        if ((next & 0xc0u) != 0x80) return {};
        code = code << 6 | (next & 0x3fu);
    }
    return {bytes, code};
}

// How many bytes of `text` from `at` on are a character that may be shown; 0: none of them.
size_t shown_bytes(const std::string& text, size_t at) {
    const Character character = character_at(text, at);
    return is_obeyed(character.code) ? 0 : character.bytes;
}

// Of a colour, "\033[32m", as Paint writes them; else 0.
size_t colour_bytes(const std::string& text, size_t at) {
    if (text.compare(at, 2, "\033[") != 0) return 0;
    const size_t end = text.find_first_not_of("0123456789;", at + 2);
    return end != std::string::npos && text[end] == 'm' ? end + 1 - at : 0;
}

std::string plain_text(const std::string& text, bool cell, std::string_view also = "") {
    std::string shown;
    for (size_t at = 0; at < text.size();) {
        size_t bytes = shown_bytes(text, at);
        if (bytes == 0 && cell) bytes = colour_bytes(text, at);
        if (bytes == 0 && !cell && (text[at] == '\n' || text[at] == '\t')) bytes = 1;
        if (also.find(text[at]) != std::string_view::npos) bytes = 0;
        shown += text.substr(at, bytes);
        at += bytes;
        if (bytes > 0) continue;
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\%03o", static_cast<unsigned>(static_cast<unsigned char>(text[at++])));
        shown += escape;
    }
    return shown;
}

}  // namespace

size_t columns(const std::string& text) {
    size_t sum = 0;
    for (size_t at = 0; at < text.size();) {
        Glyph glyph = glyph_at(text, at);
        sum += glyph.columns;
        at += glyph.bytes;
    }
    return sum;
}

std::string cut(const std::string& text, size_t columns_max) {
    std::string plain = text;
    for (char& letter : plain)
        if (static_cast<unsigned char>(letter) < ' ' && letter != '\033') letter = ' ';
    if (columns(plain) <= columns_max) return plain;
    if (columns_max == 0) return "";
    std::string kept;
    bool coloured = false;
    for (size_t at = 0, used = 0; at < plain.size();) {
        Glyph glyph = glyph_at(plain, at);
        if ((used += glyph.columns) > columns_max - 1) break;
        kept += plain.substr(at, glyph.bytes);
        at += glyph.bytes;
        coloured |= colour_bytes(plain, at - glyph.bytes) > 0;
    }
    return kept + "…" + (coloured ? colour_ends : "");  // else what follows would have the colour of what was cut
}

std::string plain(const std::string& text, std::string_view also) {
    return plain_text(text, false, also);
}

std::string plain_cell(const std::string& text) {
    return plain_text(text, true);
}

std::string plain_json(const std::string& json) {
    std::string shown;
    for (size_t at = 0; at < json.size();) {
        const Character character = character_at(json, at);
        const size_t bytes = std::max<size_t>(1, character.bytes);
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", character.code & 0xffffu);
        // What is below a blank is between JSON's values; in texts it is escaped already.
        shown += character.code > ' ' && is_obeyed(character.code) ? escape : json.substr(at, bytes);
        at += bytes;
    }
    return shown;
}

std::optional<LeadingNumber> leading_number(std::string_view text) {
    size_t end = 0;
    auto digits = [&] {
        const size_t begin = end;
        while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
        return end - begin;
    };
    size_t found = digits();
    if (end < text.size() && text[end] == '.') ++end, found += digits();
    if (found == 0) return std::nullopt;
    // "1e3" is a thousand, "5EUR" are five.
    const size_t whole = end;
    if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) ++end;
    if (end > whole && end < text.size() && (text[end] == '-' || text[end] == '+')) ++end;
    if (end == whole || digits() == 0) end = whole;
    std::istringstream in{std::string(text.substr(0, end))};
    in.imbue(std::locale::classic());
    LeadingNumber leading{0, text.substr(end)};
    return in >> leading.number ? std::optional(leading) : std::nullopt;
}

std::string lower(std::string text) {
    for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return text;
}

std::string upper(std::string text) {
    for (char& letter : text) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    return text;
}

}  // namespace tnr::ui
