#!/usr/bin/env python3
"""The two programs of secrets_test.py, on the driver API: `plant` leaves a secret in all kinds of GPU memory, `look` takes all
the memory that it can have and looks for it.

    programs.py plant|look      the secret is a line of hex digits on stdin; what was done, a line on stdout
    programs.py plant ends      and then ends as programs do; else it waits to be killed
"""
import array
import ctypes
import socket
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
KIB, MIB = 1 << 10, 1 << 20
DEVICE, PINNED, DESCRIPTOR, READ_WRITE, UNSIGNED_INT8 = 1, 1, 1, 3, 1  # of cuda.h's enumerations

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .b8 kept[65536];
.visible .entry copy(.param .u64 to, .param .u64 from) {
 .reg .u64 %to, %from; .reg .u32 %i; .reg .u64 %at; .reg .u16 %byte;
 ld.param.u64 %to, [to]; ld.param.u64 %from, [from];
 mov.u32 %i, %tid.x; cvt.u64.u32 %at, %i;
 add.u64 %to, %to, %at; add.u64 %from, %from, %at;
 ld.u8 %byte, [%from]; st.u8 [%to], %byte;
 ret;
}
"""


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("windows", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Array(ctypes.Structure):  # CUDA_ARRAY_DESCRIPTOR
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint)]


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} returned {code}")


def made(name, *arguments, type=ctypes.c_uint64):
    """What a function gives that returns one thing through its first argument."""
    result = type()
    call(name, ctypes.byref(result), *arguments)
    return result


def number(value):
    return ctypes.c_size_t(value)


def begin():
    call("cuInit", 0)
    call("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", 0, type=ctypes.c_void_p))


class Planter:
    def __init__(self, secret):
        self.secret, self.places, self.kept = secret, 0, []

    def fill(self, address, bytes_):
        """At many places: all of it, as long as one copy can be."""
        text = self.secret * (bytes_ // len(self.secret))
        call("cuMemcpyHtoD_v2", address, text, number(len(text)))
        self.places += 1

    def plain(self):
        for bytes_ in (256, 4 * KIB, 100_000, MIB, 5 * MIB, 16 * MIB):
            self.fill(made("cuMemAlloc_v2", number(bytes_)), bytes_)
        freed = made("cuMemAlloc_v2", number(3 * MIB))  # given back before the end
        self.fill(freed, 3 * MIB)
        call("cuMemFree_v2", freed)

    def from_pools(self):
        pool = made("cuDeviceGetDefaultMemPool", 0, type=ctypes.c_void_p)
        self.fill(made("cuMemAllocAsync", number(2 * MIB), None), 2 * MIB)
        self.fill(made("cuMemAllocFromPoolAsync", number(300_000), pool, None), 300_000)
        own = Properties(PINNED, 0, Location(DEVICE, 0))
        room = (ctypes.c_ubyte * 256)()  # CUmemPoolProps begins as CUmemAllocationProp does, without the windows' part
        ctypes.memmove(room, ctypes.byref(own), 16)
        mine = made("cuMemPoolCreate", room, type=ctypes.c_void_p)
        self.fill(made("cuMemAllocFromPoolAsync", number(MIB), mine, None), MIB)

    def managed(self, module):
        """Written by the host, and read by a kernel, so that it goes to the GPU; which writes it once more."""
        there = made("cuMemAllocManaged", number(MIB), ctypes.c_uint(1))
        ctypes.memmove(there.value, self.secret * (MIB // len(self.secret)), MIB)
        plain = made("cuMemAlloc_v2", number(64 * KIB))
        values = [ctypes.c_uint64(plain.value), ctypes.c_uint64(there.value)]
        arguments = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.pointer(each), ctypes.c_void_p) for each in values))
        copy = made("cuModuleGetFunction", module, b"copy", type=ctypes.c_void_p)
        call("cuLaunchKernel", copy, 1, 1, 1, 1024, 1, 1, 0, None, arguments, None)
        call("cuCtxSynchronize")
        found = ctypes.create_string_buffer(1024)
        call("cuMemcpyDtoH_v2", found, plain, number(1024))
        assert found.raw == self.secret * (1024 // len(self.secret)), "the kernel did not copy"
        self.places += 2

    def arrays(self):
        made_of = Array(64 * KIB, 0, UNSIGNED_INT8, 1)
        array_ = made("cuArrayCreate_v2", ctypes.byref(made_of), type=ctypes.c_void_p)
        line = self.secret * (made_of.width // len(self.secret))
        call("cuMemcpyHtoA_v2", array_, number(0), line, number(len(line)))
        self.places += 1

    def shared(self):
        """As descriptors, one of which is on its way to nobody; and opened by another process of ours: cuIpc."""
        properties, bytes_ = Properties(PINNED, DESCRIPTOR, Location(DEVICE, 0)), 2 * MIB
        memory = made("cuMemCreate", number(bytes_), ctypes.byref(properties), ctypes.c_ulonglong(0))
        there = made("cuMemAddressReserve", number(bytes_), number(0), ctypes.c_uint64(0), ctypes.c_ulonglong(0))
        call("cuMemMap", there, number(bytes_), number(0), memory, ctypes.c_ulonglong(0))
        call("cuMemSetAccess", there, number(bytes_), ctypes.byref(Access(Location(DEVICE, 0), READ_WRITE)), number(1))
        self.fill(there, bytes_)
        descriptor = made("cuMemExportToShareableHandle", memory, DESCRIPTOR, ctypes.c_ulonglong(0), type=ctypes.c_int)
        ends = socket.socketpair()
        ends[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor.value]))])
        opened = made("cuMemAlloc_v2", number(MIB))
        self.fill(opened, MIB)
        made("cuIpcGetMemHandle", opened, type=ctypes.c_ubyte * 64)
        self.kept += ends

    def module(self):
        module = made("cuModuleLoadData", PTX, type=ctypes.c_void_p)
        address, bytes_ = ctypes.c_uint64(), ctypes.c_size_t()
        call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(bytes_), module, b"kept")
        self.fill(address, bytes_.value)
        return module


def plant(secret):
    planter = Planter(secret)
    module = planter.module()
    planter.plain()
    planter.from_pools()
    planter.managed(module)
    planter.arrays()
    planter.shared()
    call("cuCtxSynchronize")
    print(planter.places, flush=True)
    if sys.argv[2:] != ["ends"]:
        time.sleep(600)


def look(secret):
    bytes_, found, size = 0, 0, 64 * MIB
    piece = ctypes.create_string_buffer(64 * MIB)
    while size >= 2 * MIB:
        address = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(address), number(size)):
            size //= 2
            continue
        call("cuMemcpyDtoH_v2", piece, address, number(size))
        found += piece.raw[:size].count(secret)
        bytes_ += size
    print(bytes_, found, flush=True)
    sys.stdin.readline()  # holds it until it is told to end


if __name__ == "__main__":
    words = bytes.fromhex(sys.stdin.readline())
    begin()
    {"plant": plant, "look": look}[sys.argv[1]](words)
