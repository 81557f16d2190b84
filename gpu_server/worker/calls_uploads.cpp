// Copies to the device. The data is in a received message; it goes to the GPU straight from there when the stream is
// idle, else through pinned staging memory, so that the dispatcher need not wait for the stream.
#include "gpu_server/worker/array_copies.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// One piece, whatever its shape: rows of `width` bytes, packed in the message, `pitch` apart on the device.
struct Upload {
    wire::RowsPlace<Resolved> to;
    uint64_t width, rows;
    Resolved::Stream stream;
    bool program_waits;
    std::span<const std::byte> data;
};

static CUresult enqueue(const Upload& upload, const std::byte* from) {
    if (upload.to.array.handle) {
        auto copy = box_of(upload.width, upload.rows);
        put_source(copy, from, upload.width);
        put_destination(copy, upload.to);
        return driver().cuMemcpy3DAsync_v2(&copy, upload.stream.handle);
    }
    if (upload.rows == 1)
        return driver().cuMemcpyHtoDAsync_v2(upload.to.address, from, upload.width, upload.stream.handle);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    copy.srcPitch = upload.width;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = upload.to.address;
    copy.dstPitch = upload.to.pitch;
    copy.WidthInBytes = upload.width;
    copy.Height = upload.rows;
    return driver().cuMemcpy2DAsync_v2(&copy, upload.stream.handle);
}

// Nothing is in the way: the copy itself is all there is to wait for.
static CUresult copy_now(const Upload& upload) {
    auto result = enqueue(upload, upload.data.data());
    return result == CUDA_SUCCESS ? driver().cuStreamSynchronize(upload.stream.handle) : result;
}

static Answer copy_later(WorkerSession& session, const Call& call, const Upload& upload) {
    auto block = session.staging.take_upload();
    // From pageable memory the driver takes its own copy before it returns, and may wait for the stream to do so.
    if (!block)
        return session.run_aside(call, [upload, hold = call.hold] { return enqueue(upload, upload.data.data()); });
    std::memcpy(block.get(), upload.data.data(), upload.data.size());
    auto result = enqueue(upload, block.get());
    // The block goes back when the stream has passed it. It is shared because a std::function must be copyable.
    auto held = std::make_shared<Staging::Block>(std::move(block));
    session.after(upload.stream.handle, upload.stream.number, [held](CUresult) {});
    return result;
}

static Answer run(WorkerSession& session, Call& call, const Upload& upload) {
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    bool whole = upload.rows > 0 && upload.width <= upload.data.size() / upload.rows &&
                 upload.data.size() == upload.width * upload.rows && upload.data.size() <= wire::piece_bytes_max;
    if (!whole) return CUDA_ERROR_INVALID_VALUE;
    if (!upload.program_waits) return copy_later(session, call, upload);
    // A stream of shared memory waits for nothing, so this waits for its copies at most. Aside, another could overtake it.
    const bool at_once = session.shared_copies.is_of(upload.stream.number);
    if (at_once || query_way(upload.stream.handle) == CUDA_SUCCESS) return copy_now(upload);
    // The client went on once the data had left it, and its program takes the copy for done: no later work of any
    // stream or context may overtake it.
    return session.run_aside(call, [upload, hold = call.hold] { return copy_now(upload); });
}

// Behind the record, or in the frame that came with it.
static std::span<const std::byte> data_of(Call& call, uint32_t flags) {
    return flags & wire::copy_inline ? call.in.rest() : call.bulk;
}

static Answer upload(WorkerSession& session, Call& call, const wire::Upload<Resolved>& record) {
    session.shared_copies.note(record.stream.number, record.flags);
    return run(session, call,
               {in_memory(record.destination, 0), record.bytes, 1, record.stream, (record.flags & wire::copy_sync) != 0,
                data_of(call, record.flags)});
}

static Answer upload_rows(WorkerSession& session, Call& call, const wire::CopyRows<Resolved>& record) {
    return run(session, call,
               {in_memory(record.destination, record.destination_pitch), record.width, record.rows, record.stream,
                (record.flags & wire::copy_sync) != 0, data_of(call, record.flags)});
}

static Answer copy_on_device(Call& call, const wire::CopyRows<Resolved>& record) {
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = record.source;
    copy.srcPitch = record.source_pitch;
    copy.dstDevice = record.destination;
    copy.dstPitch = record.destination_pitch;
    copy.WidthInBytes = record.width;
    copy.Height = record.rows;
    return driver().cuMemcpy2DAsync_v2(&copy, record.stream.handle);
}

static Answer copy_array_on_device(Call& call, const wire::CopyArrayRows<Resolved>& record) {
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto copy = box_of(record.width, record.rows);
    put_source(copy, record.from);
    put_destination(copy, record.to);
    return driver().cuMemcpy3DAsync_v2(&copy, record.stream.handle);
}

static Answer copy_array_rows(WorkerSession& session, Call& call, const wire::CopyArrayRows<Resolved>& record) {
    switch (record.direction) {
        case wire::CopyDirection::to_device:
            return run(session, call,
                       {record.to, record.width, record.rows, record.stream, (record.flags & wire::copy_sync) != 0,
                        data_of(call, record.flags)});
        case wire::CopyDirection::from_device:
            return download_rows(session, call, record);
        case wire::CopyDirection::on_device:
            return copy_array_on_device(call, record);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// In one device's memory.
static Answer copy_line(WorkerSession&, Call&, const wire::CopyLine<Resolved>& line) {
    return driver().cuMemcpyDtoDAsync_v2(line.destination, line.source, line.bytes, line.stream.handle);
}

static Answer copy_line_in_null_stream(WorkerSession&, Call&, const wire::CopyLineInNullStream& line) {
    return driver().cuMemcpyDtoDAsync_v2(line.destination, line.source, line.bytes, nullptr);
}

static Answer copy_rows(WorkerSession& session, Call& call, const wire::CopyRows<Resolved>& record) {
    switch (record.direction) {
        case wire::CopyDirection::to_device:
            return upload_rows(session, call, record);
        case wire::CopyDirection::from_device:
            return download_rows(session, call, record);
        case wire::CopyDirection::on_device:
            return copy_on_device(call, record);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

void add_upload_calls(HandlerTable& table) {
    table.add<upload>();
    table.add<copy_rows>();
    table.add<copy_array_rows>();
    table.add<copy_line>();
    table.add<copy_line_in_null_stream>();
}

}  // namespace tnr::worker
