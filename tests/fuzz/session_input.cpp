// See session_input.hpp.
#include "tests/fuzz/session_input.hpp"

#include <algorithm>
#include <string_view>

#include "cuda_calls.hpp"
#include "gpu_client/protocol/code_records.hpp"
#include "gpu_client/protocol/ops.hpp"

namespace tnr::fuzz {

namespace {

constexpr size_t records_max = 96;
constexpr uint64_t mapping_step = uint64_t{2} << 20;
// A grid may be as large as an interpreter can run in moments; what it is refused for does not depend on its size.
constexpr uint32_t grid_max = 4;

enum Flags : uint8_t {
    wants_reply = 1,
    has_bulk = 2,
    ends_batch = 4,
    any_op = 8,         // whether the worker knows it or not
    nobody_waits = 16,  // the call number is 0
};

enum Field : uint8_t {
    small64,
    small32,
    address,
    block,
    power,
    raw32,
    raw64,
    blob,
    text,
    function,
    negative,
    zeros,
    end
};

// Code that loads and ends. Mutated it would do neither, so the input chooses.
constexpr std::string_view images[] = {
    R"(.version 8.0
.target sm_80
.address_size 64
.global .align 8 .b8 table[64] = {1, 2, 3};
.visible .entry fill(.param .u64 to, .param .u32 n)
{
.reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>;
ld.param.u64 %d1, [to]; ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x; setp.ge.u32 %p, %r2, %r1; @%p bra L;
mul.wide.u32 %d2, %r2, 4; add.s64 %d3, %d1, %d2; st.global.u32 [%d3], %r2;
L: ret;
}
.visible .entry nothing() { ret; }
)",
    R"(.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 word[7] = {104, 101, 108, 108, 111, 10, 0};
.visible .entry say()
{
.reg .b64 %d<3>; .reg .b32 %r<2>;
mov.u64 %d1, word; cvta.global.u64 %d2, %d1;
{ .param .b64 p0; st.param.b64 [p0], %d2; .param .b64 p1; st.param.b64 [p1], 0; .param .b32 q;
call.uni (q), vprintf, (p0, p1); ld.param.b32 %r1, [q]; }
ret;
}
)",
    R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry fault() { .reg .b64 %d<2>; mov.u64 %d1, 8; st.global.u32 [%d1], 1; ret; }
)",
    R"(.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) other(.param .b32 x);
.visible .entry asks(.param .u64 to)
{
.reg .b64 %d<2>; .reg .b32 %r<2>;
ld.param.u64 %d1, [to];
{ .param .b32 p0; st.param.b32 [p0], 5; .param .b32 q; call.uni (q), other, (p0); ld.param.b32 %r1, [q]; }
st.global.u32 [%d1], %r1; ret;
}
)",
    R"(.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 r) other(.param .b32 x)
{ .reg .b32 %r<2>; ld.param.u32 %r1, [x]; add.u32 %r1, %r1, 1; st.param.b32 [r], %r1; ret; }
)",
};

// After its end everything reads as zero.
class Input {
public:
    explicit Input(std::span<const uint8_t> rest) : rest_(rest) {}
    bool empty() const { return rest_.empty(); }
    std::span<const uint8_t> take(size_t bytes) {
        auto part = rest_.first(std::min(bytes, rest_.size()));
        rest_ = rest_.subspan(part.size());
        return part;
    }
    template <class T>
    T get() {
        T value{};
        auto part = take(sizeof value);
        if (!part.empty()) std::memcpy(&value, part.data(), part.size());
        return value;
    }
    uint8_t byte() { return get<uint8_t>(); }

private:
    std::span<const uint8_t> rest_;
};

std::vector<uint16_t> known_ops() {
    std::vector<uint16_t> ops = {wire::op_set_context,   wire::op_memory_grant,       wire::op_memory_map,
                                 wire::op_memory_unmap,  wire::op_watch_event,        wire::op_watch_stream,
                                 wire::op_image_piece,   wire::op_host_function_done, wire::op_move_range,
                                 wire::op_memory_access, wire::op_memory_info,        wire::op_query_event,
                                 wire::op_query_stream,  wire::op_graph_for_kernels,  wire::op_function_sees};
    for (auto& call : wire::calls)
        if (call.way != wire::CallWay::local && call.way != wire::CallWay::unsupported) ops.push_back(call.op);
    std::sort(ops.begin(), ops.end());
    return ops;
}

uint16_t read_op(Input& in, bool any) {
    static const auto ops = known_ops();
    auto op = in.get<uint16_t>();
    bool known = any || op == wire::op_goodbye || std::binary_search(ops.begin(), ops.end(), op);
    return known ? op : ops[op % ops.size()];
}

bool read_field(Input& in, uint64_t range, wire::Writer& out) {
    switch (in.byte() % (end + 1)) {
        case small64:
            out.put(uint64_t{in.byte()});
            return true;
        case small32:
            out.put(uint32_t{in.byte()});
            return true;
        case address:
            out.put(range + in.get<uint16_t>() * uint64_t{64});
            return true;
        case block:
            out.put(range + in.byte() * mapping_step);
            return true;
        case power: {
            auto value = in.byte();
            out.put((uint64_t{1} << (value & 63)) - (value >> 6 & 1));
            return true;
        }
        case raw32:
            out.put(in.get<uint32_t>());
            return true;
        case raw64:
            out.put(in.get<uint64_t>());
            return true;
        case blob: {
            auto bytes = in.take(in.byte());
            out.put_raw(bytes.data(), bytes.size());
            return true;
        }
        case text: {
            auto bytes = in.take(in.byte());
            out.put_bytes(bytes.data(), bytes.size());
            return true;
        }
        case function: {
            auto library = in.byte();
            out.put(wire::function_number(library, in.byte()));
            return true;
        }
        case negative:
            out.put(~uint64_t{in.byte()});
            return true;
        case zeros: {
            wire::Bytes bytes(in.byte() * size_t{16});
            out.put_raw(bytes.data(), bytes.size());
            return true;
        }
    }
    return false;
}

zmq::message_t read_bulk(Input& in) {
    auto kind = in.byte();
    if (kind < std::size(images)) return {images[kind].data(), images[kind].size()};
    if (kind % 2 != 0) return zmq::message_t(std::min(in.get<uint16_t>() * size_t{64}, wire::piece_bytes_max));
    auto bytes = in.take(in.byte());
    return {bytes.data(), bytes.size()};
}

// `payload`: of a launch, behind the call number.
void bound_grid(std::span<std::byte> payload) {
    wire::Launch<> record;
    wire::Reader in(payload);
    if (!wire::read_field(in, record)) return;
    for (auto& size : record.grid) size %= grid_max;
    auto bytes = wire::packed(record);
    std::memcpy(payload.data(), bytes.data(), bytes.size());
}

}  // namespace

std::vector<SentBatch> read_session(std::span<const uint8_t> input, uint64_t range) {
    std::vector<SentBatch> batches;
    Input in(input);
    bool open = false;
    for (size_t count = 1; count <= records_max && !in.empty(); ++count) {
        if (!open) wire::Link::begin(batches.emplace_back().frame);
        auto& batch = batches.back();
        auto flags = in.byte();
        auto op = read_op(in, flags & any_op);
        const uint64_t number = flags & wants_reply && !(flags & nobody_waits) ? count : 0;

        wire::Writer out(batch.frame);
        out.begin_record(op, flags & (wants_reply | has_bulk));  // as in wire::RecordFlags
        if (flags & wants_reply) out.put(number);
        auto payload_at = batch.frame.size();
        for (size_t fields = 0; fields < 64 && read_field(in, range, out);) ++fields;
        if (op == wire::op_cuLaunchKernel) bound_grid(std::span(batch.frame).subspan(payload_at));
        out.end_record();

        if (flags & has_bulk) batch.bulk.push_back(read_bulk(in));
        if (number != 0 && op < wire::op_completed)
            batch.calls.emplace_back(number, op);  // beyond: what only a worker says
        batch.says_goodbye |= op == wire::op_goodbye;
        open = !(flags & ends_batch) && batch.bulk.size() < wire::batch_frames_max / 2;
    }
    return batches;
}

}  // namespace tnr::fuzz
