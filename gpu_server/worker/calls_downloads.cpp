// Copies to the client. Short ones travel in the reply. Long ones are pumped: a thread of their own copies piece after
// piece into pinned blocks on a stream of its own, while the blocks before are on the network.
#include <algorithm>
#include <deque>

#include "cuda_calls.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// What is copied: rows of `width` bytes, `pitch` apart on the device, packed on the wire.
struct Source {
    uint64_t address, pitch, width, rows;
    uint64_t bytes() const { return width * rows; }
};

static CUresult enqueue(const Source& source, std::byte* to, CUstream stream) {
    if (source.rows == 1) return driver().cuMemcpyDtoHAsync_v2(to, source.address, source.width, stream);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = source.address;
    copy.srcPitch = source.pitch;
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
        rest.address += piece.rows * rest.pitch;
        rest.rows -= piece.rows;
        return piece;
    }
    piece.address += column;
    piece.width = std::min<uint64_t>(rest.width - column, wire::piece_bytes_max);
    piece.rows = 1;
    column += piece.width;
    if (column == rest.width) {
        column = 0;
        rest.address += rest.pitch;
        --rest.rows;
    }
    return piece;
}

static wire::Bytes in_reply(const std::byte* data, size_t size) {
    wire::Bytes outputs;
    wire::Writer(outputs).put_bytes(data, size);
    return outputs;
}

static Answer failed(Call& call, CUresult result) {
    call.outputs = in_reply(nullptr, 0);
    return result;
}

// Nothing is in the way: the copy itself is all there is to wait for.
static Answer copy_now(Session& session, Call& call, const Source& source, CUstream stream) {
    wire::Bytes data(source.bytes());
    auto result = enqueue(source, data.data(), stream);
    if (result == CUDA_SUCCESS) result = driver().cuStreamSynchronize(stream);
    session.settle(session.downloads_so_far());
    call.outputs = in_reply(data.data(), result == CUDA_SUCCESS ? data.size() : 0);
    return result;
}

// Through a pinned block: into pageable memory the driver would copy before it returns, and wait for the stream to do so.
static Answer copy_later(Session& session, Call& call, const Source& source, CUstream stream, uint64_t stream_number,
                         Staging::Block block) {
    auto data = std::make_shared<Staging::Block>(std::move(block));
    CUevent copied = nullptr;
    auto result = enqueue(source, data->get(), stream);
    if (result == CUDA_SUCCESS) result = driver().cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver().cuEventRecord(copied, stream);
    if (result != CUDA_SUCCESS) return failed(call, result);
    auto order = session.begin_download(copied);
    auto answer = [&session, data, size = source.bytes(), copied, order, context = session.current(), op = call.op,
                   number = call.number] {
        driver().cuCtxSetCurrent(context);
        auto result = driver().cuEventSynchronize(copied);
        session.prints.drain();
        session.outbox.reply(op, number, result, in_reply(data->get(), result == CUDA_SUCCESS ? size : 0));
        session.end_download(order);
        driver().cuEventDestroy_v2(copied);
    };
    session.queues.post(session.queue_key(stream_number), answer);
    return std::nullopt;
}

// Holds a stream back until the pump has read what the stream's later work may overwrite.
class Gate {
public:
    // The stream waits from here on. Failing is harmless for correctness only when nobody works behind the copy.
    static CUresult close(std::shared_ptr<Gate> gate, CUstream stream) {
        auto* held = new std::shared_ptr<Gate>(std::move(gate));
        auto result = driver().cuLaunchHostFunc(stream, wait, held);
        if (result != CUDA_SUCCESS) delete held;
        return result;
    }
    void open() {
        std::lock_guard lock(mutex_);
        open_ = true;
        opened_.notify_all();
    }

private:
    static void wait(void* data) {
        std::unique_ptr<std::shared_ptr<Gate>> held(static_cast<std::shared_ptr<Gate>*>(data));
        auto& gate = **held;
        std::unique_lock lock(gate.mutex_);
        gate.opened_.wait(lock, [&] { return gate.open_; });
    }
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = false;
};

struct Pump {
    Session& session;
    Source source;
    CUcontext context;
    CUevent ready;  // the stream has reached the copy
    std::shared_ptr<Gate> gate;
    uint64_t order, number;
    uint16_t op;

    void run();
    CUresult copy_pieces(CUstream own);
};

// Sends a block's contents without copying them; the block goes back to the pool when the client has received it.
static zmq::message_t as_message(Staging::Block block, size_t size) {
    auto* held = new Staging::Block(std::move(block));
    auto give_back = [](void*, void* hint) { delete static_cast<Staging::Block*>(hint); };
    return zmq::message_t(held->get(), size, give_back, held);
}

CUresult Pump::copy_pieces(CUstream own) {
    struct Piece {
        Staging::Block block;
        uint64_t bytes;
        CUevent copied;
    };
    std::deque<Piece> on_the_way;
    uint64_t sent = 0, column = 0;
    auto send_first = [&] {
        auto piece = std::move(on_the_way.front());
        on_the_way.pop_front();
        auto result = driver().cuEventSynchronize(piece.copied);
        driver().cuEventDestroy_v2(piece.copied);
        if (result == CUDA_SUCCESS) session.outbox.piece(number, sent, as_message(std::move(piece.block), piece.bytes));
        sent += piece.bytes;
        return result;
    };
    // Two pieces are copied ahead of the one being sent.
    constexpr size_t ahead = 3;
    auto result = CUDA_SUCCESS;
    for (auto rest = source; rest.rows > 0 && result == CUDA_SUCCESS;) {
        auto part = next_piece(rest, column);
        Piece piece{session.staging.take_download(), part.bytes(), nullptr};
        result = enqueue(part, piece.block.get(), own);
        if (result == CUDA_SUCCESS) result = driver().cuEventCreate(&piece.copied, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS) result = driver().cuEventRecord(piece.copied, own);
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
    auto result = driver().cuEventSynchronize(ready);
    if (result == CUDA_SUCCESS) result = driver().cuStreamCreate(&own, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) result = copy_pieces(own);
    if (gate) gate->open();
    session.prints.drain();
    session.outbox.reply(op, number, result, in_reply(nullptr, 0));
    session.end_download(order);
    driver().cuEventDestroy_v2(ready);
    if (own) driver().cuStreamDestroy_v2(own);
}

static Answer pump(Session& session, Call& call, const Source& source, CUstream stream, bool program_waits) {
    call.outputs = in_reply(nullptr, 0);
    CUevent ready = nullptr;
    auto result = driver().cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver().cuEventRecord(ready, stream);
    if (result != CUDA_SUCCESS) return result;
    // A program that waits for the copy puts nothing behind it meanwhile.
    auto gate = program_waits ? nullptr : std::make_shared<Gate>();
    if (gate) result = Gate::close(gate, stream);
    if (result != CUDA_SUCCESS) return result;
    auto order = session.begin_download(ready);
    Pump pump{session, source, session.current(), ready, gate, order, call.number, call.op};
    session.waiting.run([pump]() mutable { pump.run(); });
    return std::nullopt;
}

static Answer copy(Session& session, Call& call, const Source& source, uint64_t stream_number, bool program_waits) {
    auto stream = session.stream(stream_number, call.in);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    bool sound = source.rows > 0 && source.width > 0 && source.width <= UINT64_MAX / source.rows && call.number != 0;
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    if (source.bytes() <= wire::inline_copy_bytes_max) {
        if (session.idle(stream, stream_number)) return copy_now(session, call, source, stream);
        if (auto block = session.staging.take_upload())
            return copy_later(session, call, source, stream, stream_number, std::move(block));
    }
    return pump(session, call, source, stream, program_waits);
}

static Answer download(Session& session, Call& call) {
    auto address = call.in.get<uint64_t>();
    auto stream = call.in.get<uint64_t>();
    auto flags = call.in.get<uint32_t>();
    auto bytes = call.in.get<uint64_t>();
    return copy(session, call, {address, bytes, bytes, 1}, stream, flags & wire::copy_sync);
}

Answer download_rows(Session& session, Call& call, const wire::Copy2DRecord& record) {
    return copy(session, call, {record.source, record.source_pitch, record.width, record.rows}, record.stream,
                record.flags & wire::copy_sync);
}

void add_download_calls(std::vector<Handler>& table) {
    table[wire::op_cuMemcpyDtoHAsync_v2] = download;
}

}  // namespace tnr::worker
