/* tnr-gpu-probe: asks for the GPUs the way any program on the machine does, through the libcuda.so.1 that the
 * dynamic linker finds, and prints one line for each: "0: NVIDIA H100, 79.6 GiB". Then it writes memory of the first
 * and reads it back, because a GPU that can be asked for may still be out of reach for work: that has a connection of
 * its own. Exit code 1 and a line on stderr when any of this fails; GPUs that others use at the moment are no failure.
 * With --plain a line is the memory in bytes and the name, and what else there is to say goes to stderr.
 * C, because it runs on machines whose C++ library may be older than ours. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*Init)(unsigned);
typedef int (*GetCount)(int*);
typedef int (*Get)(int*, int);
typedef int (*GetName)(char*, int, int);
typedef int (*TotalMem)(size_t*, int);
typedef int (*RetainContext)(void**, int);
typedef int (*SetContext)(void*);
typedef int (*Allocate)(uint64_t*, size_t);
typedef int (*Fill)(uint64_t, unsigned, size_t);
typedef int (*CopyBack)(void*, uint64_t, size_t);
typedef int (*ReleaseContext)(int);
typedef int (*GetErrorName)(int, const char**);

enum { words = 4096, pattern = 0x7e57ed, device_unavailable = 46 };

static void* library;
static int plain; /* told --plain */

static void* find(const char* name) {
    void* symbol = dlsym(library, name);
    if (!symbol) fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    return symbol;
}

static int failed(const char* call, int code) {
    GetErrorName get_error_name = (GetErrorName)find("cuGetErrorName");
    const char* name = NULL;
    if (get_error_name) get_error_name(code, &name);
    fprintf(stderr, "%s: %s (%d)\n", call, name ? name : "unknown error", code);
    return 1;
}

/* The memory goes with the context. */
static int use_first(int device) {
    RetainContext retain = (RetainContext)find("cuDevicePrimaryCtxRetain");
    SetContext set = (SetContext)find("cuCtxSetCurrent");
    Allocate allocate = (Allocate)find("cuMemAlloc_v2");
    Fill fill = (Fill)find("cuMemsetD32_v2");
    CopyBack copy_back = (CopyBack)find("cuMemcpyDtoH_v2");
    ReleaseContext release = (ReleaseContext)find("cuDevicePrimaryCtxRelease_v2");
    if (!retain || !set || !allocate || !fill || !copy_back || !release) return 1;

    void* context = NULL;
    uint64_t memory = 0;
    static unsigned back[words];
    int code = retain(&context, device);
    if (code == device_unavailable) {
        fprintf(plain ? stderr : stdout, "none is free at the moment, so none was tried\n");
        return 0;
    }
    if (code != 0) return failed("cuDevicePrimaryCtxRetain", code);
    if ((code = set(context)) != 0) return failed("cuCtxSetCurrent", code);
    if ((code = allocate(&memory, sizeof back)) != 0) return failed("cuMemAlloc", code);
    if ((code = fill(memory, pattern, words)) != 0) return failed("cuMemsetD32", code);
    if ((code = copy_back(back, memory, sizeof back)) != 0) return failed("cuMemcpyDtoH", code);
    for (int i = 0; i < words; ++i)
        if (back[i] != pattern) {
            fprintf(stderr, "the GPU's memory does not keep what was written\n");
            return 1;
        }
    if ((code = release(device)) != 0) return failed("cuDevicePrimaryCtxRelease", code);
    return 0;
}

int main(int argc, char** argv) {
    plain = argc > 1 && strcmp(argv[1], "--plain") == 0;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    Init init = (Init)find("cuInit");
    GetCount get_count = (GetCount)find("cuDeviceGetCount");
    Get get = (Get)find("cuDeviceGet");
    GetName get_name = (GetName)find("cuDeviceGetName");
    TotalMem total_memory = (TotalMem)find("cuDeviceTotalMem_v2");
    if (!init || !get_count || !get || !get_name || !total_memory) return 1;

    int count = 0, code = init(0);
    if (code != 0) return failed("cuInit", code);
    if ((code = get_count(&count)) != 0) return failed("cuDeviceGetCount", code);
    for (int i = 0; i < count; ++i) {
        int device = 0;
        char name[256] = "";
        size_t bytes = 0;
        if ((code = get(&device, i)) != 0) return failed("cuDeviceGet", code);
        if ((code = get_name(name, sizeof name, device)) != 0) return failed("cuDeviceGetName", code);
        if ((code = total_memory(&bytes, device)) != 0) return failed("cuDeviceTotalMem", code);
        if (plain)
            printf("%zu %s\n", bytes, name);
        else
            printf("%d: %s, %.1f GiB\n", i, name, (double)bytes / (1 << 30));
    }
    if (count == 0) {
        fprintf(stderr, "it has no GPU\n");
        return 1;
    }
    return use_first(0);
}
