// A connection to a worker's socket that says what it likes.
#pragma once

#include "gpu_client/protocol/wire.hpp"
#include "tests/gpu_client/protocol/ends.hpp"

namespace tnr::test {

class RawClient {
public:
    RawClient(zmq::context_t& context, uint16_t port, const std::string& name, const wire::ClientKeys& keys = {})
        : socket_(context, ZMQ_DEALER) {
        socket_.set(zmq::sockopt::linger, 0);
        socket_.set(zmq::sockopt::sndhwm, 0);
        socket_.set(zmq::sockopt::routing_id, name);
        if (!keys.plain()) {
            socket_.set(zmq::sockopt::curve_serverkey, keys.server_public);
            socket_.set(zmq::sockopt::curve_publickey, keys.own.public_key);
            socket_.set(zmq::sockopt::curve_secretkey, keys.own.secret_key);
        }
        socket_.connect("tcp://127.0.0.1:" + std::to_string(port));
    }

    // A batch with one record.
    void say(uint64_t sequence, uint16_t op, uint64_t value, size_t data_bytes = 0) {
        wire::Bytes frame;
        wire::Link::begin(frame);
        wire::Writer writer(frame);
        writer.begin_record(op, data_bytes > 0 ? wire::record_has_bulk : 0);
        writer.put(value);
        writer.end_record();
        wire::BatchHeader header{sequence, 0, 0, static_cast<uint32_t>(frame.size() - sizeof header), data_bytes > 0};
        std::memcpy(frame.data(), &header, sizeof header);
        socket_.send(zmq::buffer(frame), data_bytes > 0 ? zmq::send_flags::sndmore : zmq::send_flags::none);
        if (data_bytes > 0) socket_.send(zmq::message_t(data_bytes), zmq::send_flags::none);
    }

private:
    zmq::socket_t socket_;
};

}  // namespace tnr::test
