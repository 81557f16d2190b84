"""Stands in for nvJitLink where a program links to machine code: load() gives the program one that links to PTX, which the
emulated GPU runs. It is a library of the same name in front of the one that is installed; call it before anything loads that.
"""
import ctypes
import pathlib
import subprocess
import sysconfig
import tempfile

HEAD = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
typedef int (*Function)(void*, void*, void*, void*, void*, void*);
static Function real(const char* name) {
    static void* library;
    if (!library) library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    return (Function)dlsym(library, name);
}
static int create(const char* name, void* handle, uint32_t count, const char** options) {
    const char* more[count + 1];
    int links = 0, as_ptx = 0;
    for (uint32_t i = 0; i < count; ++i) {
        more[i] = options[i];
        links |= !strcmp(options[i], "-lto");
        as_ptx |= !strcmp(options[i], "-ptx");
    }
    if (links && !as_ptx) more[count++] = "-ptx";
    return real(name)(handle, (void*)(uintptr_t)count, more, 0, 0, 0);
}
"""
CREATE = 'int {name}(void* handle, uint32_t count, const char** options) {{ return create("{name}", handle, count, options); }}\n'
# What was linked without LTO is machine code.
CUBIN = """int {name}(void* handle, void* out) {{
    int status = real("{ptx}")(handle, out, 0, 0, 0, 0);
    return status ? real("{name}")(handle, out, 0, 0, 0, 0) : 0;
}}
"""
OTHER = """int {name}(void* a, void* b, void* c, void* d, void* e, void* f) {{ return real("{name}")(a, b, c, d, e, f); }}
"""


def functions(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names = {line.split()[2].split("@")[0] for line in lines.splitlines() if line.split()[1] == "T"}
    return sorted(name for name in names if name.lstrip("_").startswith("nvJitLink"))


def source(library):
    text = HEAD
    for name in functions(library):
        form = CREATE if "Create" in name else CUBIN if "GetLinkedCubin" in name else OTHER
        text += form.format(name=name, ptx=name.replace("Cubin", "Ptx"))
    return text


def load():
    """Returns what must be kept for as long as the library is used."""
    real = max(pathlib.Path(sysconfig.get_path("purelib")).glob("nvidia/*/lib/libnvJitLink.so.*"))
    folder = tempfile.TemporaryDirectory()
    code, versions, library = (pathlib.Path(folder.name) / name for name in ("link.c", "link.map", real.name))
    code.write_text(source(real))
    versions.write_text(f"{real.name} {{ global: nvJitLink*; __nvJitLink*; local: *; }};\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", f'-DREAL="{real}"', code, "-o", library,
                    f"-Wl,-soname,{real.name},--version-script={versions}"], check=True)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return folder
