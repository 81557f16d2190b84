// How many of a kind a client has at once, and numbers that it uses twice. Runs as grants_test.cpp does.
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

#include "gpu_client/protocol/object_limits.hpp"
#include "gpu_server/worker/limits.hpp"
#include "raw_records.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

// Numbers that the client does not use itself.
constexpr uint64_t unused = uint64_t{1} << 40;

struct Process {
    long parent = 0, pages = 0;
};
Process look_at(const std::string& id) {
    Process found;
    std::string text;
    std::getline(std::ifstream("/proc/" + id + "/stat") >> std::ws, text);
    const auto after_name = text.rfind(") ");
    if (after_name == std::string::npos) return found;
    std::istringstream rest(text.substr(after_name + 2));
    std::string state;
    rest >> state >> found.parent;
    std::ifstream("/proc/" + id + "/statm") >> found.pages >> found.pages;
    return found;
}

// Memory of all processes below the one that started us and the server.
uint64_t workers_bytes() {
    std::set<long> family{getppid()};
    uint64_t pages = 0;
    for (bool more = true; more;) {
        more = false;
        pages = 0;
        for (long id : std::set<long>(family)) {
            std::string children;
            std::ifstream tasks("/proc/" + std::to_string(id) + "/task/" + std::to_string(id) + "/children");
            for (long child = 0; tasks >> child;)
                if (child != getpid()) more |= family.insert(child).second;
            if (id != getppid()) pages += static_cast<uint64_t>(look_at(std::to_string(id)).pages);
        }
    }
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("a program that makes contexts without end hears that there is no memory", "[handles]") {
    Held held;
    std::vector<CUcontext> contexts;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && contexts.size() <= 2 * wire::contexts_max)
        result = cuCtxCreate_v2(&contexts.emplace_back(), 0, 0);
    contexts.pop_back();
    CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(contexts.size() == wire::contexts_max);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);  // the worker has not refused one that the client promised
    REQUIRE(cuCtxDestroy_v2(contexts.back()) == CUDA_SUCCESS);
    CHECK(cuCtxCreate_v2(&contexts.back(), 0, 0) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    for (auto context : contexts) CHECK(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(held.context) == CUDA_SUCCESS);
}

TEST_CASE("a client that does not count its contexts is refused by the worker", "[handles]") {
    Held held;
    uint64_t number = unused;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && number < unused + 2 * worker::contexts_max)
        result = ask(wire::op_cuCtxCreate_v4, uint32_t{0}, number++, uint32_t{0});
    CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(ask(wire::op_cuCtxDestroy_v2, unused) == CUDA_SUCCESS);
    CHECK(ask(wire::op_cuCtxCreate_v4, uint32_t{0}, number, uint32_t{0}) == CUDA_SUCCESS);
    CHECK(ask(wire::op_cuCtxCreate_v4, uint32_t{0}, number, uint32_t{0}) == CUDA_ERROR_INVALID_VALUE);
    for (uint64_t made = unused + 1; made <= number; ++made)
        if (made != number - 1) CHECK(ask(wire::op_cuCtxDestroy_v2, made) == CUDA_SUCCESS);  // that one was refused
}

TEST_CASE("a link beyond the limit cannot be used, and those before it can", "[handles]") {
    Held held;
    const std::string ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n";
    const auto use = [&](CUlinkState link) {
        return cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(ptx.c_str()), ptx.size() + 1, "k", 0, nullptr,
                                nullptr);
    };
    std::vector<CUlinkState> links(worker::links_max + 1);
    for (auto& link : links) REQUIRE(cuLinkCreate_v2(0, nullptr, nullptr, &link) == CUDA_SUCCESS);
    CHECK(use(links.back()) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_OUT_OF_MEMORY);  // the creation was not waited for
    CHECK(use(links.front()) == CUDA_SUCCESS);
    for (auto link : links) CHECK(cuLinkDestroy(link) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_HANDLE);  // there was none to destroy
    REQUIRE(cuLinkCreate_v2(0, nullptr, nullptr, &links[0]) == CUDA_SUCCESS);
    CHECK(use(links[0]) == CUDA_SUCCESS);
    CHECK(cuLinkDestroy(links[0]) == CUDA_SUCCESS);
}

TEST_CASE("what a client makes under a number that it has given before takes no memory", "[handles]") {
    Held held;
    const auto make = [&] {
        return ask_in(held.context, wire::op_cuStreamCreateWithPriority, unused, uint32_t{CU_STREAM_NON_BLOCKING},
                      int32_t{0});
    };
    REQUIRE(make() == CUDA_SUCCESS);
    const auto before = workers_bytes();
    REQUIRE(before > 0);
    constexpr int tries = 10'000;
    int refused = 0;
    for (int i = 0; i < tries; ++i) refused += make() == CUDA_ERROR_INVALID_VALUE;
    CHECK(refused == tries);
    // AddressSanitizer keeps what was freed for a while.
    const uint64_t kept_by_sanitizer = dlsym(RTLD_DEFAULT, "__asan_init") ? 256 * mib : 0;
    CHECK(workers_bytes() < before + 6 * mib + kept_by_sanitizer);
}
