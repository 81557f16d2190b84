// The seam between CUDA's functions and the wire: submit a record, learn what became of it. Knows handles only as the
// objects behind them; to have handles and addresses checked, use table_call.hpp.
//
// A RemoteCall is made from a record, or collects its payload. The first error found in an argument is kept: send()
// then returns it and sends nothing.
#pragma once

#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/session_records.hpp"

namespace tnr::cuda {

class RemoteCall {
public:
    // Runs in the calling thread's current context, if it has one.
    RemoteCall(uint16_t op, wire::CallWay way);
    template <wire::HasFields Record>
    explicit RemoteCall(const Record& record, wire::CallWay way = Record::way) : RemoteCall(Record::op, way) {
        put(record);
    }
    ~RemoteCall();
    RemoteCall(const RemoteCall&) = delete;
    RemoteCall& operator=(const RemoteCall&) = delete;

    template <class T>
    void put(const T& value) {
        wire::Writer out(payload_);
        wire::write_field(out, value);
    }
    void put_raw(const void* data, size_t size) { wire::Writer(payload_).put_raw(data, size); }

    void refuse(CUresult why);                                    // unless something was wrong before
    void works_in(const StreamRef& stream) { stream_ = stream; }  // so waiting for the stream waits for it
    void on(Device& device);                                      // in no context, with this device's session
    void in_context(Context* context);                            // instead of the current one; null: in none
    void in_any_context() { needs_context_ = false; }         // in the current one, or in none where that does not live
    void use(const StreamRef& stream);                        // works in it, and in its context unless one was chosen
    void into(Destination to) { pending_.destination = to; }  // where op_bulk_down pieces go
    // For what the program has not called: failures of its calls that nobody waited for are left to a call of its own.
    void leave_async_errors() { leaves_async_errors_ = true; }

    // The session that send() will use, for what is noted there before. Opens it.
    CUresult open(ClientSession*& session);
    // Sends; waits and returns the worker's answer when the call is sync (or TNR_SYNC=1).
    CUresult send(zmq::message_t* bulk = nullptr);
    uint64_t position() const { return position_; }  // of the record, once it is sent
    const StreamRef& stream() const { return stream_; }
    Pending& pending() { return pending_; }

    // Reads the answer, after send(); a failed call may have one, too. False if it is not such a reply. Views in it
    // last as long as the call.
    template <wire::HasFields Reply>
    bool read(Reply& reply) {
        return wire::read(answer_, reply);
    }
    // The same, after a successful send().
    template <wire::HasFields Reply>
    CUresult take(Reply& reply) {
        return read(reply) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    }
    // The answer's values, one by one.
    template <class T>
    void out(T* value) {
        *value = answer_.get<T>();
    }
    bool has_answer() const { return answer_.left() != 0; }
    const ClientSession& session() const { return *session_; }  // once it is sent
    CUresult finished() const { return answer_.finished() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN; }

private:
    CUresult prepare();
    CUresult send_cached();
    CUresult exchange();
    void mark_use();

    uint16_t op_;
    wire::CallWay way_;
    CUresult refused_ = CUDA_SUCCESS;
    bool context_chosen_ = false, needs_context_ = true, leaves_async_errors_ = false;
    Context* context_ = nullptr;
    Device* device_ = nullptr;  // where there is no context
    ClientSession* session_ = nullptr;
    StreamRef stream_;
    wire::Bytes payload_;  // borrowed from the thread
    wire::Bytes cached_;
    Pending pending_;
    wire::Reader answer_{{}};
    uint64_t position_ = 0;
};

// Submits a record that nobody waits for, assembled by the caller: for launches and small copies, where each copy of
// the payload counts. The caller has checked that `context` is usable.
CUresult submit(uint16_t op, Context& context, const StreamRef& stream, Parts parts);

// A count that grows with every report of completed work. What completes may have waited for work of other streams, so
// a "not ready" heard at a smaller count may be out of date. The count must grow before the program can see what
// completed.
uint64_t completions_heard();
void note_completion_heard();

// Whoever tells the program that work is complete calls this first. May wait for the network; no lock may be held.
void tell_complete();
// What tell_complete() does.
void when_told_complete(void (*then)());

// Forgets the answers of `cached` calls, which may depend on attributes of kernels: they are asked again.
void forget_cached_answers();

// TNR_SYNC=1: every call waits for its result.
bool sync_mode();

}  // namespace tnr::cuda
