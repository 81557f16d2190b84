// mbarrier: see transaction.hpp. Its word's layout is ours, for programs may not look inside: expected arrivals in bits 0
// to 19, those still missing in bits 20 to 39, bytes that are still to come in bits 40 to 61 (they may have come before
// they are announced, so the number has a sign), the phase in the two above.
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

constexpr uint64_t count_mask = (1u << 20) - 1, bytes_mask = (1u << 22) - 1;
constexpr uint32_t missing_at = 20, bytes_at = 40, phase_at = 62;

uint64_t expected(uint64_t word) {
    return word & count_mask;
}
uint64_t missing(uint64_t word) {
    return word >> missing_at & count_mask;
}
uint64_t phase(uint64_t word) {
    return word >> phase_at;
}

void add_bytes(uint64_t& word, uint64_t bytes) {
    uint64_t sum = (word >> bytes_at) + bytes;
    word = (word & ~(bytes_mask << bytes_at)) | (sum & bytes_mask) << bytes_at;
}

// The phase ends when nobody is missing and no byte is.
void end_phase_when_complete(uint64_t& word) {
    if (missing(word) || (word >> bytes_at & bytes_mask)) return;
    word = expected(word) | expected(word) << missing_at | (phase(word) + 1) << phase_at;
}

// Of all Instr here: a, imm: the address, whole; b: a count; c: bytes; dst: the state; count: the verb.
template <class F>
void each_barrier(Warp& w, const Instr& i, F&& f) {
    auto* address = w.reg<uint64_t>(i.a);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* word = barrier_word(w, lane, address[lane]);
        if (!word) return;
        f(lane, *word);
    }
}

void init(Warp& w, const Instr& i) {
    auto* count = w.reg<uint32_t>(i.b);
    each_barrier(w, i, [&](uint32_t lane, uint64_t& word) {
        uint64_t n = count[lane] & count_mask;
        word = n | n << missing_at;
    });
}

enum class Verb : uint16_t { arrive, drop, only_bytes };

void arrive(Warp& w, const Instr& i) {
    auto* state = w.reg<uint64_t>(i.dst);
    auto* count = w.reg<uint32_t>(i.b);
    auto* bytes = w.reg<uint32_t>(i.c);
    auto verb = static_cast<Verb>(i.count);
    each_barrier(w, i, [&](uint32_t lane, uint64_t& word) {
        if (verb != Verb::only_bytes) state[lane] = word;
        add_bytes(word, bytes[lane]);
        if (verb == Verb::only_bytes) return;
        uint64_t n = std::min<uint64_t>(count[lane], missing(word));
        uint64_t fewer = verb == Verb::drop ? std::min(n, expected(word)) : 0;
        word -= (n << missing_at) + fewer;
        end_phase_when_complete(word);
    });
}

void complete_transaction(Warp& w, const Instr& i) {
    auto* bytes = w.reg<uint32_t>(i.c);
    each_barrier(w, i, [&](uint32_t lane, uint64_t& word) { complete_bytes(word, bytes[lane]); });
}

// b: a state (its phase is over?) or, with `count`, the parity of a phase.
void test_wait(Warp& w, const Instr& i) {
    w.polled = true;
    uint32_t done = 0;
    each_barrier(w, i, [&](uint32_t lane, uint64_t& word) {
        uint64_t asked = i.count ? w.reg<uint32_t>(i.b)[lane] : phase(w.reg<uint64_t>(i.b)[lane]);
        if ((phase(word) ^ asked) & 1) done |= 1u << lane;
    });
    w.set_mask(i.dst, w.active, done);
}

void pending_count(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto* a = w.reg<uint64_t>(i.a);
    for_lanes(w.active, [=](uint32_t l) { d[l] = static_cast<uint32_t>(missing(a[l])); });
}

void take_order(Decoder& d) {
    d.take_any_of({"release", "acquire", "relaxed"});
    d.take_any_of({"cta", "cluster"});
}

// mbarrier.arrive{_drop}{.expect_tx}{.shared}.b64 state, [barrier]{, count or bytes}
void decode_arrive(Decoder& d, Verb verb) {
    take_order(d);
    bool with_bytes = d.take("expect_tx");
    d.take("noComplete");  // a promise that the phase does not end
    auto space = take_space(d);
    if (!d.take("b64")) return d.unsupported();
    auto state = d.dest(0, Type::b64);
    auto address = whole_address(d, d.operand(1), space);
    auto number = d.operand_count() > 2 ? d.source(2, Type::u32) : d.constant(1, 4);
    auto& instr = d.emit(arrive);
    instr.dst = state;
    instr.a = address;
    instr.b = with_bytes ? d.constant(1, 4) : number;
    instr.c = with_bytes ? number : d.constant(0, 4);
    instr.count = static_cast<uint16_t>(verb);
}

// mbarrier.expect_tx{.relaxed.cta}{.shared}.b64 [barrier], bytes; complete_tx alike
void decode_bytes(Decoder& d, bool expects) {
    take_order(d);
    auto space = take_space(d);
    if (!d.take("b64")) return d.unsupported();
    auto address = whole_address(d, d.operand(0), space);
    auto bytes = d.source(1, Type::u32);
    auto& instr = d.emit(expects ? arrive : complete_transaction);
    instr.a = address;
    instr.b = d.constant(0, 4);
    instr.c = bytes;
    instr.count = static_cast<uint16_t>(Verb::only_bytes);
}

void decode_wait(Decoder& d) {
    bool parity = d.take("parity");
    take_order(d);
    auto space = take_space(d);
    if (!d.take("b64")) return d.unsupported();
    auto dst = d.predicate_dest(d.operand(0));
    auto address = whole_address(d, d.operand(1), space);
    auto state = d.source(2, parity ? Type::u32 : Type::b64);
    auto& instr = d.emit(test_wait);  // try_wait's time limit is how long it may sleep: not at all
    instr.dst = dst;
    instr.a = address;
    instr.b = state;
    instr.count = parity;
}

void decode_pending_count(Decoder& d) {
    if (!d.take("b64")) return d.unsupported();
    auto a = d.source(1, Type::b64), dst = d.dest(0, Type::u32);
    auto& instr = d.emit(pending_count);
    instr.dst = dst;
    instr.a = a;
}

void decode_init(Decoder& d, bool invalidates) {
    auto space = take_space(d);
    if (!d.take("b64")) return d.unsupported();
    auto address = whole_address(d, d.operand(0), space);
    if (invalidates) return;
    auto count = d.source(1, Type::u32);
    auto& instr = d.emit(init);
    instr.a = address;
    instr.b = count;
}

}  // namespace

uint64_t* barrier_word(Warp& w, uint32_t lane, uint64_t address) {
    bool misaligned = address & 7;
    // Without a space the address is generic.
    auto* p = misaligned                ? nullptr
              : (address & window_mask) ? generic_pointer(w, lane, address, 8, true)
                                        : shared_pointer(w, address, 8);
    if (!p) memory_fault(w, address, lane, 8, "mbarrier access", misaligned);
    return reinterpret_cast<uint64_t*>(p);
}

void complete_bytes(uint64_t& barrier, uint64_t bytes) {
    add_bytes(barrier, ~bytes + 1);
    end_phase_when_complete(barrier);
}

// The copies are done, so this is an arrival; without .noinc it is one that was not expected before.
void decode_copies_arrive(Decoder& d) {
    if (!d.take("arrive")) return d.unsupported();
    bool counted = d.take("noinc");
    auto space = take_space(d);
    if (!d.take("b64")) return d.unsupported();
    auto address = whole_address(d, d.operand(0), space);
    if (!counted) return;
    auto& instr = d.emit(arrive);
    instr.dst = d.temporary(Type::b64);
    instr.a = address;
    instr.b = d.constant(1, 4);
    instr.c = d.constant(0, 4);
    instr.count = static_cast<uint16_t>(Verb::arrive);
}

bool decode_mbarrier(Decoder& d) {
    if (d.inst().name != "mbarrier") return false;
    auto verb = d.take_any_of({"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "test_wait",
                               "try_wait", "pending_count"});
    if (verb == "arrive" || verb == "arrive_drop")
        decode_arrive(d, verb == "arrive" ? Verb::arrive : Verb::drop);
    else if (verb == "test_wait" || verb == "try_wait")
        decode_wait(d);
    else if (verb == "expect_tx" || verb == "complete_tx")
        decode_bytes(d, verb == "expect_tx");
    else if (verb == "pending_count")
        decode_pending_count(d);
    else if (verb == "init" || verb == "inval")
        decode_init(d, verb == "inval");
    else
        d.unsupported();
    return true;
}

}  // namespace tnr::ptx
