#!/usr/bin/env python3
"""What the library says on stderr of what it cannot do: one line each, once, and nothing when it is told to be silent.

    notices_test.py --server bin/tnr-gpu-server --client lib

The programs are this script again, as `notices_test.py program WHAT`.
"""
import argparse
import ctypes
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import with_server  # noqa: E402

NOT_SUPPORTED, INVALID_PTX, NO_BINARY = 801, 218, 209
NOTHING_IN_IT = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0)  # a fat binary
DOES_NOT_LOAD = b""".version 8.0
.target sm_75
.address_size 64
.visible .entry odd() {
    .reg .b32 %r<3>;
    no.such.instruction %r1, %r2;
    ret;
}
"""


class Cuda:
    """The driver with a context, and nothing of the runtime."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        assert self.library.cuInit(0) == 0
        assert self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.library.cuCtxSetCurrent(context) == 0

    def call(self, name, *values):
        return getattr(self.library, name)(*values)

    def load(self, *options):
        module = ctypes.c_void_p()
        return self.call("cuModuleLoadDataEx", ctypes.byref(module), DOES_NOT_LOAD, *(options or (0, None, None)))


def unsupported():
    cuda, handle = Cuda(), ctypes.c_uint64()
    for _ in range(3):
        assert cuda.call("cuCheckpointProcessGetRestoreThreadId", 0, ctypes.byref(handle)) == NOT_SUPPORTED
        assert cuda.call("cuMemBatchDecompressAsync", None, 0, 0, None, None) == NOT_SUPPORTED
        assert cuda.call("cuMemBatchDecompressAsync_ptsz", None, 0, 0, None, None) == NOT_SUPPORTED


def code():
    cuda = Cuda()
    for _ in range(3):
        assert cuda.load() == INVALID_PTX


def code_with_log():
    """Who asks for the compiler's log reads it there."""
    cuda, text = Cuda(), ctypes.create_string_buffer(4096)
    options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
    values = (ctypes.c_void_p * 2)(ctypes.addressof(text), 4096)
    assert cuda.load(2, options, values) == INVALID_PTX
    assert b"no.such.instruction" in text.value, text.value


def code_in_driver_log():
    cuda, text, size = Cuda(), ctypes.create_string_buffer(4096), ctypes.c_size_t(4096)
    assert cuda.load() == INVALID_PTX
    assert cuda.call("cuLogsDumpToMemory", None, text, ctypes.byref(size), 0) == 0
    assert b"no.such.instruction" in text.value, text.value


def no_code():
    cuda, module = Cuda(), ctypes.c_void_p()
    for _ in range(2):
        assert cuda.call("cuModuleLoadData", ctypes.byref(module), NOTHING_IN_IT) == NO_BINARY


def ends():
    """The worker answers a goodbye by ending: that breaks no connection."""
    address = ctypes.c_uint64()
    assert Cuda().call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4096)) == 0


PROGRAMS = {"ends": ends, "unsupported": unsupported, "code": code, "code_in_driver_log": code_in_driver_log,
            "code_with_log": code_with_log, "no_code": no_code}

# program, TNR_LOG, and the words of each line that is expected on stderr
EXPECTED = [
    ("unsupported", None, [("cuCheckpointProcessGetRestoreThreadId", "tnr support"), ("cuMemBatchDecompressAsync", "tnr support")]),
    ("unsupported", "warning", [("cuCheckpointProcessGetRestoreThreadId",), ("cuMemBatchDecompressAsync",)]),
    ("unsupported", "error", []),
    ("unsupported", "none", []),
    ("unsupported", "off", []),
    ("code", None, []),
    ("code", "info", [("error 218",), ("no.such.instruction", "line 6"), ("error 218",), ("error 218",)]),
    ("code", "off", []),
    ("code_in_driver_log", "off", []),
    ("code_with_log", None, []),
    ("no_code", None, []),
    ("no_code", "info", [("no PTX", "compute capability 12.0")]),
    ("ends", "info", []),
]


def says(environment, what, level):
    environment = dict(environment)
    environment.pop("TNR_LOG", None)
    if level:
        environment["TNR_LOG"] = level
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "program", what], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stdout, [line for line in done.stderr.splitlines() if line]


def is_as(said, expected):
    status, printed, lines = said
    return (status == 0 and printed == "" and len(lines) == len(expected) and
            all(line.startswith("tnr: ") and all(word in line for word in words) for line, words in zip(lines, expected)))


def cuts_inside_a_letter(environment):
    """Long words of somebody else's are cut; of which letters, it is told two ways."""
    for text in ("é" * 600, "x" + "é" * 600):
        said = subprocess.run([sys.executable, os.path.abspath(__file__), "program", "ends"], stderr=subprocess.PIPE,
                              env=dict(environment, TNR_WAIT=text)).stderr
        line = next(line for line in said.splitlines() if b"TNR_WAIT" in line)
        assert 1000 < len(line) <= 1024, line
        if line.decode(errors="ignore").encode() != line:
            return True
    return False


def main():
    if sys.argv[1:2] == ["program"]:
        return PROGRAMS[sys.argv[2]]()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--client", required=True)
    arguments = parser.parse_args()
    arguments.emulate, arguments.memory_mib, arguments.driver, arguments.gpu = "h100", "512", None, "h100"
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True) as folder:
        server = with_server.start_server(arguments, folder)
        try:
            address = with_server.address_of(server)
            assert address, "the server did not start"
            environment = with_server.client_environment(arguments, address, folder)
            for what, level, expected in EXPECTED:
                said = says(environment, what, level)
                if not is_as(said, expected):
                    print(f"{what} with TNR_LOG={level}: expected {expected}, got {said}")
                    wrong += 1
            if cuts_inside_a_letter(environment):
                print("half a letter at the end of a line")
                wrong += 1
        finally:
            with_server.stop(server)
    print(f"{len(EXPECTED) - wrong} of {len(EXPECTED)} as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
