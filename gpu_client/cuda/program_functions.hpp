// Functions of the program that a stream calls (cuLaunchHostFunc, cuStreamAddCallback, nodes of graphs), and destructors of
// user objects. CUDA forbids them its calls, as drivers may wait for the very function that makes one: calls that do
// something answer CUDA_ERROR_NOT_PERMITTED, questions that are answered in the program are let through.
#pragma once

namespace tnr::cuda {

// While one runs, true on its thread.
extern constinit thread_local bool in_program_function;

template <class Function>
void call_program_function(Function&& function) {
    in_program_function = true;
    function();
    in_program_function = false;
}

}  // namespace tnr::cuda
