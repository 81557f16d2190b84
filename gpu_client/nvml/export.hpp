// How this library's functions are declared: C names, visible, whatever nvml.h renames.
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS  // every version under its own name
#include <nvml.h>

#define NVML_EXPORT extern "C" __attribute__((visibility("default"))) nvmlReturn_t
