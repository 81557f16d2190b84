#!/usr/bin/env python3
"""Kernels that harm themselves and images that are none, over client and server: each ends with the driver's code, or goes on
until its program is killed, and the next program computes.

    hostile_kernels_test.py BIN LIB    BIN: folder of tnr-gpu-server; LIB: folder of libcuda.so.1
"""
import argparse
import os
import select
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import with_server  # noqa: E402

BIN, LIB = sys.argv[1:3]
SOON_S = 120  # for a program's whole life, on a machine that is busy

# Loads the image that is its input, launches `k` with the address of 4 KiB, and prints the code of each step. With a number as
# its third argument it does so with as many changed copies of the image, one after the other, and prints each load's code.
PROGRAM = """
import ctypes, random, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, module, kernel = (ctypes.c_void_p() for _ in range(4))
blocks, shared, copies = (int(word) for word in sys.argv[1:4])
image = sys.stdin.buffer.read()
def call(name, *values):
    code = getattr(cuda, name)(*values)
    if code:
        sys.exit(f"{name} returned {code}")
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
call("cuMemsetD32_v2", memory, ctypes.c_uint(0), ctypes.c_size_t(1024))
def load(text):
    return cuda.cuModuleLoadData(ctypes.byref(module), ctypes.create_string_buffer(text, len(text) + 65536))
def launch():
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"k")
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    return cuda.cuLaunchKernel(kernel, blocks, 1, 1, 32, 1, 1, shared, None, parameters, None)
dice = random.Random(7)
for _ in range(copies):
    changed = bytearray(image)
    for _ in range(dice.choice((1, 2, 8))):
        way, at = dice.randrange(4), dice.randrange(len(changed))
        if way == 0:
            changed[at] ^= 1 << dice.randrange(8)
        elif way == 1:
            del changed[at:at + dice.randrange(1, 40)]
        elif way == 2:
            changed[at:at] = changed[dice.randrange(len(changed)):][:dice.randrange(1, 40)]
        else:
            changed[at:at + 4] = dice.choice((b"\\xff" * 4, b"\\0" * 4, b"9999", dice.randbytes(4)))
        changed = changed or bytearray(b"x")
    code = load(bytes(changed))
    print("changed", code, flush=True)
    if code == 0:
        call("cuModuleUnload", module)
code = load(image)
print("load", code, flush=True)
if code == 0:
    print("launch", launch(), flush=True)
    print("synchronize", cuda.cuCtxSynchronize(), flush=True)
    word = ctypes.c_uint32()
    print("word", cuda.cuMemcpyDtoH_v2(ctypes.byref(word), memory, ctypes.c_size_t(4)) or word.value, flush=True)
"""


def module(body, before="", registers=".reg .b32 %a, %b; .reg .b64 %p, %q; .reg .pred %c;"):
    return f""".version 8.0
.target sm_80
.address_size 64
{before}
.visible .entry k(.param .u64 to) {{
    {registers}
    ld.param.u64 %p, [to];
    {body}
    ret;
}}
"""


def fat_binary(text):
    """PTX as nvcc packs it, not compressed."""
    code = text.encode() + b"\0" * (8 - len(text) % 8)
    kind_ptx, entry_bytes, x86_64_linux = 1, 64, 0x11
    entry = struct.pack("<HHIIIIIHHIIIQQQ", kind_ptx, 0x101, entry_bytes, len(code), 0, 0, 0, 0, 0, 80, 0, 0, x86_64_linux, 0, 0)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(code)) + entry + code


GOOD = module("mov.u32 %a, 1; red.global.add.u32 [%p], %a;")
RECURSIVE = """.func (.param .b32 r) down(.param .b32 n) { .reg .b32 %n; ld.param.b32 %n, [n]; add.u32 %n, %n, 1;
{ .param .b32 m; .param .b32 s; st.param.b32 [m], %n; call (s), down, (m); ld.param.b32 %n, [s]; }
st.param.b32 [r], %n; ret; }"""
CALL_DOWN = """{ .param .b32 m; .param .b32 s; st.param.b32 [m], 0; call (s), down, (m); ld.param.b32 %a, [s]; }
st.global.u32 [%p], %a;"""
INVALID_VALUE, ILLEGAL_ADDRESS, MISALIGNED, LAUNCH_FAILED = 1, 700, 716, 719
FAULT_CODES = (700, 702, 715, 716, 717, 718, 719)
REFUSALS = {200, 209, 218, 222}  # no image, not for this GPU, no PTX, PTX of a later version

# Of each what the kernel does, and the code that its end has.
FAULTS = {
    "a trap": ("trap;", LAUNCH_FAILED),
    "no memory there": ("st.global.u32 [%p+1099511627776], 1;", ILLEGAL_ADDRESS),
    "null": ("mov.u64 %q, 0; ld.global.u32 %a, [%q]; st.global.u32 [%p], %a;", ILLEGAL_ADDRESS),
    "the last address": ("mov.u64 %q, -8; ld.u64 %q, [%q]; st.global.u64 [%p], %q;", ILLEGAL_ADDRESS),
    "a misaligned word": ("ld.global.u32 %a, [%p+2]; st.global.u32 [%p], %a;", MISALIGNED),
    "a misaligned atomic": ("atom.global.add.u64 %q, [%p+4], 1;", MISALIGNED),
    "beyond shared memory": ("mov.u32 %a, 1073741820; st.shared.u32 [%a], 1;", ILLEGAL_ADDRESS),
    "beyond local memory": ("mov.u32 %a, 1073741820; st.local.u32 [%a], 1;", ILLEGAL_ADDRESS),
    "a call to data": ("{ pt: .callprototype _ (); call %p, pt; }", None),
    "recursion without end": (CALL_DOWN, ILLEGAL_ADDRESS),
    "a barrier that half a block comes to": ("mov.u32 %a, %laneid; setp.lt.u32 %c, %a, 16; @%c bra past;\n"
                                             "bar.sync 0, 64;\npast:", None),
    "a barrier that does not exist": ("mov.u32 %a, 77; bar.sync %a;", None),
    "a jump table's end": ("mov.u32 %a, 9; list: .branchtargets one, one; brx.idx %a, list;\none:", None),
}
ENDLESS = {
    "an endless loop": "again: bra again;",
    "a loop that waits for a flag": "again: ld.volatile.global.u32 %a, [%p]; setp.eq.u32 %c, %a, 0; @%c bra again;",
    "half of a warp waits for the other": "mov.u32 %a, %laneid; setp.lt.u32 %c, %a, 16; @%c bra sync;\n"
                                          "again: bra again;\nsync: bar.warp.sync -1;",
    "a sleeper": "again: nanosleep.u32 1000000; bra again;",
}


class HostileKernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        cls.addClassCleanup(folder.cleanup)
        arguments = argparse.Namespace(server=os.path.join(BIN, "tnr-gpu-server"), client=LIB, emulate="h100:1",
                                       memory_mib="256", driver=None, gpu="h100")
        cls.server = with_server.start_server(arguments, folder.name)
        cls.addClassCleanup(cls.server.stdout.close)
        cls.addClassCleanup(with_server.stop, cls.server)
        cls.environment = dict(
            with_server.client_environment(arguments, with_server.address_of(cls.server), folder.name), TNR_LOG="off")

    def program(self, image, blocks=1, shared=0, copies=0):
        started = subprocess.Popen([sys.executable, "-c", PROGRAM, str(blocks), str(shared), str(copies)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment,
                                   stderr=subprocess.DEVNULL if copies else None)  # it hears why, each time
        started.stdin.write(image if isinstance(image, bytes) else image.encode())
        started.stdin.close()
        for release in (started.wait, started.stdout.close, started.kill):
            self.addCleanup(release)
        return started

    def outcome(self, *arguments, **options):
        """The codes of each step, by its name; of loads of changed images all that there were."""
        program = self.program(*arguments, **options)
        lines = [line.split() for line in program.stdout.read().decode().splitlines()]
        self.assertEqual(program.wait(SOON_S), 0, lines)
        codes = {name: int(code) for name, code in lines}
        codes["changed"] = {int(code) for name, code in lines if name == "changed"}
        return codes

    def serves_the_next(self):
        self.assertEqual(self.outcome(GOOD)["word"], 32)
        self.assertIsNone(self.server.poll(), "the server has died")

    def test_a_fault_has_its_code(self):
        for name, (body, code) in FAULTS.items():
            with self.subTest(name):
                got = self.outcome(module(body, RECURSIVE))
                self.assertEqual((got["load"], got["launch"]), (0, 0))
                self.assertIn(got["synchronize"], (code,) if code else FAULT_CODES)
        self.serves_the_next()

    def test_what_never_ends_is_killed_with_its_program(self):
        for name, body in ENDLESS.items():
            with self.subTest(name):
                program = self.program(module(body))
                self.assertEqual(program.stdout.readline(), b"load 0\n")
                self.assertEqual(program.stdout.readline(), b"launch 0\n")
                self.assertFalse(select.select([program.stdout], [], [], 0.3)[0], "it has ended")
                program.kill()
                self.serves_the_next()

    def test_many_blocks_without_an_end_are_killed_too(self):
        program = self.program(module("again: bra again;"), blocks=2**31 - 1)
        self.assertEqual(program.stdout.readline(), b"load 0\n")
        program.kill()
        self.serves_the_next()

    def test_more_memory_than_a_block_or_thread_can_have_is_refused(self):
        self.assertEqual(self.outcome(GOOD, shared=1 << 30)["launch"], INVALID_VALUE)
        for declaration in (".shared .align 4 .b8 much[1073741824];", ".local .align 4 .b8 much[1073741824];"):
            with self.subTest(declaration):
                got = self.outcome(module(declaration + " st.global.u32 [%p], 1;"))
                self.assertNotEqual((got["load"], got.get("launch"), got.get("synchronize")), (0, 0, 0))
        self.serves_the_next()

    def test_changed_text_is_loaded_or_refused(self):
        text = module(FAULTS["recursion without end"][0] + FAULTS["a jump table's end"][0], RECURSIVE + """
.global .align 8 .u64 table[4] = {1, 2, 3, k};
.shared .align 8 .b64 barrier;""")
        got = self.outcome(text, copies=400)
        self.assertLessEqual(got["changed"], {0} | REFUSALS)
        self.assertIn(0, got["changed"])
        self.assertTrue(got["changed"] & REFUSALS)
        self.serves_the_next()


    def test_a_changed_fat_binary_is_loaded_or_refused(self):
        got = self.outcome(fat_binary(GOOD), copies=400)
        self.assertLessEqual(got["changed"], {0} | REFUSALS)
        self.assertIn(0, got["changed"])
        self.assertTrue(got["changed"] & REFUSALS)
        self.assertEqual(got["word"], 32)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
