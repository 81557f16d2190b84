// Device printf: the host's snprintf does each conversion, one at a time, with its arguments fetched from
// device memory. Flags, widths and precisions are C's; %n is not honoured, as on hardware.
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/builtin.hpp"

namespace tnr::ptx {
namespace {

constexpr size_t output_bytes_max = size_t{1} << 20;  // of one call; hardware's whole buffer is that long
constexpr int field_max = 4096;                       // width and precision

class Printer {
public:
    Printer(PrintSource& source, uint64_t format, uint64_t arguments, std::string& out)
        : source_(source), format_(format), arguments_(arguments), out_(out) {}

    bool run() {
        char c;
        while (next(c) && out_.size() < output_bytes_max) {
            if (c == '\0') return true;
            if (c != '%')
                out_ += c;
            else if (!conversion())
                return false;
        }
        return !bad_;
    }

private:
    bool next(char& c) {
        if (source_.read(format_, &c, 1)) return ++format_, true;
        bad_ = true;
        return false;
    }

    template <class T>
    T argument() {
        arguments_ = (arguments_ + sizeof(T) - 1) & ~uint64_t{sizeof(T) - 1};
        T value{};
        bad_ |= !source_.read(arguments_, &value, sizeof value);
        arguments_ += sizeof value;
        return value;
    }

    // %[flags][width][.precision][length]conversion
    bool conversion() {
        std::string spec = "%";
        char c;
        if (!next(c)) return false;
        while (c && std::strchr("-+ #0", c) && spec.size() < 16) {
            spec += c;
            if (!next(c)) return false;
        }
        if (!number(spec, c)) return false;
        if (c == '.') {
            spec += c;
            if (!next(c) || !number(spec, c)) return false;
        }
        bool wide = false;
        while (c && std::strchr("hljztL", c)) {
            wide |= c != 'h' && c != 'L';
            if (!next(c)) return false;
        }
        put(spec, c, wide);
        return !bad_;
    }

    bool number(std::string& spec, char& c) {
        if (c == '*') {
            spec += std::to_string(std::min(field_max, std::max(-field_max, argument<int32_t>())));
            return next(c);
        }
        int value = 0;
        bool any = false;
        for (; c >= '0' && c <= '9'; any = true) {
            value = std::min(field_max, value * 10 + (c - '0'));
            if (!next(c)) return false;
        }
        if (any) spec += std::to_string(value);
        return true;
    }

    template <class T>
    void print(const std::string& spec, T value) {
        char text[2 * field_max];
        int length = std::snprintf(text, sizeof text, spec.c_str(), value);
        if (length > 0) out_.append(text, std::min(sizeof text - 1, static_cast<size_t>(length)));
    }

    void put(const std::string& spec, char c, bool wide) {
        switch (c) {
            case 'd':
            case 'i':
                return wide ? print(spec + PRId64, argument<int64_t>()) : print(spec + "d", argument<int32_t>());
            case 'u':
            case 'x':
            case 'X':
            case 'o':
                return wide ? print(spec + "l" + c, argument<uint64_t>()) : print(spec + c, argument<uint32_t>());
            case 'c':
                return print(spec + "c", argument<int32_t>());
            case 'p':
                return print(spec + "p", reinterpret_cast<void*>(argument<uint64_t>()));
            case 'e':
            case 'E':
            case 'f':
            case 'F':
            case 'g':
            case 'G':
            case 'a':
            case 'A':
                return print(spec + c, argument<double>());
            case 's':
                return string(spec);
            case '%':
                out_ += '%';
                return;
            default:
                out_ += spec + c;
        }
    }

    void string(const std::string& spec) {
        auto address = argument<uint64_t>();
        std::string text;
        if (address == 0) text = "(null)";
        for (char c = 1; address && text.size() < output_bytes_max; text += c) {
            if (!source_.read(address++, &c, 1)) return void(bad_ = true);
            if (c == '\0') break;
        }
        if (spec == "%")
            out_ += text;
        else
            print(spec + "s", text.c_str());
    }

    PrintSource& source_;
    uint64_t format_, arguments_;
    std::string& out_;
    bool bad_ = false;
};

}  // namespace

bool format_print(PrintSource& source, uint64_t format, uint64_t arguments, std::string& out) {
    return Printer(source, format, arguments, out).run();
}

}  // namespace tnr::ptx
