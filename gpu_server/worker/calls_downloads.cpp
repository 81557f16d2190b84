// Copies to the client. Short ones travel in the reply. Long ones are pumped: a thread of their own copies piece after
// piece into pinned blocks on a stream of its own, while the blocks before are on the network.
#include <algorithm>
#include <deque>

#include "gpu_server/worker/array_copies.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/own_stream.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// What is copied: rows of `width` bytes, `pitch` apart on the device, packed on the wire.
struct Source {
    wire::RowsPlace<Resolved> from;
    uint64_t width, rows;
    uint64_t bytes() const { return width * rows; }
};

static CUresult enqueue(const Source& source, std::byte* to, CUstream stream) {
    if (source.from.array.handle) {
        auto copy = box_of(source.width, source.rows);
        put_source(copy, source.from);
        put_destination(copy, to, source.width);
        return driver().cuMemcpy3DAsync_v2(&copy, stream);
    }
    if (source.rows == 1) return driver().cuMemcpyDtoHAsync_v2(to, source.from.address, source.width, stream);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = source.from.address;
    copy.srcPitch = source.from.pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = to;
    copy.dstPitch = source.width;
    copy.WidthInBytes = source.width;
    copy.Height = source.rows;
    return driver().cuMemcpy2DAsync_v2(&copy, stream);
}

// Takes the next piece off `rest`: whole rows while they fit into a block, else a part of one row.
static Source next_piece(Source& rest, uint64_t& column) {
    Source piece = rest;
    if (rest.width <= wire::piece_bytes_max) {
        piece.rows = std::min<uint64_t>(rest.rows, wire::piece_bytes_max / rest.width);
        advance(rest.from, 0, piece.rows);
        rest.rows -= piece.rows;
        return piece;
    }
    advance(piece.from, column, 0);
    piece.width = std::min<uint64_t>(rest.width - column, wire::piece_bytes_max);
    piece.rows = 1;
    column += piece.width;
    if (column == rest.width) {
        column = 0;
        advance(rest.from, 0, 1);
        --rest.rows;
    }
    return piece;
}

static wire::Bytes in_reply(const std::byte* data, size_t size) {
    return wire::payload_of(wire::DownloadReply{{data, size}});
}

static Answer failed(Call& call, CUresult result) {
    call.outputs = in_reply(nullptr, 0);
    return result;
}

// Nothing is in the way: the copy itself is all there is to wait for.
static Answer copy_now(WorkerSession& session, Call& call, const Source& source, CUstream stream) {
    auto before = session.downloads.next();
    wire::Bytes data(source.bytes());
    auto result = enqueue(source, data.data(), stream);
    if (result == CUDA_SUCCESS) result = driver().cuStreamSynchronize(stream);
    call.outputs = in_reply(data.data(), result == CUDA_SUCCESS ? data.size() : 0);
    return session.answer_wait(call, result, before);
}

// Through a pinned block: to copy into pageable memory the driver would wait for the stream before it returns.
static Answer copy_later(WorkerSession& session, Call& call, const Source& source, const Resolved::Stream& stream,
                         Staging::Block block) {
    auto data = std::make_shared<Staging::Block>(std::move(block));
    SharedEvent copied;
    auto result = enqueue(source, data->get(), stream.handle);
    if (result == CUDA_SUCCESS) result = mark(copied, stream.handle);
    if (result != CUDA_SUCCESS) return failed(call, result);
    auto copy = session.downloads.begin([copied] { return is_reached(copied); });
    session.after(copied, stream.number,
                  [&session, data, size = source.bytes(), copy, op = call.op, number = call.number](CUresult result) {
                      session.finish_wait(copy);
                      auto outputs = in_reply(data->get(), result == CUDA_SUCCESS ? size : 0);
                      session.outbox.answer(op, number, result, outputs);
                      session.downloads.end(copy);
                  });
    return std::nullopt;
}

struct Pump {
    WorkerSession& session;
    Source source;
    CUcontext context;
    ContextUses::Use use;
    SharedEvent ready;                  // the stream has reached the copy
    std::shared_ptr<Gates::Gate> gate;  // null: the program waits for the copy
    uint64_t copy;                      // its number in session.downloads; if there is no gate, what would be that
    uint64_t number;
    uint16_t op;

    void run();
    CUresult copy_pieces(CUstream own);
};

// Few bytes leave without their block: the client says of many of them together that it has received them, which may be more
// than there are blocks.
static zmq::message_t leaving(Staging::Block block, size_t bytes) {
    if (bytes <= wire::inline_copy_bytes_max) return {block.get(), bytes};
    return as_message(std::move(block), bytes);
}

CUresult Pump::copy_pieces(CUstream own) {
    struct Piece {
        Staging::Block block;
        uint64_t bytes;
        SharedEvent copied;
    };
    std::deque<Piece> on_the_way;
    uint64_t sent = 0, column = 0;
    auto send_first = [&] {
        auto piece = std::move(on_the_way.front());
        on_the_way.pop_front();
        auto result = driver().cuEventSynchronize(piece.copied.get());
        if (result == CUDA_SUCCESS) session.outbox.piece(number, sent, leaving(std::move(piece.block), piece.bytes));
        sent += piece.bytes;
        return result;
    };
    // Two pieces are copied ahead of the one being sent.
    constexpr size_t ahead = 3;
    auto result = CUDA_SUCCESS;
    for (auto rest = source; rest.rows > 0 && result == CUDA_SUCCESS;) {
        auto block = session.staging.try_download();
        for (; !block && !on_the_way.empty() && result == CUDA_SUCCESS; block = session.staging.try_download())
            result = send_first();
        if (result != CUDA_SUCCESS) break;
        if (!block) block = session.staging.take_download();
        auto part = next_piece(rest, column);
        Piece piece{std::move(block), part.bytes(), nullptr};
        result = enqueue(part, piece.block.get(), own);
        if (result == CUDA_SUCCESS) result = mark(piece.copied, own);
        if (result != CUDA_SUCCESS) break;
        on_the_way.push_back(std::move(piece));
        if (on_the_way.size() == ahead) result = send_first();
    }
    while (!on_the_way.empty() && result == CUDA_SUCCESS) result = send_first();
    return result;
}

void Pump::run() {
    driver().cuCtxSetCurrent(context);
    CUstream own = nullptr;
    auto result = driver().cuEventSynchronize(ready.get());
    if (result == CUDA_SUCCESS) result = make_own_stream(own);
    session.downloads.wait_until_gone(copy);
    if (result == CUDA_SUCCESS) result = copy_pieces(own);
    if (gate) gate->open();
    session.prints.flush();
    session.outbox.answer(op, number, result, in_reply(nullptr, 0));
    if (gate) session.downloads.end(copy);
    if (own) driver().cuStreamDestroy_v2(own);
}

static Answer pump(WorkerSession& session, Call& call, const Source& source, CUstream stream, bool program_waits) {
    SharedEvent ready;
    if (auto result = mark(ready, stream); result != CUDA_SUCCESS) return failed(call, result);
    Pump pump{session, source,  session.current(),        session.context_uses.begin(session.current()),
              ready,   nullptr, session.downloads.next(), call.number,
              call.op};
    // A program that waits for the copy needs no gate: it puts nothing behind the copy meanwhile.
    if (!program_waits) {
        session.understudy.stream_will_stand();
        auto result = session.gates.close(pump.context, stream, pump.gate);
        if (result != CUDA_SUCCESS) return failed(call, result);
        pump.copy = session.downloads.begin([gate = pump.gate] { return gate->is_open(); });
    }
    session.waiting.run([pump = std::move(pump)]() mutable { pump.run(); });
    return std::nullopt;
}

static Answer copy(WorkerSession& session, Call& call, const Source& source, const Resolved::Stream& stream,
                   bool program_waits) {
    bool sound = source.rows > 0 && source.width > 0 && source.width <= UINT64_MAX / source.rows && call.number != 0;
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    if (source.bytes() <= wire::inline_copy_bytes_max) {
        auto idle = session.query_briefly([&] { return query_way(stream.handle); }) == CUDA_SUCCESS;
        if (idle) return copy_now(session, call, source, stream.handle);
        if (auto block = session.staging.take_upload())
            return copy_later(session, call, source, stream, std::move(block));
    }
    return pump(session, call, source, stream.handle, program_waits);
}

static Answer download(WorkerSession& session, Call& call, const wire::Download<Resolved>& record) {
    session.shared_copies.note(record.stream.number, record.flags);
    return copy(session, call, {in_memory(record.source, record.bytes), record.bytes, 1}, record.stream,
                record.flags & wire::copy_sync);
}

Answer download_rows(WorkerSession& session, Call& call, const wire::CopyRows<Resolved>& record) {
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return copy(session, call, {in_memory(record.source, record.source_pitch), record.width, record.rows},
                record.stream, record.flags & wire::copy_sync);
}

Answer download_rows(WorkerSession& session, Call& call, const wire::CopyArrayRows<Resolved>& record) {
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return copy(session, call, {record.from, record.width, record.rows}, record.stream, record.flags & wire::copy_sync);
}

void add_download_calls(HandlerTable& table) {
    table.add<download>();
}

}  // namespace tnr::worker
