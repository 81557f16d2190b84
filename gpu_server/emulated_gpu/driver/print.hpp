// Device printf: collected while kernels run, handed on at the points where CUDA promises it.
#pragma once

#include <string_view>

namespace tnr::emulated {

// From any thread, in the order in which it is to appear.
void buffer_print(std::string_view text);
// At launches, synchronisation, blocking copies, module loads and the end of a context; not at exit.
void flush_print();

}  // namespace tnr::emulated
