#!/usr/bin/env python3
"""What a program's code costs on its way: the whole of it in the first run, next to nothing in the second.

    images_test.py --server bin/tnr-gpu-server --client lib

Each case has a server of its own with one emulated GPU. The programs are this script again, as `images_test.py program
HOW BYTES`: they load PTX of that many bytes, run its kernel and print what it has computed. What the client library counts
(TNR_STATS) is compared. Nothing sleeps.
"""
import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import with_server  # noqa: E402

LARGE, SMALL = 700_000, 20_000
FEW = 20_000  # bytes: what a program sends beside its code
KEPT_WITHIN_S = 20
PTX = """.version 7.0
.target sm_75
.address_size 64
.visible .entry answer(.param .u64 where) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [where];
    mov.u32 %r1, NUMBER;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def code(size, number=42):
    text = PTX.replace("NUMBER", str(number))
    line = "// " + "what a large library carries " * 3 + "\n"
    while len(text) + len(line) < size:
        text += line
    return text.encode() + b"\0"


def program(how, size):
    """`how`: module, library, preserved (a library whose image stays), forgetful (one whose image does not)."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    loaded, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
    found = ctypes.c_uint32()

    def call(name, *values):
        result = getattr(cuda, name)(*values)
        if result != 0:
            sys.exit(f"{name} failed: {result}")

    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    image = ctypes.create_string_buffer(code(size))
    if how == "module":
        call("cuModuleLoadData", ctypes.byref(loaded), image)
        call("cuModuleGetFunction", ctypes.byref(kernel), loaded, b"answer")
    else:
        option, value = (ctypes.c_int * 1)(1), (ctypes.c_void_p * 1)(1)  # CU_LIBRARY_BINARY_IS_PRESERVED
        preserved = 1 if how == "preserved" else 0
        call("cuLibraryLoadData", ctypes.byref(loaded), image, None, None, 0, option, value, preserved)
        if how == "forgetful":
            ctypes.memset(image, ord("!"), len(image))
        call("cuLibraryGetKernel", ctypes.byref(kernel), loaded, b"answer")
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(4))
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    call("cuMemcpyDtoH_v2", ctypes.byref(found), pointer, ctypes.c_size_t(4))
    print(found.value)


class World:
    def __init__(self, arguments, *more):
        self.more = more
        self.arguments = argparse.Namespace(server=arguments.server, client=arguments.client, driver=None,
                                            emulate="h100", memory_mib="64", gpu="h100")

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.server = with_server.start_server(self.arguments, self.folder.name, more=self.more)
        self.address = with_server.address_of(self.server)
        assert self.address, "the server did not start"
        return self

    def __exit__(self, *failed):
        with_server.stop(self.server)
        if any(failed):
            print(open(with_server.log_of(self.folder.name)).read(), file=sys.stderr)
        self.folder.cleanup()

    def run(self, how="module", size=LARGE, machine="trainer"):
        """Bytes sent, round trips."""
        config = os.path.join(self.folder.name, machine + ".json")
        with open(config, "w") as file:
            json.dump({"pool": self.address, "gpu": "h100", "machine": {"name": machine}}, file)
        environment = with_server.client_environment(self.arguments, self.address, self.folder.name)
        environment.update(TNR_CONFIG=config, TNR_STATS="1")
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "program", how, str(size)], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "42\n"), f"{how}: {done}"
        sent = re.search(r"(\d+) bytes sent", done.stderr)
        trips = re.search(r"(\d+) round trips", done.stderr)
        return int(sent[1]), int(trips[1])

    def images(self):
        found = []
        for folder, _, files in os.walk(os.path.join(self.folder.name, "server", "images")):
            found += [os.path.join(folder, name) for name in files]
        return found

    def kept(self, count):
        """Waits until so many images are on the disk, and none is being written."""
        until = time.monotonic() + KEPT_WITHIN_S
        while len(self.images()) != count or any(name.endswith(".new") for name in self.images()):
            assert time.monotonic() < until, f"kept: {self.images()}"
            os.sched_yield()
        return self.images()


def second_run(arguments):
    with World(arguments) as world:
        sent, first_trips = world.run()
        assert sent > LARGE, f"the first run sent {sent} bytes"
        for how in ("module", "library", "preserved", "forgetful"):  # at once: the image may still be in memory
            sent, trips = world.run(how)
            assert sent < FEW, f"{how}: {sent} bytes"
            assert trips == first_trips - 1, f"{how}: {trips} round trips, {first_trips} in the first run"
        world.kept(1)
        sent, _ = world.run()
        assert sent < FEW, f"from the disk: {sent} bytes"
        sent, _ = world.run(machine="another")
        assert sent > LARGE, "another tenant's image was used"


def first_run_of_libraries(arguments):
    with World(arguments) as world:
        for how in ("preserved", "forgetful", "library"):
            sent, _ = world.run(how, machine=how)
            assert sent > LARGE, f"{how}: {sent} bytes"


def damaged(arguments):
    with World(arguments) as world:
        world.run()
        path, = world.kept(1)
        whole = open(path, "rb").read()
        at = whole.index(b"42;")
        with open(path, "r+b") as file:  # code that a driver would gladly run
            file.seek(at)
            file.write(b"13;")
        sent, _ = world.run()
        assert sent > LARGE, f"code that nobody offered was loaded: {sent} bytes"
        world.kept(1)
        sent, _ = world.run()
        assert sent < FEW, f"the image was not replaced: {sent} bytes"
        world.kept(1)
        assert open(path, "rb").read() == whole


def small(arguments):
    with World(arguments) as world:
        first = world.run(size=SMALL)
        assert first[0] > SMALL
        sent, trips = world.run(size=SMALL)  # in how many batches is a matter of timing
        assert sent > SMALL and trips == first[1], "a small program pays for the cache"
        large_trips = world.run()[1]
        assert large_trips == first[1] + 1, "the first time a large image costs one round trip more"
        world.kept(1)


def no_cache(arguments):
    with World(arguments, "--image-cache-mib", "0") as world:
        for _ in range(2):
            sent, _ = world.run()
            assert sent > LARGE, f"{sent} bytes"
        assert world.images() == []


def main():
    if sys.argv[1:2] == ["program"]:
        return program(sys.argv[2], int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--client", required=True)
    arguments = parser.parse_args()
    for case in (second_run, first_run_of_libraries, damaged, small, no_cache):
        begun = time.monotonic()
        case(arguments)
        print(f"{case.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
