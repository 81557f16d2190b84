// Why the last call failed, in words: NVML's codes cannot say "the pool at tcp://… does not answer".
#pragma once

#include <string>

#include "api_client/base/result.hpp"

namespace tnr::nvml {

void remember_error(const Error& error);

}  // namespace tnr::nvml

// For our nvidia-smi: "what\nhint\n", empty when nothing failed. Truncated to `length` with its NUL.
extern "C" int nvmlTnrLastError(char* text, unsigned length);
