// Functions of the program that a stream calls (cuLaunchHostFunc, cuStreamAddCallback, nodes of graphs), and destructors of
// user objects. CUDA forbids them its calls, as drivers may wait for the very function that makes one: calls that do
// something answer CUDA_ERROR_NOT_PERMITTED, questions that are answered in the program are let through. One of those is
// refused all the same, cuMemGetAddressRange: GCC's libgomp learns from its refusal that it must free memory later.
#pragma once

#include <atomic>

namespace tnr::cuda {

// How many run, on whichever threads. A library's thread_local is a call of the loader's, which each exported function
// would pay for: so they ask here first.
inline std::atomic<int> program_functions_running{0};
// While one runs, true on its thread.
extern constinit thread_local bool in_program_function;

inline bool is_program_function_calling() {
    return program_functions_running.load(std::memory_order_relaxed) != 0 && in_program_function;
}

template <class Function>
void call_program_function(Function&& function) {
    ++program_functions_running;
    in_program_function = true;
    function();
    in_program_function = false;
    --program_functions_running;
}

}  // namespace tnr::cuda
