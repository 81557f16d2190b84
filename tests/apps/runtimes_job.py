"""NVIDIA's shared runtimes from 11.7 to 13.5, each in a process of its own: memory, streams, events, a kernel registered as
nvcc's code does, errors; and which hidden tables of the driver each asks for and which of their slots it calls, against
`expected/tables.txt`. Each runs twice: the log of the first run says which tables to watch in the second."""
import ctypes
import glob
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

VERSIONS = {"11.7": "nvidia-cuda-runtime-cu11==11.7.*", "11.8": "nvidia-cuda-runtime-cu11==11.8.*",
            "12.1": "nvidia-cuda-runtime-cu12==12.1.*", "12.4": "nvidia-cuda-runtime-cu12==12.4.*",
            "12.8": "nvidia-cuda-runtime-cu12==12.8.*", "13.0": "nvidia-cuda-runtime==13.0.*",
            "13.2": "nvidia-cuda-runtime==13.2.*", "13.5": "nvidia-cuda-runtime==13.5.*"}
TABLES = pathlib.Path(__file__).parent / "expected" / "tables.txt"
PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 data, .param .u32 by, .param .u32 n)
{
    .reg .b32 %r<6>; .reg .b64 %d<4>; .reg .pred %p;
    ld.param.u64 %d1, [data]; ld.param.u32 %r1, [by]; ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.u32 %r3, %r3, %r4, %r5;
    setp.ge.u32 %p, %r3, %r2; @%p bra done;
    mul.wide.u32 %d2, %r3, 4; add.u64 %d1, %d1, %d2; ld.global.u32 %r4, [%d1]; mul.lo.u32 %r4, %r4, %r1;
    st.global.u32 [%d1], %r4;
done: ret;
}
"""


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def fat_binary():
    """What nvcc puts into a program: a container with one entry, which is PTX, and the record that points to it."""
    text = PTX + b"\0" * (8 - len(PTX) % 8)
    entry = struct.pack("<HHIIIIIHHIIIQQQ", 1, 0x101, 64, len(text), 0, 0, 0, 0, 7, 75, 0, 0, 0x11, 0, 0)
    container = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(text)) + entry + text
    data = ctypes.create_string_buffer(container, len(container))
    record = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(data), 0), 24)
    return data, record


def run_suite(library, version):
    cuda = ctypes.CDLL(library)
    cuda.__getattr__("cudaGetErrorString").restype = ctypes.c_char_p
    register, begin_end = cuda["__cudaRegisterFatBinary"], cuda["__cudaRegisterFatBinaryEnd"]
    register.restype = ctypes.c_void_p

    def ok(status):
        assert status == 0, f"{status}: {cuda.cudaGetErrorString(status).decode()}"

    data, record = fat_binary()
    handle = ctypes.c_void_p(register(record))
    host_function = ctypes.create_string_buffer(16)  # any address that is nobody else's
    cuda["__cudaRegisterFunction"](handle, host_function, b"scale", b"scale", -1, None, None, None, None, None)
    begin_end(handle)

    number = ctypes.c_int()
    ok(cuda.cudaRuntimeGetVersion(ctypes.byref(number)))
    assert f"{number.value // 1000}.{number.value % 1000 // 10}" == version, number.value
    ok(cuda.cudaGetDeviceCount(ctypes.byref(number)))
    assert number.value >= 1
    n = 10000
    values = (ctypes.c_uint32 * n)(*range(n))
    memory, stream, events = ctypes.c_void_p(), ctypes.c_void_p(), [ctypes.c_void_p(), ctypes.c_void_p()]
    ok(cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(n * 4)))
    ok(cuda.cudaStreamCreate(ctypes.byref(stream)))
    for event in events:
        ok(cuda.cudaEventCreate(ctypes.byref(event)))
    ok(cuda.cudaMemcpy(memory, values, ctypes.c_size_t(n * 4), 1))
    ok(cuda.cudaEventRecord(events[0], stream))
    arguments = [memory, ctypes.c_uint32(3), ctypes.c_uint32(n)]
    pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(a) for a in arguments])
    ok(cuda.cudaLaunchKernel(host_function, Dim3((n + 255) // 256, 1, 1), Dim3(256, 1, 1), pointers, ctypes.c_size_t(0),
                             stream))
    ok(cuda.cudaEventRecord(events[1], stream))
    ok(cuda.cudaStreamSynchronize(stream))
    milliseconds = ctypes.c_float(-1)
    ok(cuda.cudaEventElapsedTime(ctypes.byref(milliseconds), *events))
    assert milliseconds.value >= 0
    ok(cuda.cudaMemcpy(values, memory, ctypes.c_size_t(n * 4), 2))
    assert list(values) == [3 * i for i in range(n)]
    ok(cuda.cudaMemset(memory, 0xff, ctypes.c_size_t(16)))
    ok(cuda.cudaMemcpyAsync(values, memory, ctypes.c_size_t(32), 2, stream))
    ok(cuda.cudaStreamSynchronize(stream))
    assert list(values[:5]) == [0xffffffff] * 4 + [12]
    pinned = ctypes.c_void_p()
    ok(cuda.cudaMallocHost(ctypes.byref(pinned), ctypes.c_size_t(4096)))
    ok(cuda.cudaFreeHost(pinned))
    too_much = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(too_much), ctypes.c_size_t(1 << 45)) == 2
    assert cuda.cudaGetLastError() == 2 and cuda.cudaGetLastError() == 0
    too_large = cuda.cudaLaunchKernel(host_function, Dim3(1, 1, 1), Dim3(4096, 1, 1), pointers, ctypes.c_size_t(0), stream)
    assert too_large in (1, 9) and cuda.cudaGetLastError() == too_large
    for event in events:
        ok(cuda.cudaEventDestroy(event))
    ok(cuda.cudaStreamDestroy(stream))
    ok(cuda.cudaFree(memory))
    ok(cuda.cudaDeviceSynchronize())


class WatchedTables:
    """The driver's tables with each function in them exchanged for one that notes its call and makes it."""
    CALL = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * 12)  # more arguments than any function in them has
    SIZE_END = 1 << 16  # what is less is a table's size in bytes; one begins with a function instead

    def __init__(self, names):
        self.called, self.before, self.kept = {}, [], []
        driver = ctypes.CDLL("libcuda.so.1")
        for name in names:
            table = ctypes.POINTER(ctypes.c_uint64)()
            if driver.cuGetExportTable(ctypes.byref(table), bytes.fromhex(name)) == 0:
                self.watch(name, table)

    def watch(self, name, table):
        self.called[name] = set()
        first = 1 if table[0] < self.SIZE_END else 0
        count = table[0] // 8 if first else next(k for k in range(self.SIZE_END) if not table[k])
        for slot in range(first, count):
            self.before.append((table, slot, table[slot]))
            watching = self.CALL(self.noting(name, slot, self.CALL(table[slot])))
            self.kept.append(watching)
            table[slot] = ctypes.cast(watching, ctypes.c_void_p).value

    def noting(self, name, slot, function):
        def note(*arguments):
            self.called[name].add(slot)
            return function(*arguments)
        return note

    def put_back(self):
        for table, slot, function in self.before:
            table[slot] = function


def run_watched(library, version, names):
    tables = WatchedTables(names)
    run_suite(library, version)
    tables.put_back()  # the runtime calls them until the process has ended, longer than Python runs
    for name, slots in tables.called.items():
        print(f"slots of {name}: {','.join(map(str, sorted(slots)))}")


def install(package, folder):
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target",
                    folder, package], check=True)


def tables_of(log):
    """The hidden tables that were asked for, in order, without repetition."""
    return list(dict.fromkeys(re.findall(r"hidden table ([0-9a-f]{32})", log)))


def run_once(library, version, *names):
    return subprocess.run([sys.executable, __file__, library, version, *names], env=dict(os.environ, TNR_LOG="debug"),
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)


def tables_and_slots(names, log):
    """As a line of expected/tables.txt has them: `6bd5fb6c[1,2] f8cff951`."""
    slots = dict(re.findall(r"^slots of ([0-9a-f]{32}): (.*)$", log, re.M))
    return " ".join(name[:8] + (f"[{slots[name]}]" if name in slots else "") for name in names)


def main():
    expected = dict(line.split(": ", 1) for line in TABLES.read_text().splitlines() if line and line[0] != "#")
    failed = []
    for version, package in VERSIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            install(package, folder)
            library, = glob.glob(folder + "/nvidia/**/libcudart.so.*", recursive=True)
            first = run_once(library, version)
            names = tables_of(first.stdout)
            watched = run_once(library, version, *names)
        tables = tables_and_slots(names, watched.stdout)
        good = first.returncode == 0 and watched.returncode == 0 and tables == expected.get(version)
        print(f"runtime {version}: {'passed' if good else 'FAILED'}", flush=True)
        if not good:
            failed.append(version)
            print(f"{first.stdout[-3000:]}\n{watched.stdout[-3000:]}\ntables: {tables}")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run_suite(*sys.argv[1:])
    elif len(sys.argv) > 3:
        run_watched(sys.argv[1], sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
