// See outbox.hpp.
#include "gpu_server/worker/outbox.hpp"

#include "gpu_client/protocol/fatal_errors.hpp"

namespace tnr::worker {

void Outbox::reply(uint16_t op, uint64_t number, CUresult result, const wire::Bytes& outputs) {
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

void Outbox::tell(uint16_t op, const wire::Bytes& payload) {
    link_.send_record(op, payload);
}

void Outbox::piece(uint64_t number, uint64_t offset, zmq::message_t&& data) {
    {
        LockGuard lock(mutex_);
        while (!link_.has_credit() || link_.kept() >= link_.kept_enough()) credit_.wait(mutex_);
    }
    wire::Bytes frame;
    wire::Link::begin(frame);
    wire::Writer writer(frame);
    writer.begin_record(wire::op_bulk_down, wire::record_has_bulk);
    writer.put(number);
    writer.put(offset);
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
    wire::Bytes payload;
    wire::Writer writer(payload);
    writer.put(op);
    writer.put(static_cast<int32_t>(result));
    writer.put_string(detail);
    tell(wire::op_failed, payload);
}

void Outbox::credit_arrived() {
    { LockGuard lock(mutex_); }
    credit_.notify_all();
}

}  // namespace tnr::worker
