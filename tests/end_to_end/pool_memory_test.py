#!/usr/bin/env python3
"""A user whom the operator lets use a part of each GPU's memory sees a GPU that has no more, and gets no more by any path.

    pool_memory_test.py BIN LIB    BIN: folder of tnr-gpu-server and nvidia-smi; LIB: folder of libcuda.so.1
"""
import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from server_case import ServerCase  # noqa: E402

BIN, LIB = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MIB = 1 << 20
GPU_MIB, LIMIT_MIB = 512, 128

# Takes memory in the way that it is told until there is none, and says what it saw and got, in bytes.
PROGRAM = r"""
import ctypes, json, sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_ushort, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
STEP, OUT_OF_MEMORY = 4 << 20, 2
class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]
class Allocation(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("at", Location), ("win32", c_void_p),
                ("flags", ctypes.c_ubyte * 8)]
class Array(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]
class Array3D(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
                ("flags", c_uint)]
def call(name, *arguments):
    if code := getattr(cuda, name)(*arguments):
        sys.exit(f"{name} returned {code}")
context, total, free, all_of_it = c_void_p(), c_size_t(), c_size_t(), c_size_t()
call("cuInit", 0)
call("cuDeviceTotalMem_v2", byref(total), 0)
call("cuDevicePrimaryCtxRetain", byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemGetInfo_v2", byref(free), byref(all_of_it))
seen = {"total": total.value, "info": all_of_it.value, "free": free.value}
FLOAT = 0x20
MODULE = f'''.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .b8 held[{STEP}];
'''.encode()

def allocate():
    return cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(STEP))
def pooled():
    return cuda.cuMemAllocAsync(byref(c_uint64()), c_size_t(STEP), None) or cuda.cuStreamSynchronize(None)
def managed():
    return cuda.cuMemAllocManaged(byref(c_uint64()), c_size_t(STEP), c_uint(1))
def created():
    return cuda.cuMemCreate(byref(c_uint64()), c_size_t(STEP), byref(Allocation(1, 0, Location(1, 0))), c_ulonglong(0))
def array():
    return cuda.cuArrayCreate_v2(byref(c_void_p()), byref(Array(1024, STEP // 4096, FLOAT, 1)))
def mipmapped():
    return cuda.cuMipmappedArrayCreate(byref(c_void_p()), byref(Array3D(1024, STEP // 4096, 0, FLOAT, 1, 0)), c_uint(1))
def module():
    return cuda.cuModuleLoadData(byref(c_void_p()), MODULE)
def pitched():
    return cuda.cuMemAllocPitch_v2(byref(c_uint64()), byref(c_size_t()), c_size_t(4096), c_size_t(STEP // 4096), 4)
def heap():
    heap.bytes += STEP
    return cuda.cuCtxSetLimit(2, c_size_t(heap.bytes))  # what kernels' malloc may have
heap.bytes = 8 << 20

got, code = 0, 0
while got <= 1 << 30 and not (code := globals()[sys.argv[1]]()):
    got += STEP
call("cuMemGetInfo_v2", byref(free), None)
print(json.dumps(dict(seen, got=got, left=free.value, code=code)), flush=True)
sys.stdin.read()
"""
PATHS = ("allocate", "pooled", "managed", "created", "array", "mipmapped", "module", "pitched", "heap")


class DeviceMemory(ServerCase):
    folders = BIN, LIB
    serves = ("--emulate", "h100", "--emulated-memory", str(GPU_MIB))

    def setUp(self):
        super().setUp()
        self.alice, self.bob = self.user("alice", wait_s=60), self.user("bob", wait_s=60)
        self.limit(f"{LIMIT_MIB}M")

    def limit(self, bytes_text):
        self.operator("user", "limit", "alice", "--device-memory", bytes_text)

    def start(self, user, path):
        program = self.program(user, PROGRAM, path)
        said = program.stdout.readline()
        self.assertTrue(said, "the program has failed")
        return program, json.loads(said)

    def run_alone(self, user, path):
        program, seen = self.start(user, path)
        program.stdin.close()
        self.assertEqual(program.wait(60), 0)
        return seen

    def memory_in_smi(self, user):
        shown = subprocess.run([BIN / "nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"],
                               env=user, check=True, stdout=subprocess.PIPE, text=True).stdout
        return [int(number) for number in shown.split(",")]

    def test_no_path_leads_beyond_the_limit(self):
        for path in PATHS:
            with self.subTest(path):
                seen = self.run_alone(self.alice, path)
                self.assertEqual((seen["total"], seen["info"]), (LIMIT_MIB * MIB, LIMIT_MIB * MIB))
                self.assertLessEqual(seen["free"], LIMIT_MIB * MIB)
                self.assertNotEqual(seen["code"], 0)
                self.assertLessEqual(seen["got"], LIMIT_MIB * MIB)
                self.assertGreaterEqual(seen["got"], LIMIT_MIB * MIB * 3 // 4)
                self.assertLess(seen["left"], LIMIT_MIB * MIB // 4)

    def test_a_machines_programs_share_what_it_may_use(self):
        _, first = self.start(self.alice, "allocate")
        _, second = self.start(self.alice, "created")
        self.assertLessEqual(first["got"] + second["got"], LIMIT_MIB * MIB)
        total, used = self.memory_in_smi(self.alice)
        self.assertEqual(total, LIMIT_MIB)
        self.assertLessEqual(used, LIMIT_MIB)
        self.assertGreaterEqual(used, LIMIT_MIB * 3 // 4)

    def test_the_next_user_has_all_of_it_and_a_change_holds_from_the_next_claim(self):
        self.run_alone(self.alice, "allocate")
        self.assertGreater(self.run_alone(self.bob, "allocate")["got"], GPU_MIB * MIB * 3 // 4)
        running, seen = self.start(self.alice, "allocate")
        self.limit(f"{2 * LIMIT_MIB}M")
        self.assertEqual(self.memory_in_smi(self.alice)[0], LIMIT_MIB)
        running.stdin.close()
        running.wait()  # her GPU is kept for her now
        self.assertEqual(seen["total"], LIMIT_MIB * MIB)
        seen = self.run_alone(self.alice, "allocate")
        self.assertEqual(seen["total"], 2 * LIMIT_MIB * MIB)
        self.assertGreater(seen["got"], LIMIT_MIB * MIB)
        self.assertLessEqual(seen["got"], 2 * LIMIT_MIB * MIB)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
