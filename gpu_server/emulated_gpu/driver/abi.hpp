// cuda.h with every ABI version under its real ELF name (cuMemAlloc_v2, cuLaunchKernel_ptsz, ...), and with
// the default visibility: what we define of it is what this library exports, and nothing else is.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>

extern "C" {
// Beyond cuda.h, for tnr's worker; all are safe to call at any time from any thread.

// Why this thread's last module load or kernel failed, in words; "" if nothing has. Valid until the
// thread's next call into the driver.
const char* tnr_emulated_last_error();

// Sends what device printf writes to `print` instead of the process's stdout; null restores stdout.
void tnr_emulated_set_print(void (*print)(void* context, const char* text, size_t size), void* context);
}
#pragma GCC visibility pop
