// For programs that call the driver under test by hand: the libcuda that TNR_TEST_DRIVER names, or the one that the
// system would load.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace tnr::test {

inline void* driver_library() {
    static void* handle = [] {
        auto* path = std::getenv("TNR_TEST_DRIVER");
        auto* opened = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
        if (!opened) std::fprintf(stderr, "%s\n", dlerror()), std::exit(125);
        return opened;
    }();
    return handle;
}

}  // namespace tnr::test

// CALL(cuMemAlloc, …): the function under its ELF name (cuda.h's macros have put the version in already); its result goes
// to the program's own `check(CUresult, const char* what)`.
#define STRING_OF(name) #name
#define CALL(name, ...)                                                                                        \
    check(reinterpret_cast<decltype(&name)>(dlsym(tnr::test::driver_library(), STRING_OF(name)))(__VA_ARGS__), \
          STRING_OF(name))
