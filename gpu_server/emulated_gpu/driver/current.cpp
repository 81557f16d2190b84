// Each thread's stack of current contexts.
#include "gpu_server/emulated_gpu/driver/current.hpp"

#include <pthread.h>

namespace tnr::emulated {
namespace {

// Not a thread_local object: those of the main thread are destroyed before exit handlers run, and the CUDA
// runtime calls us from one. A key's destructor runs only when a thread ends by itself.
pthread_key_t key() {
    static const pthread_key_t made = [] {
        pthread_key_t fresh;
        pthread_key_create(&fresh, [](void* stack) { delete static_cast<ContextStack*>(stack); });
        return fresh;
    }();
    return made;
}

}  // namespace

ContextStack& context_stack() {
    auto* stack = static_cast<ContextStack*>(pthread_getspecific(key()));
    if (!stack) {
        stack = new ContextStack;
        pthread_setspecific(key(), stack);
    }
    return *stack;
}

Context* current_context() {
    ContextStack& stack = context_stack();
    return stack.empty() ? nullptr : stack.back().context;
}

std::shared_ptr<GreenContext> current_green_context() {
    ContextStack& stack = context_stack();
    return stack.empty() ? nullptr : stack.back().green;
}

}  // namespace tnr::emulated
