// Host memory in all kinds of places, and a GPU beside it: which is which? Prints nothing and ends with 0 when every
// question was answered rightly.
//
//   addresses_program SEED [no-wishes | block-zone | BEGIN-END]...
//
// First maps what is named: all free addresses of the zone that ranges lie in, or exactly these (hexadecimal). With
// no-wishes it asks for no addresses later on: a process that may map little does not have the GPU's reserved.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu_client/protocol/address_zone.hpp"
#include "tests/support/cuda_driver.hpp"

namespace {

// The function under its ELF name: cuda.h's macros have put the version in already.
#define ASK(name, ...) \
    reinterpret_cast<decltype(&name)>(dlsym(tnr::test::driver_library(), STRING_OF(name)))(__VA_ARGS__)

constexpr size_t bytes = 4096;
std::mt19937_64 random_number;
bool wishes = true;

[[noreturn]] void fail(const char* what, const void* where, long answer) {
    std::fprintf(stderr, "%s of %p: %ld\n", what, where, answer);
    std::exit(1);
}

void* map_at(uint64_t address, size_t size, int protection, int flags) {
    void* got = mmap(reinterpret_cast<void*>(address), size, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return got == MAP_FAILED ? nullptr : got;
}

// In pieces, so that what is there already does not matter.
void block(uint64_t begin, uint64_t end) {
    constexpr uint64_t piece = uint64_t{1} << 34;
    for (uint64_t at = begin; at < end; at += piece) map_at(at, piece, PROT_NONE, MAP_NORESERVE | MAP_FIXED_NOREPLACE);
}

// In a child of its own, which must find nothing of ours in its way.
void forked_child_may_map(uint64_t address) {
    pid_t child = fork();
    if (child == 0) _exit(map_at(address & ~uint64_t{4095}, bytes, PROT_READ, MAP_FIXED_NOREPLACE) ? 0 : 1);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) fail("a child's mapping", nullptr, status);
}

// Wherever a program's memory may lie: heaps small and large, mappings with and without a wish.
std::vector<std::byte*> host_places(uint64_t device_address) {
    std::vector<std::byte*> places;
    for (size_t size : {size_t{4096}, size_t{1} << 20, size_t{300} << 20})
        places.push_back(static_cast<std::byte*>(std::malloc(size)));
    if (!wishes) return places;
    for (uint64_t away : {uint64_t{0}, uint64_t{1} << 21, uint64_t{1} << 32, uint64_t{1} << 39})
        places.push_back(static_cast<std::byte*>(
            map_at((device_address + away) & ~uint64_t{4095}, bytes, PROT_READ | PROT_WRITE, 0)));
    for (int i = 0; i < 8; ++i)
        places.push_back(static_cast<std::byte*>(map_at(
            (random_number() % tnr::wire::user_addresses_end) & ~uint64_t{4095}, bytes, PROT_READ | PROT_WRITE, 0)));
    return places;
}

void check(std::byte* host, CUdeviceptr device) {
    if (!host) return;
    auto address = reinterpret_cast<CUdeviceptr>(host);
    unsigned type = 0;
    auto known = ASK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    if (known != CUDA_ERROR_INVALID_VALUE) fail("the pointer's memory type", host, known);
    auto value = static_cast<int>(random_number() & 0xff);
    std::memset(host, value, bytes);
    if (auto result = ASK(cuMemcpy, device, address, bytes)) fail("a copy to the device", host, result);
    std::memset(host, ~value, bytes);
    if (auto result = ASK(cuMemcpy, address, device, bytes)) fail("a copy from the device", host, result);
    if (host[0] != std::byte(value) || std::memcmp(host, host + 1, bytes - 1) != 0) fail("the data", host, value);
}

}  // namespace

int main(int count, char** words) {
    random_number.seed(std::strtoul(words[1], nullptr, 10));
    for (int i = 2; i < count; ++i) {
        unsigned long begin = 0, end = 0;
        if (!std::strcmp(words[i], "no-wishes"))
            wishes = false;
        else if (!std::strcmp(words[i], "block-zone"))
            block(tnr::wire::address_zone_begin, tnr::wire::address_zone_end);
        else if (std::sscanf(words[i], "%lx-%lx", &begin, &end) == 2)
            block(begin, end);
        else
            fail(words[i], nullptr, 2);
    }
    auto* early = static_cast<std::byte*>(std::malloc(size_t{1} << (12 + random_number() % 16)));
    if (auto result = ASK(cuInit, 0)) fail("cuInit", nullptr, result);
    int devices = 0;
    if (auto result = ASK(cuDeviceGetCount, &devices)) fail("cuDeviceGetCount", nullptr, result);
    for (int ordinal = 0; ordinal < devices; ++ordinal) {
        CUcontext context = nullptr;
        CUdeviceptr device = 0;
        if (auto result = ASK(cuDevicePrimaryCtxRetain, &context, ordinal)) fail("a context", nullptr, result);
        if (auto result = ASK(cuCtxSetCurrent, context)) fail("cuCtxSetCurrent", nullptr, result);
        if (auto result = ASK(cuMemAlloc, &device, bytes)) fail("cuMemAlloc", nullptr, result);
        check(early, device);
        for (auto* host : host_places(device)) check(host, device);
        forked_child_may_map(device);
    }
    return 0;
}
