// See outbox.hpp.
#include "gpu_server/worker/outbox.hpp"

namespace tnr::worker {

using namespace std::chrono_literals;

bool is_fatal(CUresult result) {
    switch (result) {
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_CONTEXT_IS_DESTROYED:
            return true;
        default:
            return false;
    }
}

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
        std::unique_lock lock(mutex_);
        // The timeout only covers a notification between the check and the wait.
        while (!link_.has_credit()) credit_.wait_for(lock, 10ms);
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
        std::lock_guard lock(mutex_);
        if (is_fatal(result) && result == told_) return;
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
    credit_.notify_all();
}

}  // namespace tnr::worker
