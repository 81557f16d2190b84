#!/usr/bin/env python3
"""Two users on one server: neither opens what the other's processes have lent each other, however it got the handle.

    pool_strangers_test.py BIN LIB    BIN: folder of tnr-gpu-server; LIB: folder of libcuda.so.1
"""
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from server_case import ServerCase  # noqa: E402

BIN, LIB = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
INVALID_VALUE = 1  # what NVIDIA's driver says to a handle of nobody's

# `lend` says what it lends, as JSON, and holds it until its input ends. `open HANDLES` answers with the codes it got.
PROGRAM = r"""
import ctypes, json, os, sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]
class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]
class Allocation(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("at", Location), ("win32", c_void_p),
                ("flags", ctypes.c_ubyte * 8)]
class Pool(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("at", Location), ("win32", c_void_p), ("most", c_size_t),
                ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54)]
BYTES, VALUE, PINNED, DESCRIPTOR, DEVICE = 2 << 20, 0x5a, 1, 1, Location(1, 0)
LAZY_PEER, INTERPROCESS = 1, 6  # with timing disabled
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} returned {code}")
def make(kind, name, *arguments):
    made = kind()
    call(name, byref(made), *arguments)
    return made
def shareable_pool():
    return make(c_void_p, "cuMemPoolCreate", byref(Pool(PINNED, DESCRIPTOR, DEVICE)))
call("cuInit", 0)
context = make(c_void_p, "cuDevicePrimaryCtxRetain", 0)
call("cuCtxSetCurrent", context)

def lend():
    memory = make(c_uint64, "cuMemAlloc_v2", c_size_t(BYTES))
    call("cuMemsetD8_v2", memory, VALUE, c_size_t(BYTES))
    event = make(c_void_p, "cuEventCreate", c_uint(INTERPROCESS))
    call("cuEventRecord", event, None)
    wanted = Allocation(PINNED, DESCRIPTOR, DEVICE)
    physical = make(c_uint64, "cuMemCreate", c_size_t(BYTES), byref(wanted), c_ulonglong(0))
    pool = shareable_pool()
    pooled = make(c_uint64, "cuMemAllocFromPoolAsync", c_size_t(BYTES), pool, None)
    call("cuCtxSynchronize")
    text = lambda handle: bytes(handle.bytes).hex()
    lent = {"memory": text(make(Handle, "cuIpcGetMemHandle", memory)),
            "event": text(make(Handle, "cuIpcGetEventHandle", event)),
            "allocation": make(c_int, "cuMemExportToShareableHandle", physical, DESCRIPTOR, c_ulonglong(0)).value,
            "pool": make(c_int, "cuMemPoolExportToShareableHandle", pool, DESCRIPTOR, c_ulonglong(0)).value,
            "pooled": text(make(Handle, "cuMemPoolExportPointer", pooled))}
    print(json.dumps(lent), flush=True)
    sys.stdin.read()

def open_all(given):
    handle = lambda text: Handle((ctypes.c_ubyte * 64)(*bytes.fromhex(text)))
    address, found, pool, codes = c_uint64(), c_void_p(), c_void_p(), {}
    def attempt(what, name, *arguments):
        codes[what] = getattr(cuda, name)(*arguments)
        return codes[what] == 0
    if attempt("memory", "cuIpcOpenMemHandle_v2", byref(address), handle(given["memory"]), c_uint(LAZY_PEER)):
        seen = (ctypes.c_ubyte * 4)()
        call("cuMemcpyDtoH_v2", seen, address, c_size_t(4))
        codes["seen"] = int(all(byte == VALUE for byte in seen))
    attempt("event", "cuIpcOpenEventHandle", byref(found), handle(given["event"]))
    attempt("allocation", "cuMemImportFromShareableHandle", byref(address), c_void_p(given["allocation"]), DESCRIPTOR)
    imports = "cuMemPoolImportFromShareableHandle"
    if not attempt("pool", imports, byref(pool), c_void_p(given["pool"]), DESCRIPTOR, c_ulonglong(0)):
        # Pointers are taken by way of an imported pool: one of its own.
        own = make(c_int, "cuMemPoolExportToShareableHandle", shareable_pool(), DESCRIPTOR, c_ulonglong(0))
        call(imports, byref(pool), c_void_p(own.value), DESCRIPTOR, c_ulonglong(0))
    attempt("pooled", "cuMemPoolImportPointer", byref(address), pool, byref(handle(given["pooled"])))
    call("cuCtxSynchronize")  # and nothing of it is left behind as an error
    print(json.dumps(codes))

lend() if sys.argv[1] == "lend" else open_all(json.loads(sys.argv[2]))
"""
KINDS = ("memory", "event", "allocation", "pool", "pooled")
REFUSED = {kind: INVALID_VALUE for kind in KINDS}
OPENED = dict.fromkeys(KINDS, 0) | {"seen": 1}


class Strangers(ServerCase):
    folders = BIN, LIB
    serves = ("--emulate", "h100:2", "--emulated-memory", "256", "--linger-ms", "0")

    def opens(self, user, lent):
        """The codes that a program of this user gets."""
        files = [lent["allocation"], lent["pool"]]
        program = self.program(user, PROGRAM, "open", json.dumps(lent), pass_fds=files)
        said, _ = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 0)
        return json.loads(said)

    def lends(self, user):
        """A program that lends, and what. Its files are ours, too, as if it had sent them over a socket."""
        program = self.program(user, PROGRAM, "lend")
        lent = json.loads(program.stdout.readline())
        for kind in ("allocation", "pool"):
            lent[kind] = os.open(f"/proc/{program.pid}/fd/{lent[kind]}", os.O_RDWR)
            self.addCleanup(os.close, lent[kind])
        return program, lent

    def test_handles_of_another_user(self):
        alice, bob = self.user("alice"), self.user("bob")
        program, lent = self.lends(alice)
        self.assertEqual(self.opens(bob, lent), REFUSED)
        self.assertEqual(self.opens(alice, lent), OPENED)
        _, of_bob = self.lends(bob)  # who has a claim of his own, with things in it
        self.assertEqual(self.opens(bob, lent), REFUSED)
        self.assertEqual(self.opens(alice, of_bob), REFUSED)
        self.assertEqual(self.opens(bob, of_bob), OPENED)
        self.assertEqual(self.opens(alice, lent), OPENED)
        program.stdin.close()
        program.wait()
        self.assertEqual(self.opens(alice, lent), REFUSED)  # with its process it is gone
        self.assertEqual(self.opens(bob, lent), REFUSED)
        self.assertEqual(self.opens(bob, of_bob), OPENED)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
