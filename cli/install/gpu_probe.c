/* tnr-gpu-probe: asks for the GPUs the way any program on the machine does, through the libcuda.so.1 that the
 * dynamic linker finds, and prints one line for each: "0: NVIDIA H100, 79.6 GiB". Exit code 1 and a line on stderr
 * when there is none. C, because it runs on machines whose C++ library may be older than ours. */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*Init)(unsigned);
typedef int (*GetCount)(int*);
typedef int (*Get)(int*, int);
typedef int (*GetName)(char*, int, int);
typedef int (*TotalMem)(size_t*, int);
typedef int (*GetErrorName)(int, const char**);

static void* library;

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

int main(void) {
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
        printf("%d: %s, %.1f GiB\n", i, name, (double)bytes / (1 << 30));
    }
    return count > 0 ? 0 : 1;
}
