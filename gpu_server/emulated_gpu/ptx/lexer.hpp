// PTX text to tokens, one at a time: modules of 50 MB exist, a token vector of one would take gigabytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace tnr::ptx {

struct Token {
    // word: a name, register or mnemonic; dotted: ".u32", ".shared::cta", ".L2::128B" (text without the dot).
    enum class Kind : uint8_t { end, word, dotted, integer, real32, real64, string, punctuation, bad };
    Kind kind = Kind::end;
    uint32_t line = 1;
    std::string_view text;
    uint64_t value = 0;  // of integer; the bits of real32 and real64

    bool is(char c) const { return kind == Kind::punctuation && text[0] == c; }
    bool is_word(std::string_view w) const { return kind == Kind::word && text == w; }
    bool is_dotted(std::string_view w) const { return kind == Kind::dotted && text == w; }
};

// Keeps views into `text`, which must outlive it and its tokens.
class Lexer {
public:
    explicit Lexer(std::string_view text) : text_(text) {}
    Token next();

private:
    void skip_blank();
    Token number();
    Token hex_real(Token token);
    Token decimal_real(Token token, size_t end);
    Token take(Token token, Token::Kind kind, size_t end);
    char at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

    std::string_view text_;
    size_t pos_ = 0;
    uint32_t line_ = 1;
};

}  // namespace tnr::ptx
