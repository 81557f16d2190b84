// See trace.hpp.
#include "gpu_client/cuda/trace.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace tnr::cuda {

namespace {

// The most characters shown of a text that a program passes: PTX is passed as one, too.
constexpr int text_shown_max = 60;

class Line {
public:
    Line(char* begin, size_t size) : at_(begin), end_(begin + size) { *at_ = 0; }
    __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
        va_list arguments;
        va_start(arguments, format);
        int length = std::vsnprintf(at_, static_cast<size_t>(end_ - at_), format, arguments);
        va_end(arguments);
        if (length > 0) at_ += std::min<ptrdiff_t>(length, end_ - at_ - 1);
    }
    void add_text(const char* text);
    void add_value(Argument::Form form, size_t bytes, uint64_t bits);
    void add_argument(const Argument& argument, bool succeeded);

private:
    char* at_;
    char* end_;
};

void Line::add_text(const char* text) {
    add("\"");
    int shown = 0;
    for (; text[shown] != 0 && shown < text_shown_max; ++shown) {
        char c = text[shown];
        if (c == '\n')
            add("\\n");
        else if (c == '"' || c == '\\')
            add("\\%c", c);
        else
            add("%c", static_cast<unsigned char>(c) < ' ' ? '?' : c);
    }
    add(text[shown] != 0 ? "...\"" : "\"");
}

int64_t signed_value(size_t bytes, uint64_t bits) {
    auto unused = static_cast<int>(64 - 8 * bytes);
    return static_cast<int64_t>(bits << unused) >> unused;
}

void Line::add_value(Argument::Form form, size_t bytes, uint64_t bits) {
    switch (form) {
        case Argument::Form::number:
            return add("%" PRId64, signed_value(bytes, bits));
        case Argument::Form::natural:
            return add("%" PRIu64, bits);
        case Argument::Form::address:
            return bits == 0 ? add("null") : add("0x%" PRIx64, bits);
        case Argument::Form::text:
            return bits == 0 ? add("null") : add_text(reinterpret_cast<const char*>(bits));
        case Argument::Form::real: {
            float value;
            std::memcpy(&value, &bits, sizeof value);  // cuda.h has no double
            return add("%g", static_cast<double>(value));
        }
        case Argument::Form::structure:
            return add("{...}");
    }
}

void Line::add_argument(const Argument& argument, bool succeeded) {
    if (!argument.is_out) {
        add("%s=", argument.name);
        return add_value(argument.form, argument.bytes, argument.value);
    }
    bool follow = succeeded && argument.value != 0;
    add(follow ? "*%s=" : "%s=", argument.name);
    if (!follow) return add_value(Argument::Form::address, sizeof argument.value, argument.value);
    // A buffer of characters is the text; otherwise there is a pointer to one.
    if (argument.form == Argument::Form::text && argument.bytes == 0)
        return add_text(reinterpret_cast<const char*>(argument.value));
    uint64_t written = 0;
    std::memcpy(&written, reinterpret_cast<const void*>(argument.value), argument.bytes);
    add_value(argument.form, argument.bytes, written);
}

}  // namespace

void describe_call(char* line, size_t size, const char* name, std::initializer_list<Argument> arguments,
                   CUresult result) {
    Line out(line, size);
    out.add("%s(", name);
    const char* separator = "";
    for (auto& argument : arguments) {
        out.add("%s", separator);
        out.add_argument(argument, result == CUDA_SUCCESS);
        separator = ", ";
    }
    const char* text = nullptr;
    if (cuGetErrorName(result, &text) == CUDA_SUCCESS)
        out.add(") = %s", text);
    else
        out.add(") = %d", static_cast<int>(result));  // cudart's 9: see launch.cpp
}

}  // namespace tnr::cuda
