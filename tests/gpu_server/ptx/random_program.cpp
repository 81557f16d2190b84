// Random programs: how they are made, and what they leave. See random_program.hpp; random_program_text.cpp writes them as PTX.
#include "tests/gpu_server/ptx/random_program.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <random>
#include <utility>

namespace tnr::ptx::test {

const std::vector<WordOperation>& word_operations() {
    using U = uint32_t;
    static const std::vector<WordOperation> all = {
        {"add.u32 D, A, B;", [](U a, U b, U) { return a + b; }},
        {"sub.u32 D, A, B;", [](U a, U b, U) { return a - b; }},
        {"mul.lo.u32 D, A, B;", [](U a, U b, U) { return a * b; }},
        {"mul.hi.s32 D, A, B;", [](U a, U b, U) { return U(int64_t{int32_t(a)} * int32_t(b) >> 32); }},
        {"mul.hi.u32 D, A, B;", [](U a, U b, U) { return U(uint64_t{a} * b >> 32); }},
        {"mad.lo.s32 D, A, B, C;", [](U a, U b, U c) { return a * b + c; }},
        {"and.b32 D, A, B;", [](U a, U b, U) { return a & b; }},
        {"or.b32 D, A, B;", [](U a, U b, U) { return a | b; }},
        {"xor.b32 D, A, B;", [](U a, U b, U) { return a ^ b; }},
        {"not.b32 D, A;", [](U a, U, U) { return ~a; }},
        {"neg.s32 D, A;", [](U a, U, U) { return 0 - a; }},
        {"shl.b32 D, A, B;", [](U a, U b, U) { return b > 31 ? 0 : a << b; }},
        {"shr.s32 D, A, B;", [](U a, U b, U) { return U(int32_t(a) >> std::min(b, 31u)); }},
        {"shr.u32 D, A, 5;", [](U a, U, U) { return a >> 5; }},
        {"shf.l.wrap.b32 D, A, A, B;", [](U a, U b, U) { return std::rotl(a, int(b & 31)); }},
        {"min.s32 D, A, B;", [](U a, U b, U) { return U(std::min(int32_t(a), int32_t(b))); }},
        {"max.u32 D, A, B;", [](U a, U b, U) { return std::max(a, b); }},
        {"popc.b32 D, A;", [](U a, U, U) { return U(std::popcount(a)); }},
        {"clz.b32 D, A;", [](U a, U, U) { return U(std::countl_zero(a)); }},
        {"lop3.b32 D, A, B, C, 0x96;", [](U a, U b, U c) { return a ^ b ^ c; }},
        {"sad.u32 D, A, B, C;", [](U a, U b, U c) { return c + std::max(a, b) - std::min(a, b); }},
        {"or.b32 E, B, 1; div.u32 D, C, E;", [](U, U b, U c) { return c / (b | 1); }},
        {"setp.lt.s32 Q, A, B; selp.b32 D, B, C, Q;", [](U a, U b, U c) { return int32_t(a) < int32_t(b) ? b : c; }},
        {"and.b32 E, A, 0xffff; cvt.rn.f32.u32 F, E; and.b32 E, B, 255; cvt.rn.f32.u32 G, E; fma.rn.f32 F, F, G, G; "
         "cvt.rzi.u32.f32 D, F;",
         [](U a, U b, U) { return (a & 0xffff) * (b & 255) + (b & 255); }},
    };
    return all;
}

const std::vector<WideOperation>& wide_operations() {
    using L = uint64_t;
    static const std::vector<WideOperation> all = {
        {"add.u64 D, A, B;", [](L a, L b, uint32_t) { return a + b; }},
        {"mul.lo.u64 D, A, B;", [](L a, L b, uint32_t) { return a * b; }},
        {"xor.b64 D, A, B;", [](L a, L b, uint32_t) { return a ^ b; }},
        {"shl.b64 D, A, C;", [](L a, L, uint32_t c) { return c > 63 ? 0 : a << c; }},
        {"shr.s64 D, A, 7;", [](L a, L, uint32_t) { return L(int64_t(a) >> 7); }},
        {"mul.wide.u32 D, C, C;", [](L, L, uint32_t c) { return L{c} * c; }},
        {"min.s64 D, A, B;", [](L a, L b, uint32_t) { return L(std::min(int64_t(a), int64_t(b))); }},
        {"cvt.s64.s32 W, C; sub.u64 D, A, W;", [](L a, L, uint32_t c) { return a - L(int64_t{int32_t(c)}); }},
    };
    return all;
}

const std::vector<TotalOperation>& total_operations() {
    static const std::vector<TotalOperation> all = {
        {"add.u32", [](uint32_t t, uint32_t v) { return t + v; }},
        {"xor.b32", [](uint32_t t, uint32_t v) { return t ^ v; }},
        {"max.u32", [](uint32_t t, uint32_t v) { return std::max(t, v); }},
        {"min.s32", [](uint32_t t, uint32_t v) { return uint32_t(std::min(int32_t(t), int32_t(v))); }},
        {"or.b32", [](uint32_t t, uint32_t v) { return t | v; }},
    };
    return all;
}

namespace {

class Maker {
public:
    explicit Maker(uint64_t seed) : random_(seed) {}

    RandomProgram program() {
        RandomProgram made;
        for (int k = 0; k < 3; ++k) made.functions.push_back(several(3, 2, Where::function));
        made.statements = several(14, 3, Where::all_threads);
        return made;
    }

private:
    enum class Where { function, some_threads, all_threads };

    uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

    std::vector<Statement> several(uint32_t most, int depth, Where where) {
        std::vector<Statement> made;
        for (uint32_t left = 1 + below(most); left > 0; --left) made.push_back(one(depth, where));
        return made;
    }

    Kind kind(int depth, Where where) {
        static constexpr Kind anywhere[] = {Kind::word,   Kind::word,    Kind::word, Kind::wide,
                                            Kind::narrow, Kind::guarded, Kind::keep, Kind::recall};
        static constexpr Kind nested[] = {Kind::branch, Kind::branch, Kind::loop, Kind::cases};
        static constexpr Kind of_kernels[] = {Kind::call, Kind::add_up};
        static constexpr Kind together[] = {Kind::exchange, Kind::tally, Kind::shuffle, Kind::gather, Kind::repeat};
        uint32_t dice = below(10);
        if (where == Where::all_threads && dice < 4) {
            auto chosen = together[below(std::size(together))];
            return chosen == Kind::repeat && depth == 0 ? Kind::exchange : chosen;
        }
        if (depth > 0 && dice < 7) return nested[below(std::size(nested))];
        if (where != Where::function && dice < 8) return of_kernels[below(std::size(of_kernels))];
        if (in_loop_ && dice == 8) return Kind::leave;
        return anywhere[below(std::size(anywhere))];
    }

    Statement one(int depth, Where where) {
        Statement s;
        s.kind = kind(depth, where);
        s.d = below(words), s.a = below(words), s.b = below(words), s.c = below(words);
        s.operation = below(static_cast<uint32_t>(word_operations().size()));
        s.number = below(4);
        auto inside = where == Where::all_threads ? Where::some_threads : where;
        switch (s.kind) {
            case Kind::wide:
                s.operation = below(static_cast<uint32_t>(wide_operations().size()));
                s.d %= wides, s.a %= wides, s.b %= wides;
                break;
            case Kind::narrow:
                s.a %= wides;
                break;
            case Kind::guarded:
                s.body.push_back(one(0, Where::function));
                s.body[0].kind = Kind::word;
                break;
            case Kind::branch:
            case Kind::cases:
                s.body = several(3, depth - 1, inside);
                if (below(2)) s.other = several(3, depth - 1, inside);
                break;
            case Kind::loop: {
                bool outer = std::exchange(in_loop_, true);
                s.body = several(3, depth - 1, inside);
                in_loop_ = outer;
                break;
            }
            case Kind::repeat:
                s.number = 1 + below(3);
                s.body = several(4, depth - 1, where);
                break;
            case Kind::add_up:
            case Kind::tally:
                s.number = below(static_cast<uint32_t>(total_operations().size()));
                break;
            default:
                break;
        }
        return s;
    }

    std::mt19937_64 random_;
    bool in_loop_ = false;
};

// One block: all threads' registers and memory.
class Executor {
public:
    using Mask = std::vector<bool>;
    struct Registers {
        std::vector<std::array<uint32_t, words>> v;
        std::vector<std::array<uint64_t, wides>> w;
        std::vector<std::array<uint32_t, local_words>> local;
        explicit Registers(uint32_t threads) : v(threads), w(threads), local(threads) {}
    };

    Executor(const RandomProgram& program, uint32_t block, uint32_t threads, std::vector<uint32_t>& totals)
        : program_(program), threads_(threads), totals_(totals), kernel(threads) {
        for (uint32_t t = 0; t < threads; ++t)
            for (uint32_t k = 0; k < words; ++k) kernel.v[t][k] = (block * threads + t) * (2 * k + 1) + k;
        Mask all(threads, true);
        run(program.statements, kernel, all);
    }

private:
    void run(const std::vector<Statement>& statements, Registers& r, Mask& mask) {
        for (auto& s : statements) run(s, r, mask);
    }

    template <class F>
    void each(const Mask& mask, F&& f) {
        for (uint32_t t = 0; t < threads_; ++t)
            if (mask[t]) f(t);
    }

    // Carries `part` out by those threads of the mask for which `taken`; who leaves a loop there leaves the mask.
    void part(const std::vector<Statement>& statements, Registers& r, Mask& mask,
              const std::function<bool(uint32_t)>& taken, Mask& left) {
        Mask inner(threads_);
        each(mask, [&](uint32_t t) { inner[t] = taken(t); });
        Mask before = inner;
        run(statements, r, inner);
        for (uint32_t t = 0; t < threads_; ++t)
            if (before[t] && !inner[t]) left[t] = true;
    }

    void choose(const Statement& s, Registers& r, Mask& mask) {
        // Who takes which part is decided before either part changes anything.
        std::vector<uint32_t> way(threads_);
        each(mask, [&](uint32_t t) {
            auto& v = r.v[t];
            way[t] = s.kind == Kind::branch ? (v[s.a] < v[s.b] ? 0 : 1) : v[s.a] & 3;
        });
        Mask left(threads_);
        part(
            s.body, r, mask, [&](uint32_t t) { return way[t] == 0; }, left);
        part(
            s.other, r, mask, [&](uint32_t t) { return way[t] == 1; }, left);
        for (uint32_t t = 0; t < threads_; ++t)
            if (left[t]) mask[t] = false;
    }

    void loop(const Statement& s, Registers& r, const Mask& mask) {
        std::vector<uint32_t> times(threads_);
        each(mask, [&](uint32_t t) { times[t] = r.v[t][s.a] & 7; });
        Mask inner = mask;
        for (uint32_t round = 0; round < 8; ++round) {
            for (uint32_t t = 0; t < threads_; ++t) inner[t] = inner[t] && times[t] > round;
            run(s.body, r, inner);
        }
    }

    void call(const Statement& s, Registers& r, const Mask& mask) {
        std::vector<uint32_t> chosen(threads_);
        each(mask, [&](uint32_t t) { chosen[t] = s.number < 3 ? s.number : r.v[t][s.c] & 1; });
        auto before = r.v;
        for (uint32_t f = 0; f < 3; ++f) {
            Registers inside(threads_);
            Mask inner(threads_);
            each(mask, [&](uint32_t t) {
                inner[t] = chosen[t] == f;
                inside.v[t][0] = before[t][s.a], inside.v[t][1] = before[t][s.b];
            });
            Mask here = inner;
            run(program_.functions[f], inside, inner);
            each(here, [&](uint32_t t) { r.v[t][s.d] = inside.v[t][0]; });
        }
    }

    void tally(const Statement& s, Registers& r, const Mask& mask) {
        std::array<uint32_t, cells> shared{};
        auto add = total_operations()[s.number].result;
        each(mask, [&](uint32_t t) { shared[t % cells] = add(shared[t % cells], r.v[t][s.a]); });
        each(mask, [&](uint32_t t) { r.v[t][s.d] = shared[r.v[t][s.b] % cells]; });
    }

    void shuffle(const Statement& s, Registers& r) {
        auto before = r.v;
        for (uint32_t t = 0; t < threads_; ++t) {
            uint32_t lane = t % 32, first = t - lane, by = before[t][s.b] & 31, from = lane;
            if (s.number == 0) from = by;
            if (s.number == 1) from = lane + 3 < 32 ? lane + 3 : lane;
            if (s.number == 2) from = lane >= 5 ? lane - 5 : lane;
            if (s.number == 3) from = lane ^ 11;
            if (first + from >= threads_) from = lane;  // as the kernel does
            r.v[t][s.d] = before[first + from][s.a];
        }
    }

    void gather(const Statement& s, Registers& r) {
        auto before = r.v;
        for (uint32_t first = 0; first < threads_; first += 32) {
            uint32_t end = std::min(first + 32, threads_), lanes = 0;
            for (uint32_t t = first; t < end; ++t) lanes |= (before[t][s.a] & 1) << (t - first);
            for (uint32_t t = first; t < end; ++t) {
                if (!(before[t][s.a] & 1)) continue;
                uint32_t same = 0, sum = 0;
                for (uint32_t other = first; other < end; ++other) {
                    if (!(before[other][s.a] & 1)) continue;
                    sum += before[other][s.b];
                    if ((before[other][s.b] & 3) == (before[t][s.b] & 3)) same |= 1u << (other - first);
                }
                uint32_t leader = first + static_cast<uint32_t>(std::countr_zero(lanes));
                r.v[t][s.d] = lanes ^ std::rotl(same, 7) ^ (sum * 3) ^ before[leader][s.b];
            }
        }
    }

    void run(const Statement& s, Registers& r, Mask& mask) {
        switch (s.kind) {
            case Kind::word:
                each(mask, [&](uint32_t t) {
                    auto& v = r.v[t];
                    v[s.d] = word_operations()[s.operation].result(v[s.a], v[s.b], v[s.c]);
                });
                break;
            case Kind::wide:
                each(mask, [&](uint32_t t) {
                    auto& w = r.w[t];
                    w[s.d] = wide_operations()[s.operation].result(w[s.a], w[s.b], r.v[t][s.c]);
                });
                break;
            case Kind::narrow:
                each(mask,
                     [&](uint32_t t) { r.v[t][s.d] = static_cast<uint32_t>(r.w[t][s.a] >> (s.number & 1) * 32); });
                break;
            case Kind::guarded: {
                Mask inner(threads_);
                each(mask, [&](uint32_t t) { inner[t] = r.v[t][s.a] & 1; });
                run(s.body, r, inner);
                break;
            }
            case Kind::branch:
            case Kind::cases:
                choose(s, r, mask);
                break;
            case Kind::loop:
                loop(s, r, mask);
                break;
            case Kind::leave:
                each(mask, [&](uint32_t t) { leaving(t, (r.v[t][s.a] & 3) == s.number, mask); });
                break;
            case Kind::keep:
                each(mask, [&](uint32_t t) { r.local[t][r.v[t][s.a] % local_words] = r.v[t][s.b]; });
                break;
            case Kind::recall:
                each(mask, [&](uint32_t t) { r.v[t][s.d] = r.local[t][r.v[t][s.a] % local_words]; });
                break;
            case Kind::call:
                call(s, r, mask);
                break;
            case Kind::add_up:
                each(mask, [&](uint32_t t) {
                    auto& total = totals_[s.number * cells + r.v[t][s.a] % cells];
                    total = total_operations()[s.number].result(total, r.v[t][s.b]);
                });
                break;
            case Kind::repeat:
                for (uint32_t k = 0; k < s.number; ++k) run(s.body, r, mask);
                break;
            case Kind::exchange: {
                auto before = r.v;
                each(mask, [&](uint32_t t) { r.v[t][s.d] = before[before[t][s.b] % threads_][s.a]; });
                break;
            }
            case Kind::tally:
                tally(s, r, mask);
                break;
            case Kind::shuffle:
                shuffle(s, r);
                break;
            case Kind::gather:
                gather(s, r);
                break;
        }
    }

    static void leaving(uint32_t thread, bool leaves, Mask& mask) {
        if (leaves) mask[thread] = false;
    }

    const RandomProgram& program_;
    uint32_t threads_;
    std::vector<uint32_t>& totals_;

public:
    Registers kernel;
};

}  // namespace

RandomProgram make_program(uint64_t seed) {
    return Maker(seed).program();
}

Left carry_out(const RandomProgram& program, uint32_t blocks, uint32_t threads) {
    Left left;
    left.totals.resize(total_operations().size() * cells);
    for (uint32_t block = 0; block < blocks; ++block) {
        Executor executor(program, block, threads, left.totals);
        for (uint32_t t = 0; t < threads; ++t) {
            left.words.insert(left.words.end(), executor.kernel.v[t].begin(), executor.kernel.v[t].end());
            left.wides.insert(left.wides.end(), executor.kernel.w[t].begin(), executor.kernel.w[t].end());
        }
    }
    return left;
}

}  // namespace tnr::ptx::test
