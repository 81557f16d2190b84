// Random programs as PTX. See random_program.hpp.
#include "tests/gpu_server/ptx/random_program.hpp"

#include <utility>

namespace tnr::ptx::test {
namespace {

std::string number_of(const char* prefix, uint32_t n) {
    return prefix + std::to_string(n);
}

class Writer {
public:
    // The kernel's body, or a function's.
    std::string body(const std::vector<Statement>& statements) {
        for (uint32_t k = 0; k < local_words; ++k) line("st.local.u32 [%keep+" + std::to_string(4 * k) + "], 0;");
        for (uint32_t k = 0; k < wides; ++k) line("mov.b64 " + number_of("%w", k) + ", 0;");
        write(statements);
        return "    .reg .b32 %v<8>, %e, %t<8>, %lanes, %full, %last, %n<" + std::to_string(counters_ + 1) +
               ">; .reg .b64 %w<4>, %wt, %x, %y, %keep, %room, %tally, %cells; .reg .f32 %f, %g;\n    .reg .pred %p, "
               "%q<" +
               std::to_string(predicates_ + 1) + ">;\n    .local .align 8 .b8 own[64];\n    mov.u64 %keep, own;\n" +
               text_;
    }
    void line(const std::string& instruction) { text_ += "    " + instruction + "\n"; }

private:
    void label(const std::string& name) { text_ += name + ":\n"; }
    std::string new_label() { return number_of("L", labels_++); }
    std::string new_predicate() { return number_of("%q", predicates_++); }
    static std::string v(uint32_t n) { return number_of("%v", n); }
    static std::string w(uint32_t n) { return number_of("%w", n); }

    // One of the operations, each of its instructions behind `guard`.
    void operation(const std::string& text, const std::string& d, const std::string& a, const std::string& b,
                   const std::string& c, const std::string& guard) {
        std::string out = guard;
        for (size_t k = 0; k < text.size(); ++k) {
            bool name = k > 0 && (text[k - 1] == ' ');
            char letter = name ? text[k] : 0;
            if (letter == 'D')
                out += d;
            else if (letter == 'A')
                out += a;
            else if (letter == 'B')
                out += b;
            else if (letter == 'C')
                out += c;
            else if (letter == 'E')
                out += "%e";
            else if (letter == 'F')
                out += "%f";
            else if (letter == 'G')
                out += "%g";
            else if (letter == 'Q')
                out += "%p";
            else if (letter == 'W')
                out += "%wt";
            else
                out += text[k];
            if (text[k] == ';' && k + 1 < text.size()) out += " " + guard;
        }
        line(out);
    }

    void write(const std::vector<Statement>& statements) {
        for (auto& s : statements) write(s);
    }

    void branch(const Statement& s) {
        auto other = new_label(), end = new_label(), q = new_predicate();
        line("setp.ge.u32 " + q + ", " + v(s.a) + ", " + v(s.b) + ";");
        line("@" + q + " bra " + other + ";");
        write(s.body);
        if (!s.other.empty()) line("bra " + end + ";");
        label(other);
        write(s.other);
        label(end);
    }

    void cases(const Statement& s) {
        auto first = new_label(), second = new_label(), end = new_label(), list = new_label();
        line("and.b32 %t0, " + v(s.a) + ", 3;");
        line(list + ": .branchtargets " + first + ", " + second + ", " + end + ", " + end + ";");
        line("brx.idx %t0, " + list + ";");
        label(first);
        write(s.body);
        line("bra " + end + ";");
        label(second);
        write(s.other);
        label(end);
    }

    void loop(const Statement& s) {
        auto again = new_label(), end = new_label(), q = new_predicate(), left = number_of("%n", counters_++);
        line("and.b32 " + left + ", " + v(s.a) + ", 7;");
        label(again);
        line("setp.eq.u32 " + q + ", " + left + ", 0;");
        line("@" + q + " bra " + end + ";");
        line("sub.u32 " + left + ", " + left + ", 1;");
        auto outer = std::exchange(loop_end_, end);
        write(s.body);
        loop_end_ = outer;
        line("bra " + again + ";");
        label(end);
    }

    void repeat(const Statement& s) {
        auto again = new_label(), q = new_predicate(), left = number_of("%n", counters_++);
        line("mov.u32 " + left + ", " + std::to_string(s.number) + ";");
        label(again);
        write(s.body);
        line("sub.u32 " + left + ", " + left + ", 1;");
        line("setp.ne.u32 " + q + ", " + left + ", 0;");
        line("@" + q + " bra " + again + ";");
    }

    void call(const Statement& s) {
        line("{ .param .b32 first, second, result; st.param.b32 [first], " + v(s.a) + "; st.param.b32 [second], " +
             v(s.b) + ";");
        if (s.number < 3) {
            line("call (result), f" + std::to_string(s.number) + ", (first, second);");
        } else {
            line("and.b32 %t0, " + v(s.c) + ", 1; setp.eq.u32 %p, %t0, 0;");
            line("mov.u64 %x, f0; mov.u64 %y, f1; selp.b64 %x, %x, %y, %p;");
            line("prototype: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);");
            line("call (result), %x, (first, second), prototype;");
        }
        line("ld.param.b32 " + v(s.d) + ", [result]; }");
    }

    // %x = `base` + 4 * (register & 15)
    void cell(const std::string& base, const std::string& index) {
        line("and.b32 %t0, " + index + ", 15; mul.wide.u32 %x, %t0, 4; add.u64 %x, %x, " + base + ";");
    }

    void exchange(const Statement& s) {
        line("mov.u32 %t0, %tid.x; mul.wide.u32 %x, %t0, 4; add.u64 %x, %x, %room; st.shared.u32 [%x], " + v(s.a) +
             ";");
        line("mov.u32 %t1, %ntid.x; rem.u32 %t2, " + v(s.b) + ", %t1; mul.wide.u32 %x, %t2, 4; add.u64 %x, %x, %room;");
        line("bar.sync 0; ld.shared.u32 " + v(s.d) + ", [%x]; bar.sync 0;");
    }

    void tally(const Statement& s) {
        line("mov.u32 %t1, %tid.x;");
        cell("%tally", "%t1");
        line("st.shared.u32 [%x], 0; bar.sync 0;");
        line("red.shared." + std::string(total_operations()[s.number].text) + " [%x], " + v(s.a) + ";");
        cell("%tally", v(s.b));
        line("bar.sync 0; ld.shared.u32 " + v(s.d) + ", [%x]; bar.sync 0;");
    }

    // What comes from a lane that is not there is the own value.
    void shuffle(const Statement& s) {
        line("mov.u32 %t0, %laneid; and.b32 %t1, " + v(s.b) + ", 31;");
        if (s.number == 0)
            line("mov.u32 %t2, %t1; min.u32 %t3, %t1, %last; shfl.sync.idx.b32 %t4, " + v(s.a) + ", %t3, 31, %full; ");
        if (s.number == 1) line("add.u32 %t2, %t0, 3; shfl.sync.down.b32 %t4, " + v(s.a) + ", 3, 31, %full;");
        if (s.number == 2) line("sub.u32 %t2, %t0, 5; shfl.sync.up.b32 %t4, " + v(s.a) + ", 5, 0, %full;");
        if (s.number == 3) line("xor.b32 %t2, %t0, 11; shfl.sync.bfly.b32 %t4, " + v(s.a) + ", 11, 31, %full;");
        line("setp.le.u32 %p, %t2, %last; selp.b32 " + v(s.d) + ", %t4, " + v(s.a) + ", %p;");
    }

    void gather(const Statement& s) {
        auto end = new_label(), q = new_predicate();
        line("and.b32 %t0, " + v(s.a) + ", 1; setp.ne.u32 " + q + ", %t0, 0; vote.sync.ballot.b32 %lanes, " + q +
             ", %full;");
        line("@!" + q + " bra " + end + ";");
        line("and.b32 %t1, " + v(s.b) + ", 3; match.any.sync.b32 %t2, %t1, %lanes; redux.sync.add.u32 %t3, " + v(s.b) +
             ", %lanes;");
        line("brev.b32 %t4, %lanes; clz.b32 %t4, %t4; shfl.sync.idx.b32 %t5, " + v(s.b) + ", %t4, 31, %lanes;");
        line(
            "shf.l.wrap.b32 %t2, %t2, %t2, 7; xor.b32 %t2, %t2, %lanes; mul.lo.u32 %t3, %t3, 3; xor.b32 %t2, %t2, "
            "%t3;");
        line("xor.b32 " + v(s.d) + ", %t2, %t5;");
        label(end);
    }

    void guarded(const Statement& s) {
        auto q = new_predicate();
        auto& inner = s.body[0];
        line("and.b32 %t0, " + v(s.a) + ", 1; setp.ne.u32 " + q + ", %t0, 0;");
        operation(word_operations()[inner.operation].text, v(inner.d), v(inner.a), v(inner.b), v(inner.c),
                  "@" + q + " ");
    }

    void leave(const Statement& s) {
        auto q = new_predicate();
        line("and.b32 %t0, " + v(s.a) + ", 3; setp.eq.u32 " + q + ", %t0, " + std::to_string(s.number) + ";");
        line("@" + q + " bra " + loop_end_ + ";");
    }

    void write(const Statement& s) {
        switch (s.kind) {
            case Kind::word:
                return operation(word_operations()[s.operation].text, v(s.d), v(s.a), v(s.b), v(s.c), "");
            case Kind::wide:
                return operation(wide_operations()[s.operation].text, w(s.d), w(s.a), w(s.b), v(s.c), "");
            case Kind::narrow:
                return line("mov.b64 {%t0, %t1}, " + w(s.a) + "; mov.u32 " + v(s.d) +
                            (s.number & 1 ? ", %t1;" : ", %t0;"));
            case Kind::guarded:
                return guarded(s);
            case Kind::branch:
                return branch(s);
            case Kind::cases:
                return cases(s);
            case Kind::loop:
                return loop(s);
            case Kind::leave:
                return leave(s);
            case Kind::keep:
                cell("%keep", v(s.a));
                return line("st.local.u32 [%x], " + v(s.b) + ";");
            case Kind::recall:
                cell("%keep", v(s.a));
                return line("ld.local.u32 " + v(s.d) + ", [%x];");
            case Kind::call:
                return call(s);
            case Kind::add_up:
                cell("%cells", v(s.a));
                return line("red.global." + std::string(total_operations()[s.number].text) + " [%x+" +
                            std::to_string(s.number * cells * 4) + "], " + v(s.b) + ";");
            case Kind::repeat:
                return repeat(s);
            case Kind::exchange:
                return exchange(s);
            case Kind::tally:
                return tally(s);
            case Kind::shuffle:
                return shuffle(s);
            case Kind::gather:
                return gather(s);
        }
    }

    std::string text_, loop_end_;
    uint32_t labels_ = 0, predicates_ = 0, counters_ = 0;
};

std::string function_text(uint32_t index, const std::vector<Statement>& statements) {
    Writer writer;
    writer.line("ld.param.b32 %v0, [first]; ld.param.b32 %v1, [second];");
    for (uint32_t k = 2; k < words; ++k) writer.line("mov.u32 " + number_of("%v", k) + ", 0;");
    auto body = writer.body(statements);
    return ".func (.param .b32 result) f" + std::to_string(index) + "(.param .b32 first, .param .b32 second)\n{\n" +
           body + "    st.param.b32 [result], %v0;\n    ret;\n}\n";
}

}  // namespace

std::string to_ptx(const RandomProgram& program) {
    std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n";
    for (uint32_t f = 0; f < program.functions.size(); ++f) text += function_text(f, program.functions[f]);
    Writer writer;
    writer.line(
        "ld.param.u64 %cells, [p1]; mov.u64 %room, exchanged; mov.u64 %tally, tallied;\n"
        "    mov.u32 %t0, %tid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %ctaid.x; mad.lo.u32 %t3, %t2, %t1, %t0;\n"
        "    and.b32 %t4, %t0, -32; sub.u32 %t4, %t1, %t4; min.u32 %t4, %t4, 32; sub.u32 %last, %t4, 1;\n"
        "    sub.u32 %t5, 31, %last; shr.u32 %full, -1, %t5;");
    for (uint32_t k = 0; k < words; ++k)
        writer.line("mad.lo.u32 " + number_of("%v", k) + ", %t3, " + std::to_string(2 * k + 1) + ", " +
                    std::to_string(k) + ";");
    text +=
        ".entry k(.param .u64 p0, .param .u64 p1)\n{\n    .shared .align 4 .b8 exchanged[4096];\n"
        "    .shared .align 4 .b8 tallied[64];\n" +
        writer.body(program.statements) +
        "    mov.u32 %t0, %tid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %ctaid.x; mad.lo.u32 %t3, %t2, %t1, %t0;\n"
        "    ld.param.u64 %y, [p0]; mul.wide.u32 %x, %t3, 64; add.u64 %x, %x, %y;\n";
    for (uint32_t k = 0; k < words; ++k)
        text += "    st.global.u32 [%x+" + std::to_string(4 * k) + "], " + number_of("%v", k) + ";\n";
    for (uint32_t k = 0; k < wides; ++k)
        text += "    st.global.u64 [%x+" + std::to_string(32 + 8 * k) + "], " + number_of("%w", k) + ";\n";
    return text + "    ret;\n}\n";
}

}  // namespace tnr::ptx::test
