// What the parts of the stand-in for a driver share.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

// Null: no.
inline const char* shall(const char* word) {
    const char* words = getenv("TNR_WORKER_STAND_IN");
    return words ? std::strstr(words, word) : nullptr;
}

template <class Function>
Function* emulated(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define EMULATED(function) emulated<decltype(function)>(#function)

// If it shall be patient: until no stream stands at a host function any more. If thorough: until all are idle.
void wait_for_streams();
