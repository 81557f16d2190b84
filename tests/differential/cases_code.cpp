// Modules, libraries, functions: images that are none, names that are not there.
#include <cstring>

#include "tests/differential/cases.hpp"

namespace differential {
namespace {

constexpr char no_code[] = "this is no code";
constexpr char newer_ptx[] = ".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n";
constexpr char newer_target[] = ".version 7.0\n.target sm_999\n.address_size 64\n.visible .entry nothing() { ret; }\n";
constexpr char wrong_ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { frobnicate; }\n";
constexpr char empty_ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n";
constexpr char unresolved_ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.extern .func elsewhere();\n"
    ".visible .entry nothing() { call elsewhere; ret; }\n";

CUresult load(const char* code) {
    CUmodule module = nullptr;
    return DO(cuModuleLoadData, &module, code);
}
CUresult load_library(const char* code) {
    CUlibrary library = nullptr;
    auto result = DO(cuLibraryLoadData, &library, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result != CUDA_SUCCESS) return result;
    CUkernel kernel = nullptr;  // a library may be read as late as this
    return DO(cuLibraryGetKernel, &kernel, library, "nothing");
}
CUmodule unloaded() {
    CUmodule made = nullptr;
    NEED(cuModuleLoadData, &made, image);
    NEED(cuModuleUnload, made);
    return made;
}

}  // namespace

#define CODE_CASE(name, ...)                 \
    {                                        \
        name, [](Outcome& o) { __VA_ARGS__ } \
    }
#define UNSAFE_CODE_CASE(name, ...)                                  \
    {                                                                \
        name, [](Outcome& o) { __VA_ARGS__ }, Setting::context, true \
    }

void add_code_cases(std::vector<Case>& cases) {
    std::vector<Case> added =
    { CODE_CASE("cuModuleLoadData/null", o.add(load(nullptr));),
      CODE_CASE("cuModuleLoadData/no code", o.add(load(no_code));),
      CODE_CASE("cuModuleLoadData/empty text", o.add(load(""));),
      CODE_CASE("cuModuleLoadData/newer PTX", o.add(load(newer_ptx));),
      CODE_CASE("cuModuleLoadData/unknown target", o.add(load(newer_target));),
      CODE_CASE("cuModuleLoadData/unknown instruction", o.add(load(wrong_ptx));),
      CODE_CASE("cuModuleLoadData/no functions", o.add(load(empty_ptx));),
      CODE_CASE("cuModuleLoadData/unresolved", o.add(load(unresolved_ptx));),
      CODE_CASE("cuModuleLoadDataEx/options without values", CUmodule m; CUjit_option a[] = {CU_JIT_MAX_REGISTERS};
                TELL(cuModuleLoadDataEx, &m, image, 1, a, nullptr);),
      CODE_CASE("cuModuleLoadDataEx/count without options", CUmodule m;
                TELL(cuModuleLoadDataEx, &m, image, 1, nullptr, nullptr);),
      CODE_CASE("cuModuleLoadDataEx/unknown option", CUmodule m; CUjit_option a[] = {static_cast<CUjit_option>(999)};
                void* v[] = {nullptr}; TELL(cuModuleLoadDataEx, &m, image, 1, a, v);),
      CODE_CASE("cuModuleLoadFatBinary/null", CUmodule m; TELL(cuModuleLoadFatBinary, &m, nullptr);),
      CODE_CASE("cuModuleLoad/no such file", CUmodule m; TELL(cuModuleLoad, &m, "/nowhere/at/all.ptx");),
      CODE_CASE("cuModuleLoad/null", CUmodule m; TELL(cuModuleLoad, &m, nullptr);),
      CODE_CASE("cuModuleLoad/a folder", CUmodule m; TELL(cuModuleLoad, &m, "/");),
      CODE_CASE("cuModuleUnload/null", TELL(cuModuleUnload, nullptr);),
      UNSAFE_CODE_CASE("cuModuleUnload/twice", TELL(cuModuleUnload, unloaded());),
      UNSAFE_CODE_CASE("cuModuleGetFunction/unloaded", CUfunction f;
                       TELL(cuModuleGetFunction, &f, unloaded(), "nothing");),
      CODE_CASE("cuModuleGetFunction/unknown name", CUfunction f; TELL(cuModuleGetFunction, &f, module(), "absent");),
      CODE_CASE("cuModuleGetFunction/empty name", CUfunction f; TELL(cuModuleGetFunction, &f, module(), "");),
      CODE_CASE("cuModuleGetFunction/null name", CUfunction f; TELL(cuModuleGetFunction, &f, module(), nullptr);),
      CODE_CASE("cuModuleGetFunction/null module", CUfunction f; TELL(cuModuleGetFunction, &f, nullptr, "nothing");),
      CODE_CASE("cuModuleGetFunction/a global's name", CUfunction f; TELL(cuModuleGetFunction, &f, module(), "word");),
      CODE_CASE("cuModuleGetGlobal/unknown name", CUdeviceptr p; size_t s;
                TELL(cuModuleGetGlobal, &p, &s, module(), "absent");),
      CODE_CASE("cuModuleGetGlobal/null name", CUdeviceptr p; size_t s;
                TELL(cuModuleGetGlobal, &p, &s, module(), nullptr);),
      CODE_CASE("cuModuleGetGlobal/a function's name", CUdeviceptr p; size_t s;
                TELL(cuModuleGetGlobal, &p, &s, module(), "nothing");),
      CODE_CASE("cuModuleGetGlobal/null module", CUdeviceptr p; size_t s;
                TELL(cuModuleGetGlobal, &p, &s, nullptr, "word");),
      CODE_CASE("cuModuleGetGlobal/size only", size_t s = 0; TELL(cuModuleGetGlobal, nullptr, &s, module(), "word");
                o.add(std::to_string(s));),
      CODE_CASE("cuModuleGetFunctionCount/null module", unsigned n; TELL(cuModuleGetFunctionCount, &n, nullptr);),
      CODE_CASE("cuModuleEnumerateFunctions/zero", CUfunction f; TELL(cuModuleEnumerateFunctions, &f, 0, module());),
      CODE_CASE("cuModuleEnumerateFunctions/more than there are", CUfunction f[99] = {};
                TELL(cuModuleEnumerateFunctions, f, 99, module());),

      CODE_CASE("cuLibraryLoadData/null", o.add(load_library(nullptr));),
      CODE_CASE("cuLibraryLoadData/no code", o.add(load_library(no_code));),
      CODE_CASE("cuLibraryLoadData/newer PTX", o.add(load_library(newer_ptx));),
      CODE_CASE("cuLibraryLoadData/unknown instruction", o.add(load_library(wrong_ptx));),
      CODE_CASE("cuLibraryLoadFromFile/no such file", CUlibrary l;
                TELL(cuLibraryLoadFromFile, &l, "/nowhere/at/all.ptx", nullptr, nullptr, 0, nullptr, nullptr, 0);),
      CODE_CASE("cuLibraryUnload/null", TELL(cuLibraryUnload, nullptr);),
      UNSAFE_CODE_CASE("cuLibraryUnload/twice", CUlibrary l;
                       NEED(cuLibraryLoadData, &l, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
                       TELL(cuLibraryUnload, l); TELL(cuLibraryUnload, l);),
      CODE_CASE("cuLibraryGetKernel/unknown name", CUkernel k; TELL(cuLibraryGetKernel, &k, code_library(), "absent");),
      CODE_CASE("cuLibraryGetKernel/null name", CUkernel k; TELL(cuLibraryGetKernel, &k, code_library(), nullptr);),
      CODE_CASE("cuLibraryGetKernel/null library", CUkernel k; TELL(cuLibraryGetKernel, &k, nullptr, "nothing");),
      CODE_CASE("cuLibraryGetGlobal/unknown name", CUdeviceptr p; size_t s;
                TELL(cuLibraryGetGlobal, &p, &s, code_library(), "absent");),
      CODE_CASE("cuLibraryGetManaged/none there", CUdeviceptr p; size_t s;
                TELL(cuLibraryGetManaged, &p, &s, code_library(), "word");),
      CODE_CASE("cuLibraryGetUnifiedFunction/none there", void* f;
                TELL(cuLibraryGetUnifiedFunction, &f, code_library(), "nothing");),
      CODE_CASE("cuLibraryGetKernelCount/null library", unsigned n; TELL(cuLibraryGetKernelCount, &n, nullptr);),
      CODE_CASE("cuLibraryEnumerateKernels/zero", CUkernel k; TELL(cuLibraryEnumerateKernels, &k, 0, code_library());),

      CODE_CASE("cuKernelGetName/null kernel", const char* n; TELL(cuKernelGetName, &n, nullptr);),
      CODE_CASE("cuKernelGetFunction/null kernel", CUfunction f; TELL(cuKernelGetFunction, &f, nullptr);),
      CODE_CASE("cuKernelGetLibrary/null kernel", CUlibrary l; TELL(cuKernelGetLibrary, &l, nullptr);),
      CODE_CASE("cuKernelGetAttribute/null kernel", int v;
                TELL(cuKernelGetAttribute, &v, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr, 0);),
      CODE_CASE("cuKernelGetAttribute/unknown", int v;
                TELL(cuKernelGetAttribute, &v, static_cast<CUfunction_attribute>(99), kernel("nothing"), 0);),
      CODE_CASE("cuKernelGetAttribute/no such device", int v;
                TELL(cuKernelGetAttribute, &v, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel("nothing"), 99);),
      CODE_CASE("cuKernelSetAttribute/a read-only one",
                TELL(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_NUM_REGS, 1, kernel("nothing"), 0);),
      CODE_CASE(
          "cuKernelSetAttribute/too much shared memory",
          TELL(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30, kernel("nothing"), 0);),
      CODE_CASE("cuKernelGetParamInfo/beyond the last", size_t a; size_t b;
                TELL(cuKernelGetParamInfo, kernel("store"), 2, &a, &b);),
      CODE_CASE("cuKernelGetParamInfo/second", size_t a = 0; size_t b = 0;
                TELL(cuKernelGetParamInfo, kernel("store"), 1, &a, &b);
                o.add(std::to_string(a) + "+" + std::to_string(b));),
      CODE_CASE("cuKernelGetParamInfo/null kernel", size_t a; size_t b;
                TELL(cuKernelGetParamInfo, nullptr, 0, &a, &b);),
      CODE_CASE("cuKernelGetParamInfo/no context", auto k = kernel("store"); NEED(cuCtxSetCurrent, nullptr); size_t a;
                size_t b; TELL(cuKernelGetParamInfo, k, 0, &a, &b);),
      CODE_CASE("cuKernelGetParamInfo/offset without size", size_t a;
                TELL(cuKernelGetParamInfo, kernel("store"), 0, &a, nullptr);),
      CODE_CASE("cuFuncGetParamInfo/beyond the last", size_t a; size_t b;
                TELL(cuFuncGetParamInfo, function("store"), 2, &a, &b);),
      CODE_CASE("cuFuncGetName/null function", const char* n; TELL(cuFuncGetName, &n, nullptr);),
      CODE_CASE("cuFuncGetModule/null function", CUmodule m; TELL(cuFuncGetModule, &m, nullptr);),
      CODE_CASE("cuFuncGetModule/a kernel", CUmodule m;
                TELL(cuFuncGetModule, &m, reinterpret_cast<CUfunction>(kernel("nothing")));),
      CODE_CASE("cuFuncGetAttribute/null function", int v;
                TELL(cuFuncGetAttribute, &v, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr);),
      CODE_CASE("cuFuncGetAttribute/unknown", int v;
                TELL(cuFuncGetAttribute, &v, static_cast<CUfunction_attribute>(99), function("nothing"));),
      CODE_CASE("cuFuncSetAttribute/null function",
                TELL(cuFuncSetAttribute, nullptr, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0);),
      CODE_CASE("cuFuncSetAttribute/a read-only one",
                TELL(cuFuncSetAttribute, own_function(), CU_FUNC_ATTRIBUTE_NUM_REGS, 1);),
      CODE_CASE("cuFuncSetAttribute/too much shared memory",
                TELL(cuFuncSetAttribute, own_function(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30);),
      CODE_CASE("cuFuncSetAttribute/negative",
                TELL(cuFuncSetAttribute, own_function(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1);),
      CODE_CASE("cuFuncSetAttribute/carveout of 101 %",
                TELL(cuFuncSetAttribute, own_function(), CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101);),
      CODE_CASE("cuFuncSetAttribute/unknown",
                TELL(cuFuncSetAttribute, own_function(), static_cast<CUfunction_attribute>(99), 0);),
      CODE_CASE("cuFuncSetCacheConfig/null function", TELL(cuFuncSetCacheConfig, nullptr, CU_FUNC_CACHE_PREFER_L1);),
      CODE_CASE("cuFuncSetCacheConfig/unknown",
                TELL(cuFuncSetCacheConfig, own_function(), static_cast<CUfunc_cache>(9));),
      CODE_CASE("cuFuncIsLoaded/null", CUfunctionLoadingState s; TELL(cuFuncIsLoaded, &s, nullptr);),
      CODE_CASE("cuFuncLoad/null", TELL(cuFuncLoad, nullptr);),

      CODE_CASE("cuLinkCreate/count without options", CUlinkState s; TELL(cuLinkCreate, 1, nullptr, nullptr, &s);),
      CODE_CASE("cuLinkAddData/no code", CUlinkState s; NEED(cuLinkCreate, 0, nullptr, nullptr, &s);
                TELL(cuLinkAddData, s, CU_JIT_INPUT_PTX, const_cast<char*>(no_code), sizeof no_code, "no code", 0,
                     nullptr, nullptr);),
      CODE_CASE("cuLinkAddData/null", CUlinkState s; NEED(cuLinkCreate, 0, nullptr, nullptr, &s);
                TELL(cuLinkAddData, s, CU_JIT_INPUT_PTX, nullptr, 0, "null", 0, nullptr, nullptr);),
      CODE_CASE("cuLinkAddFile/no such file", CUlinkState s; NEED(cuLinkCreate, 0, nullptr, nullptr, &s);
                TELL(cuLinkAddFile, s, CU_JIT_INPUT_PTX, "/nowhere/at/all.ptx", 0, nullptr, nullptr);),
      CODE_CASE("cuLinkComplete/nothing added", CUlinkState s; void* c; size_t n;
                NEED(cuLinkCreate, 0, nullptr, nullptr, &s); TELL(cuLinkComplete, s, &c, &n);),
      CODE_CASE("cuLinkComplete/unresolved", CUlinkState s; void* c; size_t n;
                NEED(cuLinkCreate, 0, nullptr, nullptr, &s);
                TELL(cuLinkAddData, s, CU_JIT_INPUT_PTX, const_cast<char*>(unresolved_ptx), sizeof unresolved_ptx, "u",
                     0, nullptr, nullptr);
                TELL(cuLinkComplete, s, &c, &n);),
      CODE_CASE("cuLinkDestroy/null", TELL(cuLinkDestroy, nullptr);),
    };
    cases.insert(cases.end(), added.begin(), added.end());
}

}  // namespace differential
