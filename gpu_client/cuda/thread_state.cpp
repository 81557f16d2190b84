// See thread_state.hpp.
#include "gpu_client/cuda/thread_state.hpp"

#include <pthread.h>

#include "gpu_client/cuda/guarded.hpp"

namespace tnr::cuda {

static thread_local ThreadState* state_of_thread = nullptr;

constinit thread_local Lookups lookups;

static std::atomic<void (*)(ThreadState&)> at_end{nullptr};

void when_threads_end(void (*tidy_up)(ThreadState&)) {
    at_end = tidy_up;
}

static void thread_ends(void* value) {
    auto* state = static_cast<ThreadState*>(value);
    auto* tidy_up = at_end.load();
    if (tidy_up && refusal() == CUDA_SUCCESS) tidy_up(*state);
    state_of_thread = nullptr;
    delete state;
}

static pthread_key_t make_key() {
    pthread_key_t key;
    pthread_key_create(&key, thread_ends);
    return key;
}

ThreadState& thread_state() {
    if (!state_of_thread) {
        static const pthread_key_t key = make_key();
        state_of_thread = new ThreadState;
        pthread_setspecific(key, state_of_thread);
    }
    return *state_of_thread;
}

uint64_t current_context_as_set() {
    auto& stack = thread_state().contexts;
    return stack.empty() ? 0 : stack.back();
}

uint64_t current_context_handle() {
    return context_behind(current_context_as_set());
}

CUresult usable(Context* context) {
    ++lookups.contexts;
    if (!context || !context->active.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return static_cast<CUresult>(context->sticky.load(std::memory_order_relaxed));
}

CUresult current_context(Context*& context) {
    uint64_t handle = current_context_handle();
    if (handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
    context = contexts().find(handle);
    return usable(context);
}

}  // namespace tnr::cuda
