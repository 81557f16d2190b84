// The limits of launches, and occupancy.
#include "tests/differential/cases.hpp"

namespace differential {
namespace {

struct Shape {
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared = 0;
};

CUresult launch(CUfunction function, const Shape& s, void** parameters = nullptr, void** extra = nullptr) {
    return DO(cuLaunchKernel, function, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2], s.shared,
              nullptr, parameters, extra);
}
// As a module's function, as a library's kernel, and through cuLaunchKernelEx.
void three_ways(Outcome& o, const char* name, const Shape& s) {
    o.add(launch(function(name), s));
    o.add(launch(reinterpret_cast<CUfunction>(kernel(name)), s));
    CUlaunchConfig config{};
    config.gridDimX = s.grid[0], config.gridDimY = s.grid[1], config.gridDimZ = s.grid[2];
    config.blockDimX = s.block[0], config.blockDimY = s.block[1], config.blockDimZ = s.block[2];
    config.sharedMemBytes = s.shared;
    o.add(DO(cuLaunchKernelEx, &config, function(name), nullptr, nullptr));
}

}  // namespace

#define LAUNCH_CASE(name, ...)               \
    {                                        \
        name, [](Outcome& o) { __VA_ARGS__ } \
    }
#define UNSAFE_LAUNCH_CASE(name, ...)                              \
    {                                                              \
        name, [](Outcome& o) { __VA_ARGS__ }, Setting::alone, true \
    }

void add_launch_cases(std::vector<Case>& cases) {
    std::vector<Case> added =
    { LAUNCH_CASE("cuLaunchKernel/one thread", three_ways(o, "nothing", {});),
      LAUNCH_CASE("cuLaunchKernel/1024 threads", three_ways(o, "nothing", {{1, 1, 1}, {1024, 1, 1}});),
      LAUNCH_CASE("cuLaunchKernel/1025 threads", three_ways(o, "nothing", {{1, 1, 1}, {1025, 1, 1}});),
      LAUNCH_CASE("cuLaunchKernel/2048 threads", three_ways(o, "nothing", {{1, 1, 1}, {2048, 1, 1}});),
      LAUNCH_CASE("cuLaunchKernel/33 x 32 threads", three_ways(o, "nothing", {{1, 1, 1}, {33, 32, 1}});),
      LAUNCH_CASE("cuLaunchKernel/65 threads in z", three_ways(o, "nothing", {{1, 1, 1}, {1, 1, 65}});),
      LAUNCH_CASE("cuLaunchKernel/no thread in x", three_ways(o, "nothing", {{1, 1, 1}, {0, 1, 1}});),
      LAUNCH_CASE("cuLaunchKernel/no thread in y", three_ways(o, "nothing", {{1, 1, 1}, {1, 0, 1}});),
      LAUNCH_CASE("cuLaunchKernel/no thread in z", three_ways(o, "nothing", {{1, 1, 1}, {1, 1, 0}});),
      LAUNCH_CASE("cuLaunchKernel/no block in x", three_ways(o, "nothing", {{0, 1, 1}});),
      LAUNCH_CASE("cuLaunchKernel/no block in y", three_ways(o, "nothing", {{1, 0, 1}});),
      LAUNCH_CASE("cuLaunchKernel/no block in z", three_ways(o, "nothing", {{1, 1, 0}});),
      LAUNCH_CASE("cuLaunchKernel/too many blocks in x", three_ways(o, "nothing", {{0x80000000u, 1, 1}});),
      LAUNCH_CASE("cuLaunchKernel/too many blocks in y", three_ways(o, "nothing", {{1, 65536, 1}});),
      LAUNCH_CASE("cuLaunchKernel/too many blocks in z", three_ways(o, "nothing", {{1, 1, 65536}});),
      LAUNCH_CASE("cuLaunchKernel/more than maxntid", three_ways(o, "limited", {{1, 1, 1}, {65, 1, 1}});),
      LAUNCH_CASE("cuLaunchKernel/as many as maxntid", three_ways(o, "limited", {{1, 1, 1}, {64, 1, 1}});),
      LAUNCH_CASE("cuLaunchKernel/48 KiB of shared memory",
                  three_ways(o, "nothing", {{1, 1, 1}, {1, 1, 1}, 48 << 10});),
      LAUNCH_CASE("cuLaunchKernel/48 KiB and a byte",
                  three_ways(o, "nothing", {{1, 1, 1}, {1, 1, 1}, (48 << 10) + 1});),
      LAUNCH_CASE("cuLaunchKernel/static and 48 KiB", Shape s; s.shared = 48 << 10; int value = 0; void* p[] = {&value};
                  o.add(launch(function("still"), s, p));),
      LAUNCH_CASE("cuLaunchKernel/static and 44 KiB", Shape s; s.shared = 44 << 10; int value = 0; void* p[] = {&value};
                  o.add(launch(function("still"), s, p));),
      LAUNCH_CASE("cuLaunchKernel/1 GiB of shared memory", three_ways(o, "nothing", {{1, 1, 1}, {1, 1, 1}, 1u << 30});),
      LAUNCH_CASE("cuLaunchKernel/null function", o.add(launch(nullptr, {}));),
      LAUNCH_CASE("cuLaunchKernel/parameters and extra", auto m = memory(64); unsigned v = 1; void* p[] = {&m, &v};
                  char b[12] = {}; size_t n = 12;
                  void* e[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, b, CU_LAUNCH_PARAM_BUFFER_SIZE, &n, CU_LAUNCH_PARAM_END};
                  o.add(launch(function("store"), {}, p, e));),
      LAUNCH_CASE("cuLaunchKernel/extra too short", char b[12] = {}; size_t n = 4;
                  void* e[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, b, CU_LAUNCH_PARAM_BUFFER_SIZE, &n, CU_LAUNCH_PARAM_END};
                  o.add(launch(function("store"), {}, nullptr, e));),
      LAUNCH_CASE("cuLaunchKernel/extra without a size", char b[12] = {};
                  void* e[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, b, CU_LAUNCH_PARAM_END};
                  o.add(launch(function("store"), {}, nullptr, e));),
      UNSAFE_LAUNCH_CASE("cuLaunchKernel/no parameters", o.add(launch(function("store"), {}));),
      UNSAFE_LAUNCH_CASE("cuLaunchKernel/invented function", o.add(launch(invented<CUfunction>(), {}));),
      LAUNCH_CASE("cuLaunchKernelEx/null configuration",
                  TELL(cuLaunchKernelEx, nullptr, function("nothing"), nullptr, nullptr);),
      LAUNCH_CASE("cuLaunchKernelEx/attributes without a list", CUlaunchConfig c{};
                  c.gridDimX = c.gridDimY = c.gridDimZ = c.blockDimX = c.blockDimY = c.blockDimZ = 1; c.numAttrs = 1;
                  TELL(cuLaunchKernelEx, &c, function("nothing"), nullptr, nullptr);),
      LAUNCH_CASE("cuLaunchKernelEx/unknown attribute", CUlaunchConfig c{};
                  c.gridDimX = c.gridDimY = c.gridDimZ = c.blockDimX = c.blockDimY = c.blockDimZ = 1;
                  CUlaunchAttribute a{}; a.id = static_cast<CUlaunchAttributeID>(99); c.attrs = &a; c.numAttrs = 1;
                  TELL(cuLaunchKernelEx, &c, function("nothing"), nullptr, nullptr);),
      LAUNCH_CASE("cuLaunchKernelEx/cluster that does not divide the grid", CUlaunchConfig c{}; c.gridDimX = 3;
                  c.gridDimY = c.gridDimZ = c.blockDimX = c.blockDimY = c.blockDimZ = 1; CUlaunchAttribute a{};
                  a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION; a.value.clusterDim = {2, 1, 1}; c.attrs = &a;
                  c.numAttrs = 1; TELL(cuLaunchKernelEx, &c, function("nothing"), nullptr, nullptr);),
      LAUNCH_CASE("cuLaunchCooperativeKernel/one block",
                  TELL(cuLaunchCooperativeKernel, function("nothing"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);),
      LAUNCH_CASE("cuLaunchCooperativeKernel/more than fit", TELL(cuLaunchCooperativeKernel, function("nothing"),
                                                                  1 << 24, 1, 1, 1024, 1, 1, 0, nullptr, nullptr);),
      LAUNCH_CASE("cuLaunchCooperativeKernel/no block",
                  TELL(cuLaunchCooperativeKernel, function("nothing"), 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr);),
      LAUNCH_CASE("cuLaunchCooperativeKernel/null function",
                  TELL(cuLaunchCooperativeKernel, nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);),
      LAUNCH_CASE("cuLaunch/old way", TELL(cuFuncSetBlockShape, function("nothing"), 1, 1, 1);
                  TELL(cuLaunch, function("nothing"));),
      LAUNCH_CASE("cuFuncSetBlockShape/too many threads", TELL(cuFuncSetBlockShape, function("nothing"), 2048, 1, 1);),
      // The fault is told by what waits, and stays: a process for each.
      LAUNCH_CASE("cuLaunchKernel/fault", CUdeviceptr nowhere = 0; unsigned v = 1; void* p[] = {&nowhere, &v};
                  o.add(launch(function("store"), {}, p)); TELL(cuCtxSynchronize, ); TELL(cuCtxSynchronize, );
                  CUdeviceptr m; TELL(cuMemAlloc, &m, 64); TELL(cuStreamQuery, nullptr);),
      LAUNCH_CASE("cuLaunchKernel/misaligned store", auto m = memory(64) + 1; unsigned v = 1; void* p[] = {&m, &v};
                  o.add(launch(function("store"), {}, p)); TELL(cuCtxSynchronize, );),
      LAUNCH_CASE("cuLaunchKernel/host address", auto m = reinterpret_cast<CUdeviceptr>(&o) & ~CUdeviceptr{15};
                  unsigned v = 1; void* p[] = {&m, &v}; o.add(launch(function("store"), {}, p));
                  TELL(cuCtxSynchronize, );),

      LAUNCH_CASE("cuOccupancyMaxActiveBlocksPerMultiprocessor/no thread", int n;
                  TELL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, function("nothing"), 0, 0);),
      LAUNCH_CASE("cuOccupancyMaxActiveBlocksPerMultiprocessor/negative", int n;
                  TELL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, function("nothing"), -1, 0);),
      LAUNCH_CASE("cuOccupancyMaxActiveBlocksPerMultiprocessor/2048 threads", int n = 9;
                  TELL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, function("nothing"), 2048, 0);
                  o.add(std::to_string(n));),
      LAUNCH_CASE("cuOccupancyMaxActiveBlocksPerMultiprocessor/1 GiB shared", int n = 9;
                  TELL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, function("nothing"), 64, 1 << 30);
                  o.add(std::to_string(n));),
      LAUNCH_CASE("cuOccupancyMaxActiveBlocksPerMultiprocessor/null function", int n;
                  TELL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, nullptr, 64, 0);),
      LAUNCH_CASE("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags/unknown flags", int n;
                  TELL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &n, function("nothing"), 64, 0, 0x10);),
      LAUNCH_CASE("cuOccupancyAvailableDynamicSMemPerBlock/one block", size_t n = 0;
                  TELL(cuOccupancyAvailableDynamicSMemPerBlock, &n, function("nothing"), 1, 64);
                  o.add(std::to_string(n));),
      LAUNCH_CASE("cuOccupancyAvailableDynamicSMemPerBlock/no block", size_t n;
                  TELL(cuOccupancyAvailableDynamicSMemPerBlock, &n, function("nothing"), 0, 64);),
      LAUNCH_CASE("cuOccupancyAvailableDynamicSMemPerBlock/999 blocks", size_t n;
                  TELL(cuOccupancyAvailableDynamicSMemPerBlock, &n, function("nothing"), 999, 64);),
      LAUNCH_CASE("cuOccupancyAvailableDynamicSMemPerBlock/no thread", size_t n;
                  TELL(cuOccupancyAvailableDynamicSMemPerBlock, &n, function("nothing"), 1, 0);),
      LAUNCH_CASE("cuOccupancyMaxPotentialBlockSize/limit of one", int a = 0; int b = 0;
                  TELL(cuOccupancyMaxPotentialBlockSize, &a, &b, function("nothing"), nullptr, 0, 1);
                  o.add(std::to_string(b));),
      LAUNCH_CASE("cuOccupancyMaxPotentialBlockSize/of 64", int a = 0; int b = 0;
                  TELL(cuOccupancyMaxPotentialBlockSize, &a, &b, function("limited"), nullptr, 0, 0);
                  o.add(std::to_string(b));),
      LAUNCH_CASE("cuOccupancyMaxPotentialClusterSize/null function", int n; CUlaunchConfig c{};
                  TELL(cuOccupancyMaxPotentialClusterSize, &n, nullptr, &c);),
    };
    cases.insert(cases.end(), added.begin(), added.end());
}

}  // namespace differential
