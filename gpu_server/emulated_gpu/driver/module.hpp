// Code: modules (of one context), libraries (of none, instantiated in each context that uses them), and
// the functions and kernels in them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/context.hpp"
#include "gpu_server/emulated_gpu/driver/texture_reference.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::emulated {

class Library;
class Module;
using Code = std::shared_ptr<const ptx::Module>;

inline constexpr uint32_t no_register_limit = ~0u;

// Settings of a function (cuFuncSetAttribute) or, per device, of a kernel (cuKernelSetAttribute).
struct FunctionSettings {
    std::atomic<int> max_dynamic_shared{-1};  // -1: as the compute capability gives it
    std::atomic<int> carveout{-1};
    std::atomic<int> non_portable_cluster{0};
    std::atomic<int> cluster_scheduling{0};
    uint32_t registers_max = no_register_limit;  // as asked for when the code was loaded
};

class Function : public Object {
public:
    static constexpr Kind kind_of = Kind::function;
    Function(std::shared_ptr<Module> module, const ptx::Kernel& kernel, std::shared_ptr<FunctionSettings> shared)
        : Object(kind_of), settings(std::move(shared)), module_(std::move(module)), kernel_(kernel) {}

    const std::shared_ptr<Module>& module() const { return module_; }
    const ptx::Kernel& kernel() const { return kernel_; }

    const std::shared_ptr<FunctionSettings> settings;  // a kernel's, where the function is one's

private:
    std::shared_ptr<Module> module_;
    const ptx::Kernel& kernel_;  // part of the module's code
};

// Managed variables side by side. A library has them once, for all contexts: they go with the last of its instances.
struct ManagedVariables {
    ManagedVariables() = default;
    ~ManagedVariables();
    ManagedVariables(const ManagedVariables&) = delete;
    ManagedVariables& operator=(const ManagedVariables&) = delete;

    std::vector<uint64_t> addresses;  // in the order of the code
};

// Its variables' memory goes back when the last of handle, functions and launches is gone.
class Module : public Object, public std::enable_shared_from_this<Module> {
public:
    static constexpr Kind kind_of = Kind::module;
    Module(Context& owner, Code compiled, uint32_t registers = no_register_limit)
        : Object(kind_of), context(owner), code(std::move(compiled)), registers_max(registers) {}

    // Gives the variables addresses and initial values; the managed ones are `shared` with another instance of the library, if
    // there is one.
    CUresult place_globals(std::shared_ptr<const ManagedVariables> shared = nullptr);
    std::shared_ptr<const ManagedVariables> managed() {
        LockGuard lock(mutex_);
        return managed_;
    }
    // Null when there is no kernel of that index.
    std::shared_ptr<Function> function(size_t index);
    // Takes its functions' handles away and frees its variables.
    void unload();
    void dismiss() override { unload(); }

    Context& context;
    const Code code;
    const uint32_t registers_max;            // of its own functions; a library's kernels have theirs
    std::vector<uint64_t> global_addresses;  // fixed once place_globals() has returned
    ModuleReferences references;
    std::weak_ptr<Library> library;  // that it is an instance of, if any

private:
    CUresult place_managed(Allocation like, ManagedVariables& variables);

    Mutex mutex_;
    std::shared_ptr<const ManagedVariables> managed_ TNR_GUARDED_BY(mutex_);  // null: it has none
    std::vector<std::shared_ptr<Function>> functions_ TNR_GUARDED_BY(mutex_);
};

class Kernel : public Object {
public:
    static constexpr Kind kind_of = Kind::kernel;
    Kernel(std::weak_ptr<Library> owner, size_t position, uint32_t registers_max)
        : Object(kind_of), library(std::move(owner)), index(position) {
        for (size_t i = 0; i < driver().devices.size(); ++i) {
            settings.push_back(std::make_shared<FunctionSettings>());
            settings.back()->registers_max = registers_max;
        }
    }

    const std::weak_ptr<Library> library;
    const size_t index;
    std::vector<std::shared_ptr<FunctionSettings>> settings;  // by device
};

class Library : public Object, public std::enable_shared_from_this<Library> {
public:
    static constexpr Kind kind_of = Kind::library;
    explicit Library(Code compiled, CUresult bad = CUDA_SUCCESS)
        : Object(kind_of), code(std::move(compiled)), unusable(bad) {}

    const Code code;
    // What is wrong with its text, which NVIDIA's driver tells when it is first used; no code then.
    const CUresult unusable;
    std::vector<std::shared_ptr<Kernel>> kernels;  // fixed after loading
    // The library in this context, loaded when it is first asked for.
    CUresult instance(Context& context, std::shared_ptr<Module>& module);
    void unload();

private:
    // Those of the instances that there are; null if none has any.
    std::shared_ptr<const ManagedVariables> managed() TNR_REQUIRES(mutex_);

    Mutex mutex_;
    std::map<Context*, std::shared_ptr<Module>> instances_ TNR_GUARDED_BY(mutex_);
};

// What cuModuleLoadData accepts: PTX text, a fat binary, or a wrapper around one. `error` explains.
CUresult compile(const void* image, Code& code, std::string& error);
CUresult compile_file(const char* path, Code& code, std::string& error);

// A CUfunction, or a CUkernel in its place (the runtime passes kernels to launches), in this context.
CUresult function_of(Context& context, CUfunction handle, std::shared_ptr<Function>& function);

// Position of the kernel or variable of that name; the size if there is none.
size_t kernel_index(const ptx::Module& code, const char* name);
size_t global_index(const ptx::Module& code, const char* name);

// Tells the caller of a JIT call what was wrong, in the buffers given as options. Without a buffer for errors it is said
// on stderr: programs forget to look at the result.
void fill_jit_logs(unsigned count, CUjit_option* options, void** values, const std::string& error);
// CU_JIT_MAX_REGISTERS, the one option that can be seen afterwards.
uint32_t registers_wanted(unsigned count, const CUjit_option* options, void** values);

CUresult get_attribute(const ptx::Module& code, const ptx::Kernel& kernel, const FunctionSettings& settings,
                       CUfunction_attribute attribute, int& value);
CUresult set_attribute(const ptx::Kernel& kernel, FunctionSettings& settings, CUfunction_attribute attribute,
                       int value);
CUresult parameter_info(const ptx::Kernel& kernel, size_t index, size_t* offset, size_t* size);

// The most dynamic shared memory that a launch of it may ask for.
int max_dynamic_shared(const ptx::Kernel& kernel, const FunctionSettings& settings);

}  // namespace tnr::emulated
