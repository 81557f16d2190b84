// cp.async and mbarrier. Copies are done at once, so waiting for them is nothing; an mbarrier is a 64-bit
// word of shared memory whose layout is ours (programs may not look inside): expected arrivals in bits 0 to
// 19, those still missing in bits 20 to 39, the phase above.
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"

namespace tnr::ptx {
namespace {

constexpr uint64_t count_mask = (1u << 20) - 1;

// dst of the copy in a (shared), source in b (global), d: bytes to read (the rest is zero); imm and count the
// offsets' and sizes'.
template <Where To>
void copy(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto* to = w.reg<AddressType<To>>(i.a);
    auto *from = w.reg<uint64_t>(i.b), *offsets = w.reg<uint64_t>(i.c);
    auto* bytes = w.reg<uint32_t>(i.d);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto target = static_cast<AddressType<To>>(to[lane] + static_cast<uint64_t>(i.imm));
        uint64_t source = from[lane] + offsets[lane];
        uint32_t read = std::min<uint32_t>(bytes[lane], i.count);
        if ((target | source) & (i.count - 1u)) return memory_fault(w, source, lane, i.count, "cp.async", true);
        auto* p = pointer<To>(w, lane, target, i.count, true);
        if (!p) return memory_fault(w, target, lane, i.count, "cp.async's write", false);
        auto* q = read ? global_pointer(*w.worker, source, read) : nullptr;
        if (read && !q) return memory_fault(w, source, lane, read, "cp.async's read", false);
        if (read) std::memcpy(p, q, read);
        std::memset(p + read, 0, i.count - read);
    }
}

// cp.async.ca.shared.global [to], [from], size{, read size}
void decode_copy(Decoder& d) {
    take_cache_hints(d);
    if ((!d.take("shared") && !d.take("shared::cta")) || !d.take("global")) return d.unsupported();
    take_cache_hints(d);
    auto to = decode_address(d, d.operand(0), Space::shared);
    auto from = decode_address(d, d.operand(1), Space::global);
    auto& size = d.operand(2);
    if (size.kind != ast::Operand::Kind::integer || (size.value != 4 && size.value != 8 && size.value != 16))
        return d.fail("cp.async copies 4, 8 or 16 bytes");
    bool partial =
        d.operand_count() > 3 && (d.type_of(d.operand(3)) == Type::none || size_of(d.type_of(d.operand(3))) == 4);
    auto read = partial ? d.source(3, Type::u32) : d.constant(static_cast<uint64_t>(size.value), 4);
    auto offset = d.constant(static_cast<uint64_t>(from.offset), 8);
    auto& instr = d.emit(to.where == Where::shared32 ? copy<Where::shared32> : copy<Where::shared>);
    instr.a = to.base;
    instr.b = from.base;
    instr.c = offset;
    instr.d = read;
    instr.imm = to.offset;
    instr.count = static_cast<uint16_t>(size.value);
}

uint64_t* barrier_at(Warp& w, const Instr& i, uint32_t lane) {
    uint64_t address =
        (i.flags ? w.reg<uint32_t>(i.a)[lane] : w.reg<uint64_t>(i.a)[lane]) + static_cast<uint64_t>(i.imm);
    bool misaligned = address & 7;
    // Without a space the address is generic.
    auto* p = misaligned                ? nullptr
              : (address & window_mask) ? generic_pointer(w, lane, address, 8, true)
                                        : shared_pointer(w, address, 8);
    if (!p) memory_fault(w, address, lane, 8, "mbarrier access", misaligned);
    return reinterpret_cast<uint64_t*>(p);
}

template <class F>
void each_barrier(Warp& w, const Instr& i, F&& f) {
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* word = barrier_at(w, i, lane);
        if (!word) return;
        f(lane, *word);
    }
}

void init(Warp& w, const Instr& i) {
    auto* count = w.reg<uint32_t>(i.b);
    each_barrier(w, i, [&](uint32_t lane, uint64_t& word) {
        uint64_t n = count[lane] & count_mask;
        word = n | n << 20;
    });
}

enum class Arrive : uint16_t { normal, drop };

void arrive(Warp& w, const Instr& i) {
    auto* state = w.reg<uint64_t>(i.dst);
    auto* count = w.reg<uint32_t>(i.b);
    each_barrier(w, i, [&](uint32_t lane, uint64_t& word) {
        state[lane] = word;
        uint64_t expected = word & count_mask, missing = word >> 20 & count_mask, phase = word >> 40;
        uint64_t n = std::min<uint64_t>(count[lane], missing);
        missing -= n;
        if (static_cast<Arrive>(i.count) == Arrive::drop) expected -= std::min(n, expected);
        if (missing == 0) missing = expected, ++phase;
        word = expected | missing << 20 | phase << 40;
    });
}

// b: a state (its phase is over?) or, with `count`, the parity of a phase.
void test_wait(Warp& w, const Instr& i) {
    w.polled = true;
    uint32_t done = 0;
    each_barrier(w, i, [&](uint32_t lane, uint64_t& word) {
        uint64_t asked = i.count ? w.reg<uint32_t>(i.b)[lane] & 1u : w.reg<uint64_t>(i.b)[lane] >> 40 & 1u;
        if ((word >> 40 & 1) != asked) done |= 1u << lane;
    });
    w.set_mask(i.dst, w.active, done);
}

void pending_count(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto* a = w.reg<uint64_t>(i.a);
    for_lanes(w.active, [=](uint32_t l) { d[l] = static_cast<uint32_t>(a[l] >> 20 & count_mask); });
}

void set_address(Instr& instr, const Address& address) {
    instr.a = address.base;
    instr.imm = address.offset;
    instr.flags = address.where == Where::shared32;
}

void decode_arrive(Decoder& d, bool drop) {
    d.take_any_of({"release", "relaxed"});
    d.take_any_of({"cta", "cluster"});
    auto space = take_space(d);
    if (!d.take("b64")) return d.unsupported();
    auto dst = d.dest(0, Type::b64);
    auto address = decode_address(d, d.operand(1), space);
    auto count = d.operand_count() > 2 ? d.source(2, Type::u32) : d.constant(1, 4);
    auto& instr = d.emit(arrive);
    instr.dst = dst;
    instr.b = count;
    instr.count = static_cast<uint16_t>(drop ? Arrive::drop : Arrive::normal);
    set_address(instr, address);
}

void decode_wait(Decoder& d) {
    bool parity = d.take("parity");
    d.take_any_of({"acquire", "relaxed"});
    d.take_any_of({"cta", "cluster"});
    auto space = take_space(d);
    if (!d.take("b64")) return d.unsupported();
    auto dst = d.predicate_dest(d.operand(0));
    auto address = decode_address(d, d.operand(1), space);
    auto state = d.source(2, parity ? Type::u32 : Type::b64);
    auto& instr = d.emit(test_wait);  // try_wait's time limit is how long it may sleep: not at all
    instr.dst = dst;
    instr.b = state;
    instr.count = parity;
    set_address(instr, address);
}

void decode_mbarrier(Decoder& d) {
    auto verb = d.take_any_of({"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "pending_count"});
    if (verb == "arrive" || verb == "arrive_drop") return decode_arrive(d, verb == "arrive_drop");
    if (verb == "test_wait" || verb == "try_wait") return decode_wait(d);
    if (verb == "pending_count") {
        if (!d.take("b64")) return d.unsupported();
        auto a = d.source(1, Type::b64), dst = d.dest(0, Type::u32);
        auto& instr = d.emit(pending_count);
        instr.dst = dst;
        instr.a = a;
        return;
    }
    if (verb.empty()) return d.unsupported();
    auto space = take_space(d);
    if (!d.take("b64")) return d.unsupported();
    auto address = decode_address(d, d.operand(0), space);
    if (verb == "inval") return;
    auto count = d.source(1, Type::u32);
    auto& instr = d.emit(init);
    instr.b = count;
    set_address(instr, address);
}

}  // namespace

bool decode_async(Decoder& d) {
    auto name = d.inst().name;
    if (name == "mbarrier") return decode_mbarrier(d), true;
    if (name != "cp" || !d.take("async")) return false;
    if (d.take("commit_group") || d.take("wait_all") || d.take("wait_group")) return true;
    decode_copy(d);
    return true;
}

}  // namespace tnr::ptx
