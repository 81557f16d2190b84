// The variables of PTX. A declaration is wherever `.global` or `.const` is a word of its own (ld.global is none), unless
// it says what a parameter points to (.ptr .global). See image_variables.hpp.
#include <algorithm>
#include <cctype>
#include <charconv>

#include "gpu_server/worker/image_variables.hpp"
#include "gpu_server/worker/saturating.hpp"

namespace tnr::worker {
namespace {

bool in_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '@';
}

// Words (with their dot, if they have one), numbers, and single characters; no comments, and of a text its first quote.
class PtxWords {
public:
    explicit PtxWords(std::string_view text) : text_(text) { advance(); }

    std::string_view word() const { return word_; }  // empty: the end
    bool is(std::string_view word) const { return word_ == word; }
    void advance();
    bool accept(std::string_view word) {
        if (word_ != word) return false;
        advance();
        return true;
    }

private:
    void skip_blank();
    void skip_past(std::string_view end, size_t from) {
        auto found = text_.find(end, from);
        at_ = found == std::string_view::npos ? text_.size() : found + end.size();
    }

    std::string_view text_;
    size_t at_ = 0;
    std::string_view word_;
};

void PtxWords::skip_blank() {
    while (at_ < text_.size()) {
        auto rest = text_.substr(at_, 2);
        if (rest == "//")
            skip_past("\n", at_);
        else if (rest == "/*")
            skip_past("*/", at_ + 2);
        else if (std::isspace(static_cast<unsigned char>(rest[0])))
            ++at_;
        else
            return;
    }
}

void PtxWords::advance() {
    skip_blank();
    const size_t begin = at_;
    if (at_ == text_.size() || text_[at_] == '\0') {
        word_ = {};
        return;
    }
    if (text_[at_] == '"') {
        skip_past("\"", at_ + 1);
        word_ = text_.substr(begin, 1);
        return;
    }
    ++at_;
    bool dotted = text_[begin] == '.', part = dotted || in_word(text_[begin]);
    // ld.global is one word; .global.u32 is two.
    auto goes_on = [&](char c) { return in_word(c) || (!dotted && c == '.'); };
    while (part && at_ < text_.size() && goes_on(text_[at_])) ++at_;
    word_ = text_.substr(begin, at_ - begin);
}

std::optional<uint64_t> number(std::string_view word) {
    int base = 10;
    if (word.ends_with('U')) word.remove_suffix(1);
    if (word.size() > 1 && word[0] == '0') {
        base = word[1] == 'x' || word[1] == 'X' ? 16 : word[1] == 'b' || word[1] == 'B' ? 2 : 8;
        word.remove_prefix(base == 8 ? 1 : 2);
    }
    uint64_t value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
    return value;
}

// The constant expressions of PTX, as far as a size may be one: numbers, ( ), and + - * / % << >> & | ^.
class PtxConstant {
public:
    explicit PtxConstant(PtxWords& words) : words_(words) {}

    std::optional<uint64_t> value(int weakest = 1, int depth = 0);

private:
    static constexpr int depth_max = 64;
    static int strength(std::string_view sign);
    std::optional<uint64_t> operand(int depth);
    static std::optional<uint64_t> apply(char sign, uint64_t a, uint64_t b);

    PtxWords& words_;
};

int PtxConstant::strength(std::string_view sign) {
    static constexpr std::string_view by_strength[] = {"|", "^", "&", "<>", "+-", "*/%"};
    for (int i = 0; i < static_cast<int>(std::size(by_strength)); ++i)
        if (sign.size() == 1 && by_strength[i].find(sign[0]) != std::string_view::npos) return i + 1;
    return 0;
}

std::optional<uint64_t> PtxConstant::apply(char sign, uint64_t a, uint64_t b) {
    switch (sign) {
        case '+':
            return a + b;
        case '-':
            return a - b;
        case '*':
            return saturating_product(a, b);
        case '/':
            return b == 0 ? std::nullopt : std::optional(a / b);
        case '%':
            return b == 0 ? std::nullopt : std::optional(a % b);
        case '<':
            return b < 64 && (a << b >> b) == a ? a << b : UINT64_MAX;
        case '>':
            return b < 64 ? a >> b : 0;
        case '&':
            return a & b;
        case '|':
            return a | b;
        default:
            return a ^ b;
    }
}

std::optional<uint64_t> PtxConstant::operand(int depth) {
    if (depth == depth_max) return std::nullopt;
    if (words_.accept("+")) return operand(depth + 1);
    if (words_.accept("-")) {
        auto negative = operand(depth + 1);
        return negative ? std::optional(uint64_t{0} - *negative) : std::nullopt;
    }
    if (words_.accept("(")) {
        auto inside = value(1, depth + 1);
        return inside && words_.accept(")") ? inside : std::nullopt;
    }
    auto found = number(words_.word());
    if (found) words_.advance();
    return found;
}

std::optional<uint64_t> PtxConstant::value(int weakest, int depth) {
    auto sum = operand(depth);
    while (sum) {
        const auto sign = words_.word();
        const int strong = strength(sign);
        if (strong < weakest || strong == 0) break;
        words_.advance();
        bool shifts = sign == "<" || sign == ">";
        if (shifts && !words_.accept(sign)) return std::nullopt;
        auto next = value(strong + 1, depth + 1);
        if (!next) return std::nullopt;
        sum = apply(sign[0], *sum, *next);
    }
    return sum;
}

// .b8, .f16x2, .u64; what is not a number of bits is a reference or a narrow float, and small.
uint64_t bytes_of_type(std::string_view type) {
    if (type.ends_with("x2")) return 4;
    auto digits = type.find_first_of("0123456789");
    auto bits = digits == std::string_view::npos ? std::nullopt : number(type.substr(digits));
    return std::clamp<uint64_t>(bits.value_or(64) / 8, 1, 16);
}

class PtxVariables {
public:
    explicit PtxVariables(std::string_view text) : words_(text) {}

    std::optional<uint64_t> sum();

private:
    bool declaration(bool elsewhere);
    bool attribute();
    bool variable(uint64_t element, uint64_t align, bool elsewhere);
    uint64_t initial_values();

    PtxWords words_;
    uint64_t sum_ = 0;
};

std::optional<uint64_t> PtxVariables::sum() {
    bool elsewhere = false;
    while (!words_.word().empty()) {
        if (words_.accept(".ptr")) {  // a parameter's: .ptr .global .align 8
            words_.advance();
            continue;
        }
        if (words_.accept(".extern")) {
            elsewhere = true;
            continue;
        }
        if (words_.is(".global") || words_.is(".const")) {
            words_.advance();
            if (!declaration(elsewhere)) return std::nullopt;
            elsewhere = false;
            continue;
        }
        if (words_.is(";") || words_.is("{")) elsewhere = false;
        words_.advance();
    }
    return sum_;
}

bool PtxVariables::declaration(bool elsewhere) {
    uint64_t element = 0, vector = 1, align = 1;
    if (words_.accept("[")) {  // .const[3], as it was before PTX 2.2: a bank
        words_.advance();
        if (!words_.accept("]")) return false;
    }
    while (words_.word().starts_with('.')) {
        auto word = words_.word();
        words_.advance();
        if (word == ".align") {
            auto value = PtxConstant(words_).value();
            if (!value) return false;
            align = std::max<uint64_t>(*value, 1);
        } else if (word == ".attribute") {
            if (!attribute()) return false;
        } else if (word == ".v2" || word == ".v4" || word == ".v8") {
            vector = static_cast<uint64_t>(word[2] - '0');
        } else {
            element = bytes_of_type(word);
        }
    }
    element *= vector;
    do {
        if (!variable(element, std::max(align, element), elsewhere)) return false;
    } while (words_.accept(","));
    return words_.is(";");
}

// (.managed), (.unified(1, 2))
bool PtxVariables::attribute() {
    if (!words_.is("(")) return false;
    int depth = 0;
    do {
        depth += words_.is("(") ? 1 : words_.is(")") ? -1 : 0;
        words_.advance();
    } while (depth > 0 && !words_.word().empty());
    return depth == 0;
}

bool PtxVariables::variable(uint64_t element, uint64_t align, bool elsewhere) {
    if (words_.word().empty() || !in_word(words_.word()[0])) return false;
    words_.advance();
    uint64_t bytes = element;
    if (words_.accept("<")) {  // a<4>: a0 to a3
        auto count = number(words_.word());
        words_.advance();
        if (!count || !words_.accept(">")) return false;
        bytes = saturating_product(bytes, *count);
    }
    bool counted = false;  // by its initial values
    while (words_.accept("[")) {
        if (words_.accept("]")) {
            counted = true;
            continue;
        }
        auto count = PtxConstant(words_).value();
        if (!count || !words_.accept("]")) return false;
        bytes = saturating_product(bytes, *count);
    }
    uint64_t values = words_.accept("=") ? initial_values() : 0;
    if (counted) bytes = saturating_product(element, values);
    // Between two variables there is less than an alignment.
    if (!elsewhere) sum_ = saturating_sum(sum_, saturating_sum(bytes, align - 1));
    return true;
}

// How many there are, at most.
uint64_t PtxVariables::initial_values() {
    uint64_t count = 1;
    for (int depth = 0; !words_.word().empty(); words_.advance()) {
        if (words_.is(";") || (depth == 0 && words_.is(","))) break;
        depth += words_.is("{") || words_.is("(") ? 1 : words_.is("}") || words_.is(")") ? -1 : 0;
        count += words_.is(",") ? 1 : 0;
    }
    return count;
}

}  // namespace

std::optional<uint64_t> variable_bytes_of_ptx(std::string_view text) {
    return PtxVariables(text).sum();
}

}  // namespace tnr::worker
