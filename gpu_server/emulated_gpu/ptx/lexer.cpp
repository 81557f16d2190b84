// See lexer.hpp. Anything the grammar does not know becomes a `bad` token; the parser reports it.
#include "gpu_server/emulated_gpu/ptx/lexer.hpp"

#include <bit>
#include <cctype>
#include <cstdlib>
#include <string>

namespace tnr::ptx {
namespace {

// Longest decimal real we convert: longer ones are no number a compiler wrote.
constexpr size_t real_chars_max = 64;

bool starts_word(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}
bool in_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$';
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

int digit_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

}  // namespace

void Lexer::skip_blank() {
    while (pos_ < text_.size()) {
        char c = text_[pos_];
        if (c == '\n') ++line_;
        if (std::isspace(static_cast<unsigned char>(c))) {
            ++pos_;
        } else if (c == '/' && at(pos_ + 1) == '/') {
            while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
        } else if (c == '/' && at(pos_ + 1) == '*') {
            pos_ += 2;
            while (pos_ < text_.size() && !(text_[pos_] == '*' && at(pos_ + 1) == '/')) {
                if (text_[pos_++] == '\n') ++line_;
            }
            pos_ = pos_ < text_.size() ? pos_ + 2 : pos_;
        } else {
            return;
        }
    }
}

Token Lexer::take(Token token, Token::Kind kind, size_t end) {
    token.kind = kind;
    token.text = text_.substr(pos_, end - pos_);
    pos_ = end;
    return token;
}

// 0f3F800000 and 0d3FF0000000000000: exactly 8 or 16 digits.
Token Lexer::hex_real(Token token) {
    bool single = at(pos_ + 1) == 'f' || at(pos_ + 1) == 'F';
    size_t end = pos_ + 2, digits = single ? 8 : 16;
    for (; digits > 0 && digit_value(at(end)) < 16; --digits, ++end)
        token.value = token.value << 4 | static_cast<uint64_t>(digit_value(at(end)));
    if (digits > 0) return take(token, Token::Kind::bad, end);
    return take(token, single ? Token::Kind::real32 : Token::Kind::real64, end);
}

Token Lexer::decimal_real(Token token, size_t end) {
    if (at(end) == '.') ++end;
    while (is_digit(at(end))) ++end;
    if (at(end) == 'e' || at(end) == 'E') {
        ++end;
        if (at(end) == '+' || at(end) == '-') ++end;
        while (is_digit(at(end))) ++end;
    }
    if (end - pos_ > real_chars_max) return take(token, Token::Kind::bad, end);
    token.value = std::bit_cast<uint64_t>(std::strtod(std::string(text_.substr(pos_, end - pos_)).c_str(), nullptr));
    return take(token, Token::Kind::real64, end);
}

Token Lexer::number() {
    Token token;
    token.line = line_;
    char second = at(pos_ + 1);
    if (at(pos_) == '0' && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) return hex_real(token);
    int base = 10;
    size_t end = pos_;
    if (at(pos_) == '0' && (second == 'x' || second == 'X'))
        base = 16, end += 2;
    else if (at(pos_) == '0' && (second == 'b' || second == 'B'))
        base = 2, end += 2;
    else if (at(pos_) == '0' && is_digit(second))
        base = 8;
    size_t first = end;
    while (digit_value(at(end)) < base)
        token.value = token.value * base + static_cast<uint64_t>(digit_value(at(end++)));
    if (base == 10 && ((at(end) == '.' && is_digit(at(end + 1))) || at(end) == 'e' || at(end) == 'E'))
        return decimal_real(token, end);
    bool empty = end == first;
    if (at(end) == 'U' || at(end) == 'u') ++end;
    return take(token, empty || in_word(at(end)) ? Token::Kind::bad : Token::Kind::integer, end);
}

Token Lexer::next() {
    skip_blank();
    Token token;
    token.line = line_;
    if (pos_ >= text_.size()) return token;
    char c = text_[pos_];
    if (is_digit(c)) return number();
    size_t end = pos_ + 1;
    if (starts_word(c)) {
        while (in_word(at(end))) ++end;
        return take(token, Token::Kind::word, end);
    }
    if (c == '.' && (in_word(at(end)))) {
        while (in_word(at(end)) || (at(end) == ':' && at(end + 1) == ':')) end += at(end) == ':' ? 2 : 1;
        token = take(token, Token::Kind::dotted, end);
        token.text.remove_prefix(1);
        return token;
    }
    if (c == '"') {
        while (end < text_.size() && text_[end] != '"' && text_[end] != '\n') ++end;
        if (at(end) != '"') return take(token, Token::Kind::bad, end);
        token = take(token, Token::Kind::string, end + 1);
        token.text = token.text.substr(1, token.text.size() - 2);
        return token;
    }
    bool known = std::string_view(",;:{}()[]<>+-*/=|!@&^~?#").find(c) != std::string_view::npos;
    return take(token, known ? Token::Kind::punctuation : Token::Kind::bad, end);
}

}  // namespace tnr::ptx
