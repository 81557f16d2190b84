// See outbox.hpp.
#include "gpu_server/worker/outbox.hpp"

#include <cstdio>
#include <string>

#include "cuda_calls.hpp"
#include "gpu_client/protocol/fatal_errors.hpp"
#include "gpu_client/protocol/session_records.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

static std::string name_of_op(uint16_t op) {
    if (auto* call = wire::find_call(op)) return call->name;
    char text[32];
    std::snprintf(text, sizeof text, "record 0x%04x", op);
    return text;
}

void Outbox::answer(uint16_t op, uint64_t number, CUresult result, const wire::Bytes& outputs) {
    if (number == 0) {
        if (result != CUDA_SUCCESS) failed(op, result, name_of_op(op) + ": " + name_of(result));
        return;
    }
    wire::Bytes frame;
    frame.reserve(sizeof(wire::BatchHeader) + sizeof(wire::RecordHeader) + 16 + outputs.size());
    wire::Link::begin(frame);
    wire::Writer writer(frame);
    writer.begin_record(op, 0);
    writer.put(number);
    writer.put(static_cast<int32_t>(result));
    writer.put_raw(outputs.data(), outputs.size());
    writer.end_record();
    link_.send(frame, {});
}

void Outbox::piece(uint64_t number, uint64_t offset, zmq::message_t&& data) {
    {
        LockGuard lock(mutex_);
        while (!link_.has_credit() || link_.kept() >= link_.kept_enough()) credit_.wait(mutex_);
    }
    wire::Bytes frame;
    wire::Link::begin(frame);
    wire::Writer writer(frame);
    writer.begin_record(wire::BulkDown::op, wire::record_has_bulk);
    wire::write(writer, wire::BulkDown{number, offset});
    writer.end_record();
    wire::Frames bulk;
    bulk.push_back(std::move(data));
    link_.send(frame, std::move(bulk));
}

void Outbox::failed(uint16_t op, CUresult result, std::string_view detail) {
    {
        LockGuard lock(mutex_);
        if (wire::ends_context(result) && result == told_) return;
        told_ = result;
    }
    tell(wire::Failed{op, result, detail});
}

void Outbox::credit_arrived() {
    { LockGuard lock(mutex_); }
    credit_.notify_all();
}

}  // namespace tnr::worker
