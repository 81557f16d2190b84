// See remote_call.hpp.
#include "gpu_client/cuda/remote_call.hpp"

#include <cstdlib>
#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/async_errors.hpp"
#include "gpu_client/cuda/devices.hpp"

namespace tnr::cuda {

static constexpr size_t number_bytes = sizeof(uint64_t);  // room for the call number in front of every payload

bool sync_mode() {
    static const bool wanted = [] {
        const char* value = std::getenv("TNR_SYNC");
        return value && *value == '1';
    }();
    return wanted;
}

RemoteCall::RemoteCall(uint16_t op, wire::CallWay way) : op_(op), way_(way) {
    std::swap(payload_, thread_state().scratch);
    payload_.resize(number_bytes);
}

RemoteCall::~RemoteCall() {
    auto& scratch = thread_state().scratch;
    if (payload_.capacity() > scratch.capacity()) std::swap(payload_, scratch);
}

void RemoteCall::refuse(CUresult why) {
    if (refused_ == CUDA_SUCCESS) refused_ = why;
}

void RemoteCall::in_context(Context* context) {
    context_ = context;
    context_chosen_ = true;
}

void RemoteCall::on(Device& device) {
    in_context(nullptr);
    device_ = &device;
}

void RemoteCall::use(const StreamRef& stream) {
    stream_ = stream;
    if (!stream.object || context_chosen_) return;
    if (auto* context = contexts().find(stream.object->context)) in_context(context);
}

CUresult RemoteCall::prepare() {
    if (refused_ != CUDA_SUCCESS) return refused_;
    if (!context_chosen_) {
        auto result = current_context(context_);
        if (result != CUDA_SUCCESS && needs_context_) return result;
        if (result != CUDA_SUCCESS) context_ = nullptr;
    } else if (context_) {
        if (auto result = usable(context_); result != CUDA_SUCCESS) return result;
    }
    if (!context_) {
        auto& device = device_ ? *device_ : *devices().front();
        if (auto result = open_session(device); result != CUDA_SUCCESS) return result;
        session_ = device.session;
    } else {
        session_ = context_->session;
    }
    return session_->lost() ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

CUresult RemoteCall::open(ClientSession*& session) {
    auto result = prepare();
    session = session_;
    return result;
}

CUresult RemoteCall::send(zmq::message_t* bulk) {
    if (auto result = prepare(); result != CUDA_SUCCESS) return result;
    if (way_ == wire::CallWay::cached) return send_cached();
    if (way_ == wire::CallWay::sync || (sync_mode() && !bulk && op_ <= wire::op_max)) return exchange();
    auto payload = std::span<const std::byte>(payload_).subspan(number_bytes);
    position_ = session_->append(context_ ? context_->number : 0, op_, payload, bulk);
    if (position_ == 0) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    mark_use();
    return CUDA_SUCCESS;
}

static void mark_use_of(Context* context, const StreamRef& stream, uint64_t position) {
    if (context) raise_to(context->last_use, position);
    if (stream.object) raise_to(stream.object->last_use, position);
}

void RemoteCall::mark_use() {
    mark_use_of(context_, stream_, position_);
}

CUresult submit(uint16_t op, Context& context, const StreamRef& stream, Parts parts) {
    if (sync_mode()) {
        RemoteCall call(op, wire::CallWay::sync);
        call.in_context(&context);
        call.works_in(stream);
        for (auto& part : parts) call.put_raw(part.data(), part.size());
        return call.send();
    }
    auto& session = *context.session.load(std::memory_order_relaxed);
    if (session.lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    uint64_t position = session.append(context.number, op, parts);
    if (position == 0) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    mark_use_of(&context, stream, position);
    return CUDA_SUCCESS;
}

CUresult RemoteCall::exchange() {
    position_ = session_->request(context_ ? context_->number : 0, op_, payload_, pending_);
    mark_use();
    session_->wait(pending_);
    answer_ = wire::Reader(pending_.answer);
    const bool as_it_is = leaves_async_errors_ || pending_.result == CUDA_ERROR_NOT_READY;
    auto result = as_it_is ? pending_.result : with_async_errors(pending_.result, context_);
    if (result == CUDA_SUCCESS) {
        note_completion_heard();
        tell_complete();
    }
    return result;
}

// ---- what was heard of completed work ----

static std::atomic<uint64_t>& heard() {
    static std::atomic<uint64_t> count{0};
    return count;
}
uint64_t completions_heard() {
    return heard().load();
}
void note_completion_heard() {
    heard().fetch_add(1);
}

static std::atomic<void (*)()> told_complete{nullptr};

void tell_complete() {
    if (auto* then = told_complete.load(std::memory_order_relaxed)) then();
}
void when_told_complete(void (*then)()) {
    told_complete = then;
}

// ---- answers that stay true ----

namespace {
struct CachedAnswers {
    Mutex mutex;
    std::map<wire::Bytes, wire::Bytes> by_key TNR_GUARDED_BY(mutex);
};
CachedAnswers& cache() {
    static auto* answers = new CachedAnswers;
    return *answers;
}
}  // namespace
static constexpr size_t cached_answers_max = 65536;  // about 10 MB; a program that asks more just asks again

void forget_cached_answers() {
    LockGuard lock(cache().mutex);
    cache().by_key.clear();
}

CUresult RemoteCall::send_cached() {
    wire::Bytes key(payload_.begin() + number_bytes, payload_.end());
    wire::Writer(key).put(op_);
    wire::Writer(key).put(context_ ? context_->number : 0);
    {
        LockGuard lock(cache().mutex);
        if (auto found = cache().by_key.find(key); found != cache().by_key.end()) {
            cached_ = found->second;
            answer_ = wire::Reader(cached_);
            return CUDA_SUCCESS;
        }
    }
    auto result = exchange();
    if (result != CUDA_SUCCESS) return result;
    LockGuard lock(cache().mutex);
    if (cache().by_key.size() >= cached_answers_max) cache().by_key.clear();
    cache().by_key[key] = pending_.answer;
    return result;
}

}  // namespace tnr::cuda
