// See collective.hpp; and the operations shfl, vote, match, redux, elect and bar.warp.sync. Who waits is in
// Warp::at_sync. activemask never waits.
#include "gpu_server/emulated_gpu/ptx/collective.hpp"

#include <cmath>
#include <functional>
#include <limits>

#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

// dst, d: results; a, b, c: sources; count: which operation (per group); imm: the Operation; flags:
enum Flag : uint8_t { flag_legacy = 1, flag_pair = 2 };  // legacy: no mask operand, all who are there

// The usual case: those that take part are the lanes that run, so they are all in the warp's current frame.
bool in_one_frame(const Warp& w, uint32_t lanes) {
    return lanes == w.active;
}

template <class T>
void gather(Warp& w, RegRef ref, uint32_t lanes, T (&values)[warp_lanes]) {
    if (in_one_frame(w, lanes)) return void(std::memcpy(values, w.reg<T>(ref), sizeof values));
    for (; lanes; lanes &= lanes - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
        values[lane] = w.reg_of<T>(lane, ref)[lane];
    }
}

template <class T>
void scatter(Warp& w, RegRef ref, uint32_t lanes, const T (&values)[warp_lanes]) {
    const T* from = values;
    if (in_one_frame(w, lanes)) return assign_lanes(lanes, w.reg<T>(ref), [=](uint32_t l) { return from[l]; });
    for (; lanes; lanes &= lanes - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
        put(w, ref, lane, values[lane]);
    }
}

uint32_t gather_mask(Warp& w, RegRef ref, uint32_t lanes) {
    if (in_one_frame(w, lanes)) return w.mask(ref) & lanes;
    uint32_t bits = 0;
    for (; lanes; lanes &= lanes - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
        bits |= *w.reg_of<uint32_t>(lane, ref) & 1u << lane;
    }
    return bits;
}

void put_predicate(Warp& w, RegRef ref, uint32_t lane, bool value) {
    auto& mask = *w.reg_of<uint32_t>(lane, ref);
    mask = value ? mask | 1u << lane : mask & ~(1u << lane);
}

enum class Shuffle : uint16_t { up, down, bfly, idx };

// Which lane `lane` reads from, or itself when that one is outside its segment.
int32_t shuffle_source(Shuffle mode, int32_t lane, int32_t by, uint32_t limit) {
    auto segment = static_cast<int32_t>(limit >> 8 & 31), clamp = static_cast<int32_t>(limit & 31);
    int32_t last = (lane & segment) | (clamp & ~segment);
    int32_t from = mode == Shuffle::up     ? lane - by
                   : mode == Shuffle::down ? lane + by
                   : mode == Shuffle::bfly ? lane ^ by
                                           : (lane & segment) | (by & ~segment);
    return (mode == Shuffle::up ? from >= last : from <= last) ? from : ~lane;
}

void shuffle(Warp& w, const Instr& i, uint32_t lanes) {
    uint32_t values[warp_lanes] = {}, by[warp_lanes] = {}, limit[warp_lanes] = {}, results[warp_lanes];
    gather(w, i.a, lanes, values);
    gather(w, i.b, lanes, by);
    gather(w, i.c, lanes, limit);
    int32_t from[warp_lanes];
    auto mode = static_cast<Shuffle>(i.count);
    for_all_lanes([&from, &by, &limit, mode](uint32_t l) {
        from[l] = shuffle_source(mode, static_cast<int32_t>(l), static_cast<int32_t>(by[l] & 31), limit[l]);
    });
    for (uint32_t l = 0; l < warp_lanes; ++l) results[l] = values[from[l] < 0 ? ~from[l] : from[l]];
    scatter(w, i.dst, lanes, results);
    if (!(i.flags & flag_pair)) return;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        put_predicate(w, i.d, lane, from[lane] >= 0);
    }
}

enum class Vote : uint16_t { all, any, uni, ballot };

void vote(Warp& w, const Instr& i, uint32_t lanes) {
    uint32_t truth = gather_mask(w, i.a, lanes);
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        switch (static_cast<Vote>(i.count)) {
            case Vote::all:
                put_predicate(w, i.dst, lane, truth == lanes);
                break;
            case Vote::any:
                put_predicate(w, i.dst, lane, truth != 0);
                break;
            case Vote::uni:
                put_predicate(w, i.dst, lane, truth == 0 || truth == lanes);
                break;
            case Vote::ballot:
                put(w, i.dst, lane, truth);
                break;
        }
    }
}

template <class T, bool All>
void match(Warp& w, const Instr& i, uint32_t lanes) {
    T values[warp_lanes] = {};
    gather(w, i.a, lanes, values);
    for (uint32_t rest = lanes; rest;) {
        auto value = values[std::countr_zero(rest)];
        auto same = lanes_where(lanes, [v = values, value](uint32_t l) { return v[l] == value; });
        rest &= ~same;
        for (uint32_t those = same; those; those &= those - 1) {
            auto lane = static_cast<uint32_t>(std::countr_zero(those));
            put(w, i.dst, lane, !All || same == lanes ? same : 0u);
            if (i.flags & flag_pair) put_predicate(w, i.d, lane, same == lanes);
        }
    }
}

template <class T, auto F>
void reduce(Warp& w, const Instr& i, uint32_t lanes) {
    T values[warp_lanes] = {};
    gather(w, i.a, lanes, values);
    auto first = static_cast<uint32_t>(std::countr_zero(lanes));
    T result = std::is_floating_point_v<T> ? F(values[first], values[first]) : values[first];  // .abs, of one lane too
    for (uint32_t rest = lanes & (lanes - 1); rest; rest &= rest - 1)
        result = F(result, values[std::countr_zero(rest)]);
    for (uint32_t rest = lanes; rest; rest &= rest - 1)
        put(w, i.dst, static_cast<uint32_t>(std::countr_zero(rest)), result);
}

template <class T>
T add(T a, T b) {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
template <class T>
T smaller(T a, T b) {
    return a < b ? a : b;
}
template <class T>
T larger(T a, T b) {
    return a > b ? a : b;
}
void elect(Warp& w, const Instr& i, uint32_t lanes) {
    auto leader = static_cast<uint32_t>(std::countr_zero(lanes));
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        put(w, i.dst, lane, leader);
        put_predicate(w, i.d, lane, lane == leader);
    }
}

void only_wait(Warp&, const Instr&, uint32_t) {}

Operation operation_of(const Instr& i) {
    return reinterpret_cast<Operation>(i.imm);
}

// Lanes that wait with this mask at this instruction; for bar.warp.sync at any such.
uint32_t partners(const Warp& w, uint32_t pc, uint32_t mask) {
    auto& code = w.program->code;
    bool any_place = operation_of(code[pc]) == only_wait;
    uint32_t found = 0;
    for (uint32_t rest = w.at_sync & mask; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        bool same = w.lane_pc[lane] == pc || (any_place && operation_of(code[w.lane_pc[lane]]) == only_wait);
        if (same && w.sync_mask[lane] == mask) found |= 1u << lane;
    }
    return found;
}

void complete(Warp& w, uint32_t pc, uint32_t lanes) {
    auto& instr = w.program->code[pc];
    operation_of(instr)(w, instr, lanes);
    w.at_sync &= ~lanes;
    for (; lanes; lanes &= lanes - 1) ++w.lane_pc[std::countr_zero(lanes)];
}

void collective(Warp& w, const Instr& i) {
    if (i.flags & flag_legacy) return operation_of(i)(w, i, w.active);
    auto* masks = w.reg<uint32_t>(i.table);
    // The usual case: all lanes of one mask are here already.
    uint32_t mask = masks[std::countr_zero(w.active)];
    bool same = lanes_where(w.active, [=](uint32_t l) { return masks[l] == mask; }) == w.active;
    if (same && (mask & w.live) == w.active) return operation_of(i)(w, i, w.active);
    uint32_t pc = w.pc - 1;
    reschedule(w);
    w.park(w.active, pc);
    w.at_sync |= w.active;
    // A lane outside its own mask is undefined behaviour. Programs do it in warps that run together, as for a GPU they do,
    // and drop the result: such lanes wait for nobody, and find each other.
    uint32_t outside = lanes_where(w.active, [=](uint32_t l) { return !(masks[l] >> l & 1); });
    if (outside) complete(w, pc, outside);
    for (uint32_t rest = w.active & ~outside; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        w.sync_mask[lane] = masks[lane];
    }
    for (uint32_t rest = w.active & ~outside; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        if (!(w.at_sync >> lane & 1)) continue;  // done with an earlier one
        uint32_t there = partners(w, pc, w.sync_mask[lane]);
        if ((w.sync_mask[lane] & w.live) == there) complete(w, pc, there);
    }
}

void activemask(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    uint32_t active = w.active;
    assign_lanes(active, d, [=](uint32_t) { return active; });
}

// `mask`: the operand with the lanes that take part, or none for the forms before Volta.
Instr& emit(Decoder& d, Operation operation, const ast::Operand* mask) {
    auto& instr = emit_collective(d, operation, mask ? d.source(*mask, Type::b32) : 0);
    instr.flags = mask ? 0 : flag_legacy;
    return instr;
}

void decode_shuffle(Decoder& d) {
    bool sync = d.take("sync");
    auto mode = d.take_any_of({"up", "down", "bfly", "idx"});
    if (mode.empty() || !d.take("b32")) return d.unsupported();
    auto a = d.source(1, Type::b32), b = d.source(2, Type::b32), c = d.source(3, Type::b32);
    auto& results = d.operand(0);
    bool pair = results.kind == ast::Operand::Kind::pair;
    auto dst = d.dest(pair ? results.parts[0] : results, Type::b32);
    auto valid = pair ? d.predicate_dest(results.parts[1]) : 0;
    auto& instr = emit(d, shuffle, sync ? &d.operand(4) : nullptr);
    instr.dst = dst;
    instr.a = a;
    instr.b = b;
    instr.c = c;
    instr.d = valid;
    if (pair) instr.flags |= flag_pair;
    instr.count = static_cast<uint16_t>(mode == "up"     ? Shuffle::up
                                        : mode == "down" ? Shuffle::down
                                        : mode == "bfly" ? Shuffle::bfly
                                                         : Shuffle::idx);
}

void decode_vote(Decoder& d) {
    bool sync = d.take("sync");
    auto mode = d.take_any_of({"all", "any", "uni", "ballot"});
    bool ballot = mode == "ballot";
    if (mode.empty() || !d.take(ballot ? "b32" : "pred")) return d.unsupported();
    auto a = d.predicate(d.operand(1));
    auto dst = d.dest(0, ballot ? Type::b32 : Type::pred);
    auto& instr = emit(d, vote, sync ? &d.operand(2) : nullptr);
    instr.dst = dst;
    instr.a = a;
    instr.count = static_cast<uint16_t>(mode == "all"   ? Vote::all
                                        : mode == "any" ? Vote::any
                                        : ballot        ? Vote::ballot
                                                        : Vote::uni);
}

void decode_match(Decoder& d) {
    d.take("sync");
    bool all = d.take("all");
    if (!all && !d.take("any")) return d.unsupported();
    d.take("sync");
    auto type = d.take_type();
    if (type != Type::b32 && type != Type::b64) return d.unsupported();
    auto a = d.source(1, type);
    auto& results = d.operand(0);
    bool pair = results.kind == ast::Operand::Kind::pair;
    auto dst = d.dest(pair ? results.parts[0] : results, Type::b32);
    auto valid = pair ? d.predicate_dest(results.parts[1]) : 0;
    Operation narrow = all ? match<uint32_t, true> : match<uint32_t, false>;
    Operation wide = all ? match<uint64_t, true> : match<uint64_t, false>;
    auto& instr = emit(d, type == Type::b32 ? narrow : wide, &d.operand(2));
    instr.dst = dst;
    instr.a = a;
    instr.d = valid;
    if (pair) instr.flags |= flag_pair;
}

Operation reduce_operation(std::string_view op, Type type) {
    bool is_signed = type == Type::s32;
    if (op == "add") return reduce<uint32_t, add<uint32_t>>;
    if (op == "min") return is_signed ? reduce<int32_t, smaller<int32_t>> : reduce<uint32_t, smaller<uint32_t>>;
    if (op == "max") return is_signed ? reduce<int32_t, larger<int32_t>> : reduce<uint32_t, larger<uint32_t>>;
    if (op == "and") return reduce<uint32_t, std::bit_and<uint32_t>{}>;
    if (op == "or") return reduce<uint32_t, std::bit_or<uint32_t>{}>;
    return reduce<uint32_t, std::bit_xor<uint32_t>{}>;
}

// min and max of floats; a NaN loses, or with .NaN wins.
template <bool Max, bool Abs, bool Nan>
float extreme(float a, float b) {
    if (Abs) a = std::fabs(a), b = std::fabs(b);
    if (a != a || b != b) {
        bool both = a != a && b != b;
        return Nan || both ? std::numeric_limits<float>::quiet_NaN() : a != a ? b : a;
    }
    if (a == b) return std::signbit(a) == Max ? b : a;  // -0 is below +0
    return (a < b) == Max ? b : a;
}

template <bool Max>
Operation reduce_floats(bool abs, bool nan) {
    if (abs) return nan ? reduce<float, extreme<Max, true, true>> : reduce<float, extreme<Max, true, false>>;
    return nan ? reduce<float, extreme<Max, false, true>> : reduce<float, extreme<Max, false, false>>;
}

void decode_redux(Decoder& d) {
    d.take("sync");
    auto op = d.take_any_of({"add", "min", "max", "and", "or", "xor"});
    bool abs = d.take("abs"), nan = d.take("NaN");
    auto type = d.take_type();
    bool floats = type == Type::f32 && (op == "min" || op == "max");
    bool whole = (type == Type::u32 || type == Type::s32 || type == Type::b32) && !abs && !nan;
    if (op.empty() || (!whole && !floats)) return d.unsupported();
    auto a = d.source(1, type);
    auto dst = d.dest(0, type);
    auto operation = !floats       ? reduce_operation(op, type)
                     : op == "max" ? reduce_floats<true>(abs, nan)
                                   : reduce_floats<false>(abs, nan);
    auto& instr = emit(d, operation, &d.operand(2));
    instr.dst = dst;
    instr.a = a;
}

void decode_elect(Decoder& d) {
    d.take("sync");
    auto& results = d.operand(0);
    if (results.kind != ast::Operand::Kind::pair) return d.fail("expected d|p");
    auto dst = d.dest(results.parts[0], Type::b32);
    auto leader = d.predicate_dest(results.parts[1]);
    auto& instr = emit(d, elect, &d.operand(1));
    instr.dst = dst;
    instr.d = leader;
}

}  // namespace

Instr& emit_collective(Decoder& d, Operation operation, RegRef mask) {
    auto& instr = d.emit(collective);
    instr.imm = reinterpret_cast<int64_t>(operation);
    instr.table = mask;
    return instr;
}

Instr& emit_aligned(Decoder& d, Operation operation) {
    return emit_collective(d, operation, d.constant(all_lanes, 4));
}

void check_collectives(Warp& w) {
    uint32_t seen = 0;
    for (uint32_t rest = w.at_sync; rest; rest = w.at_sync & ~seen) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t there = partners(w, w.lane_pc[lane], w.sync_mask[lane]);
        seen |= there | 1u << lane;
        if ((w.sync_mask[lane] & w.live) == there) complete(w, w.lane_pc[lane], there);
    }
}

bool decode_collective(Decoder& d) {
    auto name = d.inst().name;
    if (name == "shfl")
        decode_shuffle(d);
    else if (name == "vote")
        decode_vote(d);
    else if (name == "match")
        decode_match(d);
    else if (name == "redux")
        decode_redux(d);
    else if (name == "elect")
        decode_elect(d);
    else if (name == "activemask") {
        d.take("b32");
        auto dst = d.dest(0, Type::b32);
        d.emit(activemask).dst = dst;
    } else if (name == "bar" || name == "barrier") {
        if (!d.take("warp")) return false;
        if (!d.take("sync")) return d.unsupported(), true;
        emit(d, only_wait, &d.operand(0));
    } else {
        return false;
    }
    return true;
}

}  // namespace tnr::ptx
