// Random kernels without races, and what they must leave: the same statements carried out in plain C++, one after the other by
// all threads that take part. Nothing here knows how the interpreter orders warps and lanes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tnr::ptx::test {

inline constexpr uint32_t words = 8, wides = 4, local_words = 16, cells = 16;

enum class Kind : uint8_t {
    word,      // v[d] = an operation on v[a], v[b], v[c]
    wide,      // w[d] = an operation on w[a], w[b], v[c]
    narrow,    // v[d] = half of w[a]
    guarded,   // the first of `body`, where v[a] is odd
    branch,    // `body` where v[a] < v[b], else `other`
    loop,      // `body` as often as the low bits of v[a] say; of each thread
    leave,     // the loop, where the low bits of v[a] are `number`
    cases,     // by the low bits of v[a]: `body`, `other`, or nothing
    keep,      // local memory, at the low bits of v[a] = v[b]
    recall,    // v[d] = local memory, at the low bits of v[a]
    call,      // v[d] = function `number`(v[a], v[b]); 3 is either of two, through a pointer
    add_up,    // cell v[a] of the operation `number`, in global memory, changes by v[b]
    repeat,    // `body`, `number` times, by all threads
    exchange,  // v[d] = v[a] of the thread that v[b] names, through shared memory
    tally,     // of all threads: each v[a] into a shared cell, then v[d] = the one at v[b]
    shuffle,   // v[d] = v[a] of a lane of the warp; `number`: how it is found
    gather,    // where v[a] is odd: ballots, matches and shuffles among those lanes
};

struct Statement {
    Kind kind = Kind::word;
    uint32_t operation = 0, d = 0, a = 0, b = 0, c = 0, number = 0;
    std::vector<Statement> body, other;
};

struct RandomProgram {
    std::vector<Statement> statements;
    std::vector<std::vector<Statement>> functions;  // three
};
RandomProgram make_program(uint64_t seed);

// PTX: kernel k(out, cells). A thread's words and wide ones go to out.
std::string to_ptx(const RandomProgram& program);

struct Left {
    std::vector<uint32_t> words;   // of each thread, block after block
    std::vector<uint64_t> wides;   // likewise
    std::vector<uint32_t> totals;  // cells of each operation
};
Left carry_out(const RandomProgram& program, uint32_t blocks, uint32_t threads);

// What both sides have in common: operations by number.
struct WordOperation {
    const char* text;  // D, A, B and C stand for the registers, E, F, G and Q for a word, floats and a predicate to use
    uint32_t (*result)(uint32_t a, uint32_t b, uint32_t c);
};
struct WideOperation {
    const char* text;  // D, A and B have 64 bits, and so has W, to use; C has 32
    uint64_t (*result)(uint64_t a, uint64_t b, uint32_t c);
};
struct TotalOperation {
    const char* text;
    uint32_t (*result)(uint32_t total, uint32_t value);
};
const std::vector<WordOperation>& word_operations();
const std::vector<WideOperation>& wide_operations();
const std::vector<TotalOperation>& total_operations();

}  // namespace tnr::ptx::test
