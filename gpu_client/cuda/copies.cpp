// See copies.hpp.
//
// To the device, small data is sent inside the record; larger data in pieces that overlap sending with the copy to the
// GPU. Pieces read the program's memory directly where CUDA's contract lets us: pinned memory must stay untouched
// anyway, and a large copy from pageable memory, asynchronous by name or not, returns when the worker has received the
// pieces (until then they may have to be sent again). NVIDIA's driver, whose staging memory is small, does the same.
// Everything else is copied once.
#include "gpu_client/cuda/copies.hpp"

#include <cstdlib>

#include "gpu_client/cuda/async_errors.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/host_functions.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/mirrors.hpp"
#include "gpu_client/cuda/other_devices.hpp"
#include "gpu_client/cuda/outgoing.hpp"
#include "gpu_client/cuda/page_transfers.hpp"
#include "gpu_client/cuda/pinned_work.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/array_records.hpp"
#include "gpu_client/protocol/frame_buffers.hpp"

namespace tnr::cuda {

namespace {

// Below this a copy into a frame costs less than keeping count of it.
constexpr uint64_t unstaged_bytes_min = 128 << 10;
// The end of such a copy is copied into frames, too: as much as keeps the line busy. It is sent while the receipt of
// the pieces before it is on its way back, so the copy hardly waits for the round trip; one that is no longer than this
// does not wait at all.
uint64_t copied_end_bytes(const ClientSession& session) {
    return session.link().kept_enough();
}

void pack(std::byte* to, const HostRows& from, uint64_t first_row, uint64_t rows) {
    for (uint64_t row = 0; row < rows; ++row)
        std::memcpy(to + row * from.row_bytes, from.address + (first_row + row) * from.pitch, from.row_bytes);
}

// Rows of an array lie as only the driver knows.
bool is_plain(const HostRows& host, const DeviceRows& device) {
    if (device.array != 0) return false;
    return host.rows == 1 || (host.pitch == host.row_bytes && device.pitch == host.row_bytes);
}

// An array's bounds have been checked.
bool is_there(const DeviceRows& device, uint64_t row_bytes, uint64_t rows) {
    return device.array != 0 || is_allocated(device.address, extent(row_bytes, rows, device.pitch));
}

wire::RowsPlace<> place_of(const DeviceRows& rows) {
    return {rows.array, rows.x_bytes, rows.y, rows.z, rows.address, rows.pitch};
}

// Past so many bytes of each row, and so many rows.
DeviceRows past(DeviceRows rows, uint64_t bytes, uint64_t count) {
    rows.x_bytes += bytes;
    rows.y += count;
    rows.address += bytes + count * rows.pitch;
    return rows;
}

bool is_sound(const HostRows& host, const DeviceRows& device) {
    if (!host.address || host.row_bytes > host.pitch || host.row_bytes > device.pitch) return false;
    return host.rows < (uint64_t{1} << 32) && host.pitch < (uint64_t{1} << 40) && device.pitch < (uint64_t{1} << 40) &&
           is_there(device, host.row_bytes, host.rows) &&
           !is_pinned_in_part(host.address, extent(host.row_bytes, host.rows, host.pitch));
}

// One record of a copy to the device.
class Upload {
public:
    Upload(const StreamRef& stream, uint32_t flags) : stream_(stream), flags_(flags) {}

    CUresult plain(uint64_t to, const std::byte* from, uint64_t bytes, zmq::message_t* bulk) {
        wire::Upload<> record{to, stream_.number, flags_, bytes};
        if (!bulk) return send_inline(record, from);
        RemoteCall call(record);
        call.use(stream_);
        return call.send(bulk);
    }
    CUresult rows(const DeviceRows& to, const HostRows& from, uint64_t first, uint64_t count) {
        uint64_t bytes = count * from.row_bytes;
        bool fits = bytes <= wire::inline_copy_bytes_max;
        uint32_t flags = fits ? flags_ | wire::copy_inline : flags_;
        auto here = past(to, 0, first);
        if (to.array != 0) {
            RemoteCall call(wire::CopyArrayRows<>{.to = place_of(here),
                                                  .from = {},
                                                  .width = from.row_bytes,
                                                  .rows = count,
                                                  .stream = stream_.number,
                                                  .direction = wire::CopyDirection::to_device,
                                                  .flags = flags});
            return send_rows(call, from, first, count, fits);
        }
        RemoteCall call(wire::CopyRows<>{.destination = here.address,
                                         .destination_pitch = to.pitch,
                                         .width = from.row_bytes,
                                         .rows = count,
                                         .stream = stream_.number,
                                         .direction = wire::CopyDirection::to_device,
                                         .flags = flags});
        return send_rows(call, from, first, count, fits);
    }

private:
    CUresult send_rows(RemoteCall& call, const HostRows& from, uint64_t first, uint64_t count, bool fits) {
        uint64_t bytes = count * from.row_bytes;
        call.use(stream_);
        zmq::message_t piece(bytes);
        pack(piece.data<std::byte>(), from, first, count);
        if (!fits) return call.send(&piece);
        call.put_raw(piece.data(), bytes);
        return call.send();
    }
    CUresult send_inline(wire::Upload<>& record, const std::byte* from) {
        record.flags |= wire::copy_inline;
        Context* context = nullptr;
        if (auto result = context_of_stream(stream_, context); result != CUDA_SUCCESS) return result;
        return submit(record.op, *context, stream_, {wire::packed(record), {from, record.bytes}});
    }

    StreamRef stream_;
    uint32_t flags_;
};

CUresult upload_plain(uint64_t to, const std::byte* from, uint64_t bytes, const StreamRef& stream, bool wait) {
    Upload upload(stream, wait ? uint32_t{wire::copy_sync} : 0);
    if (bytes <= wire::inline_copy_bytes_max) return upload.plain(to, from, bytes, nullptr);
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    auto& session = *context->session.load();
    PinnedRange range;
    bool pinned = !wait && find_pinned(from, bytes, range);
    uint64_t end = pinned ? 0 : copied_end_bytes(session);
    uint64_t lent = bytes >= unstaged_bytes_min && bytes > end ? bytes - end : 0;  // the rest is copied
    auto* outgoing = lent != 0 ? Outgoing::begin(session, pinned ? &range : nullptr) : nullptr;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t offset = 0; offset < bytes && result == CUDA_SUCCESS; offset += wire::piece_bytes_max) {
        uint64_t length = std::min<uint64_t>(bytes - offset, wire::piece_bytes_max);
        bool lend = offset + length <= lent;
        if (!lend) session.wait_for_room();
        auto piece =
            lend ? outgoing->frame(from + offset, length) : wire::frame_buffers().copy_of({from + offset, length});
        result = upload.plain(to + offset, nullptr, length, &piece);
    }
    if (!outgoing) return result;
    session.flush();
    if (pinned)
        outgoing->let_go();
    else
        outgoing->wait();
    return session.lost() ? CUDA_ERROR_DEVICE_UNAVAILABLE : result;
}

// Rows of an array of which none fits into a piece.
CUresult upload_long_rows(const DeviceRows& to, const HostRows& from, const StreamRef& stream, bool wait) {
    Upload upload(stream, wait ? uint32_t{wire::copy_sync} : 0);
    for (uint64_t row = 0; row < from.rows; ++row)
        for (uint64_t at = 0; at < from.row_bytes; at += wire::piece_bytes_max) {
            uint64_t bytes = std::min<uint64_t>(from.row_bytes - at, wire::piece_bytes_max);
            const HostRows part{from.address + row * from.pitch + at, bytes, 1, from.pitch};
            if (auto result = upload.rows(past(to, at, row), part, 0, 1); result != CUDA_SUCCESS) return result;
        }
    return CUDA_SUCCESS;
}

CUresult upload(const DeviceRows& to, const HostRows& from, const StreamRef& stream, bool wait) {
    if (is_plain(from, to)) return upload_plain(to.address, from.address, from.row_bytes * from.rows, stream, wait);
    if (from.row_bytes > wire::piece_bytes_max && to.array != 0) return upload_long_rows(to, from, stream, wait);
    if (from.row_bytes > wire::piece_bytes_max) {
        for (uint64_t row = 0; row < from.rows; ++row) {
            auto result = upload_plain(to.address + row * to.pitch, from.address + row * from.pitch, from.row_bytes,
                                       stream, wait);
            if (result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
    }
    Upload upload(stream, wait ? uint32_t{wire::copy_sync} : 0);
    uint64_t at_a_time = wire::piece_bytes_max / from.row_bytes;
    for (uint64_t row = 0; row < from.rows; row += at_a_time) {
        auto result = upload.rows(to, from, row, std::min(at_a_time, from.rows - row));
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

// A copy that nobody waits for: lives until its answer is there.
struct DetachedCopy {
    Pending pending;
    wire::Bytes payload;
    std::atomic<int>* in_flight = nullptr;
    PendingWrite write;
    Context& context;
    DetachedCopy(const void* to, size_t bytes, Context& in) : write(to, bytes), context(in) { ++context.downloads; }
    ~DetachedCopy() { --context.downloads; }
};

bool take_short_answer(Pending& pending) {
    wire::Reader answer(pending.answer);
    wire::DownloadReply reply;
    return wire::read(answer, reply) && pending.destination.write(0, reply.data);
}

CUresult download_later(uint16_t op, wire::Bytes payload, const Destination& to, const PinnedRange& range,
                        const StreamRef& stream, Context& context) {
    auto* copy = new DetachedCopy(to.base, to.row_bytes == 0 ? to.bytes : to.bytes / to.row_bytes * to.pitch, context);
    copy->payload = std::move(payload);
    copy->in_flight = range.in_flight;
    copy->in_flight->fetch_add(1);
    copy->pending.destination = to;
    copy->pending.as_news = true;
    copy->pending.when_done = [copy, op](Pending& pending) {
        if (pending.result == CUDA_SUCCESS && !take_short_answer(pending)) pending.result = CUDA_ERROR_UNKNOWN;
        if (pending.result != CUDA_SUCCESS) async_call_failed(op, pending.result, "");
        note_completion_heard();
        copy->in_flight->fetch_sub(1);
        delete copy;
    };
    uint64_t position = context.session.load()->request(context.number, op, copy->payload, copy->pending);
    raise_to(context.last_use, position);
    if (stream.object) raise_to(stream.object->last_use, position);
    return position != 0 ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult download_now(uint16_t op, const wire::Bytes& payload, const Destination& to, const StreamRef& stream,
                      Context& context) {
    RemoteCall call(op, wire::CallWay::sync);
    call.in_context(&context);
    call.works_in(stream);
    call.put_raw(payload.data() + sizeof(uint64_t), payload.size() - sizeof(uint64_t));
    call.into(to);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    if (!take_short_answer(call.pending())) return CUDA_ERROR_UNKNOWN;
    note_waited(stream, context, call.position());
    return CUDA_SUCCESS;
}

CUresult copy_line(uint64_t to, uint64_t from, uint64_t bytes, const StreamRef& stream) {
    RemoteCall call(wire::CopyLine<>{to, from, bytes, stream.number});
    call.use(stream);
    return call.send();
}

struct PlacedRows {
    DeviceRows rows;
    Context* context;  // that may use them
};

// The driver copies between any two contexts, but only contiguous memory: hence row by row.
CUresult copy_between_devices(const PlacedRows& to, const PlacedRows& from, uint64_t row_bytes, uint64_t rows,
                              CUstream in) {
    if (!to.context || !from.context) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    Context* here = nullptr;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    if (auto result = context_of_stream(stream, here); result != CUDA_SUCCESS) return result;
    for (auto* side : {&to, &from})
        if (auto* device = device_of_address(side->rows.address)) device->memory->reached_from(here->device);
    for (uint64_t row = 0; row < rows; ++row) {
        auto result = cuMemcpyPeerAsync(to.rows.address + row * to.rows.pitch, handle_of<CUcontext>(to.context->handle),
                                        from.rows.address + row * from.rows.pitch,
                                        handle_of<CUcontext>(from.context->handle), row_bytes, in);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

// ZeroMQ allocates every piece that arrives. Before the program has freed anything large itself, the C library takes
// such memory from the kernel and gives it back each time, and the page faults cost a tenth of a copy's speed. It keeps
// twice the largest block ever freed, so we free one, as any program may, as large as what is on its way at once.
void keep_memory_of_pieces() {
    static const bool once = [] {
        void* volatile block = std::malloc(wire::kept_bytes_min);
        std::free(block);
        return true;
    }();
    (void)once;
}

CUresult refuse_copy(const StreamRef& stream, bool wait) {
    return wait ? refuse_wait(stream) : refuse_work(stream);
}

CUresult capture_on_device(const DeviceRows& here, const HostRows& host, const DeviceRows& device, bool to_device,
                           CUstream in) {
    return to_device ? copy_on_device(device, here, host.row_bytes, host.rows, in, false)
                     : copy_on_device(here, device, host.row_bytes, host.rows, in, false);
}

// Into a body of a conditional node: between the device and what GPUs find of pinned memory.
CUresult capture_shared_copy(const HostRows& host, const DeviceRows& device, bool to_device, Context& context,
                             CUstream in) {
    PinnedRange range;
    uint64_t address = 0;
    if (!find_pinned(host.address, extent(host.row_bytes, host.rows, host.pitch), range)) return refuse_mirrors();
    auto result = find_elsewhere(context, value_of(host.address), address);
    return result == CUDA_SUCCESS ? capture_on_device({address, host.pitch}, host, device, to_device, in) : result;
}

// Between the device and a mirror of the host's rows: graph_needs.hpp says what launches do with that.
CUresult capture_host_copy(const HostRows& host, const DeviceRows& device, bool to_device, const StreamRef& stream,
                           CUstream in) {
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    if (is_captured_into_body(stream)) return capture_shared_copy(host, device, to_device, *context, in);
    auto copy = std::make_shared<HostCopy>();
    copy->to_device = to_device;
    copy->host = host;
    copy->stream = stream.object->handle;
    auto result = give_mirror(*context, *copy, same_copy_so_far(stream, *copy).get());
    if (result != CUDA_SUCCESS) return result;
    result = capture_on_device({*copy->mirror, host.row_bytes}, host, device, to_device, in);
    GraphNeeds more;
    more.copies.add(copy);
    if (result == CUDA_SUCCESS) add_needs(stream, more);
    return result;
}

// Reads the memory when the stream gets there. It stands still meanwhile, so nobody sees that another one brings the bytes.
CUresult upload_in_order(const DeviceRows& to, const HostRows& from, std::vector<PinnedRange> used,
                         const StreamRef& stream, Context& context) {
    Transfers by{context.handle, 0};
    if (auto result = open_transfers(context, by.stream); result != CUDA_SUCCESS) return result;
    auto in_use = std::make_shared<UsedMemory>(std::move(used));
    return send_in_stream(stream, context, [to, from, by, in_use](std::vector<Transfers>& sent) {
        auto* transfers = streams().find(by.stream);
        if (!transfers) return;  // it has ended with its context
        (void)upload(to, from, {transfers->number, transfers}, true);
        sent.push_back(by);
    });
}

enum class Upwards { waited_for, later, later_and_lasting };

CUresult copy_up(const DeviceRows& to, const HostRows& from, CUstream in, Upwards way) {
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    if (from.row_bytes == 0 || from.rows == 0) return CUDA_SUCCESS;
    if (!is_sound(from, to)) return CUDA_ERROR_INVALID_VALUE;
    const bool wait = way == Upwards::waited_for;
    const uint64_t bytes = extent(from.row_bytes, from.rows, from.pitch);
    if (auto result = refuse_copy(stream, wait); result != CUDA_SUCCESS) return result;
    if (is_captured(stream)) return capture_host_copy(from, to, true, stream, in);
    if (wait && streams_wait_for_us())
        if (auto result = cuStreamSynchronize(in); result != CUDA_SUCCESS) return result;
    bool in_order = !wait && comes_after_functions(stream);
    std::vector<PinnedRange> used(1);
    if (in_order && !find_pinned(from.address, bytes, used[0])) {
        used.clear();
        in_order = way == Upwards::later_and_lasting;
    }
    if (!in_order) await_writes(from.address, bytes);
    Detour detour;
    if (auto result = detour.begin(to.address, stream); result != CUDA_SUCCESS) return result;
    GpuTurn turn;
    turn.begin_if_shared(to.address, detour.context(), detour.stream());
    auto result = in_order ? upload_in_order(to, from, std::move(used), detour.stream(), detour.context())
                           : upload(to, from, detour.stream(), wait);
    if (result != CUDA_SUCCESS) return result;
    // The worker lets nothing overtake a copy that the program waits for.
    return wait ? finish_shared(to.address, in) : detour.end();
}

}  // namespace

CUresult copy_to_device(DeviceRows to, HostRows from, CUstream stream, bool wait) {
    return copy_up(to, from, stream, wait ? Upwards::waited_for : Upwards::later);
}

CUresult copy_lasting_to_device(DeviceRows to, HostRows from, CUstream stream) {
    return copy_up(to, from, stream, Upwards::later_and_lasting);
}

CUresult copy_from_device(HostRows to, DeviceRows from, CUstream in, bool wait) {
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    if (to.row_bytes == 0 || to.rows == 0) return CUDA_SUCCESS;
    if (!is_sound(to, from)) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = refuse_copy(stream, wait); result != CUDA_SUCCESS) return result;
    if (is_captured(stream)) return capture_host_copy(to, from, false, stream, in);
    Detour detour;
    if (auto result = detour.begin(from.address, stream); result != CUDA_SUCCESS) return result;
    stream = detour.stream();
    if (detour.context().session.load()->lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;

    GpuTurn turn;
    turn.begin_if_shared(from.address, detour.context(), stream);
    uint64_t bytes = to.row_bytes * to.rows;
    if (bytes > wire::inline_copy_bytes_max) keep_memory_of_pieces();
    Destination destination{to.address, bytes, to.rows > 1 ? to.row_bytes : 0, to.pitch};
    PinnedRange range;
    bool later = !wait && !sync_mode() && find_pinned(to.address, extent(to.row_bytes, to.rows, to.pitch), range);
    uint32_t flags = wait ? uint32_t{wire::copy_sync} : 0;
    const wire::Download<> line{from.address, stream.number, flags, bytes};
    const wire::CopyRows<> rows{.source = from.address,
                                .source_pitch = from.pitch,
                                .width = to.row_bytes,
                                .rows = to.rows,
                                .stream = stream.number,
                                .direction = wire::CopyDirection::from_device,
                                .flags = flags};
    const wire::CopyArrayRows<> of_array{.to = {},
                                         .from = place_of(from),
                                         .width = to.row_bytes,
                                         .rows = to.rows,
                                         .stream = stream.number,
                                         .direction = wire::CopyDirection::from_device,
                                         .flags = flags};
    bool plain = is_plain(to, from), array = from.array != 0;
    uint16_t op = array ? of_array.op : plain ? line.op : rows.op;
    auto payload = array ? wire::question_of(of_array) : plain ? wire::question_of(line) : wire::question_of(rows);
    if (!later) return download_now(op, payload, destination, stream, detour.context());
    auto result = download_later(op, std::move(payload), destination, range, stream, detour.context());
    return result == CUDA_SUCCESS ? detour.end() : result;
}

static CUresult put_on_device(DeviceRows to, DeviceRows from, uint64_t row_bytes, uint64_t rows, CUstream in, bool wait,
                              bool of_peers) {
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    if (row_bytes == 0 || rows == 0) return CUDA_SUCCESS;
    if (row_bytes > to.pitch || row_bytes > from.pitch) return CUDA_ERROR_INVALID_VALUE;
    if (!is_there(to, row_bytes, rows) || !is_there(from, row_bytes, rows)) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = refuse_copy(stream, wait); result != CUDA_SUCCESS) return result;
    Context* here = nullptr;
    if (auto result = context_of_stream(stream, here); result != CUDA_SUCCESS) return result;
    GpuTurn turn;
    auto begin_turn = [&] {
        if (is_captured(stream)) return;
        for (auto address : {to.address, from.address}) turn.begin_if_shared(address, *here, stream);
    };
    if (to.array != 0 || from.array != 0) {
        for (auto address : {to.address, from.address})
            if (!open_to_device_of(*here, address)) return CUDA_ERROR_INVALID_VALUE;
        begin_turn();
        RemoteCall call(wire::CopyArrayRows<>{place_of(to), place_of(from), row_bytes, rows, stream.number,
                                              wire::CopyDirection::on_device, wait ? uint32_t{wire::copy_sync} : 0});
        call.use(stream);
        return call.send();
    }
    if (rows == 1 || (to.pitch == row_bytes && from.pitch == row_bytes)) {
        row_bytes *= rows;
        rows = 1;
    }
    if (!of_peers && !pools_let_copy(to.address, from.address, *here)) return CUDA_ERROR_INVALID_VALUE;
    auto *context_to = context_for_memory(to.address, *here), *context_from = context_for_memory(from.address, *here);
    bool elsewhere = context_to != here || context_from != here;
    // Drivers do not capture copies of the kind that names both contexts.
    bool reachable = elsewhere && is_captured(stream) && open_to_device_of(*here, to.address) &&
                     open_to_device_of(*here, from.address);
    if (elsewhere && !reachable)
        return copy_between_devices({to, context_to}, {from, context_from}, row_bytes, rows, in);
    begin_turn();
    if (rows == 1) return copy_line(to.address, from.address, row_bytes, stream);
    RemoteCall call(wire::CopyRows<>{to.address, to.pitch, from.address, from.pitch, row_bytes, rows, stream.number,
                                     wire::CopyDirection::on_device, wait ? uint32_t{wire::copy_sync} : 0});
    call.use(stream);
    return call.send();
}

CUresult copy_on_device(DeviceRows to, DeviceRows from, uint64_t row_bytes, uint64_t rows, CUstream stream, bool wait,
                        bool of_peers) {
    auto result = put_on_device(to, from, row_bytes, rows, stream, wait, of_peers);
    for (auto address : {to.address, from.address})
        if (wait && result == CUDA_SUCCESS) result = finish_shared(address, stream);
    return result;
}

}  // namespace tnr::cuda
