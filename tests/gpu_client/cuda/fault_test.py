#!/usr/bin/env python3
"""What a program sees when its worker, the server or another program is killed in the middle of a stream of launches.

    fault_test.py --server bin/tnr-gpu-server --client lib

Each case has a server of its own with one emulated GPU. The programs are this script again, as `fault_test.py program`:
they launch a kernel until a call fails and print its error. Nothing sleeps: every step waits for a line or an exit.
"""
import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import with_server  # noqa: E402

ENDS_WITHIN_S = 20  # "within seconds", on a machine that does other things as well
FREE_WITHIN_S = 2   # promised
PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry touch(.param .u64 where) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [where];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


def program():
    """Launches until something fails; 'running' once it has seen the GPU work, then 'failed CALL CODE'."""
    cuda = ctypes.CDLL("libcuda.so.1")
    pointer, context = ctypes.c_uint64(), ctypes.c_void_p()
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))

    def call(name, *values):
        code = getattr(cuda, name)(*values)
        if code != 0:
            print("failed", name, code, flush=True)
            os._exit(3)

    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(4))
    call("cuMemsetD32_v2", pointer, 0, ctypes.c_size_t(1))
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"touch")
    for count in range(1, 1 << 40):
        call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
        if count % 100 == 0:
            call("cuCtxSynchronize")
        if count == 100:
            print("running", flush=True)


class World:
    """A server, and programs on machines of their own."""

    def __init__(self, arguments):
        self.arguments = argparse.Namespace(server=arguments.server, client=arguments.client, driver=None,
                                            emulate="h100", memory_mib="256", gpu="h100")
        self.programs = []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.server = with_server.start_server(self.arguments, self.folder.name)
        self.address = with_server.address_of(self.server)
        assert self.address, "the server did not start"
        return self

    def __exit__(self, *_):
        for one in self.programs:
            one.kill()
            one.wait()
        with_server.stop(self.server)
        self.folder.cleanup()

    def start(self, machine):
        config = os.path.join(self.folder.name, machine + ".json")
        with open(config, "w") as file:
            json.dump({"pool": self.address, "gpu": "h100", "machine": {"name": machine}}, file)
        environment = with_server.client_environment(self.arguments, self.address, self.folder.name)
        environment["TNR_CONFIG"] = config
        one = subprocess.Popen([sys.executable, os.path.abspath(__file__), "program"], env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.programs.append(one)
        return one

    def running(self, machine):
        one = self.start(machine)
        line = one.stdout.readline()
        assert line == "running\n", f"{machine}: {line}"
        return one

    def workers(self):
        with open(f"/proc/{self.server.pid}/task/{self.server.pid}/children") as file:
            return [int(pid) for pid in file.read().split()]


def ends_with_error(one):
    output, errors = one.communicate(timeout=ENDS_WITHIN_S)
    assert one.returncode == 3, f"ended with {one.returncode}: {output} {errors}"
    assert output.startswith("failed cu"), output
    assert "tnr: " in errors, "nobody was told why"


def killed_worker(world):
    one = world.running("first")
    workers = world.workers()
    assert workers, "the server has no worker"
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    ends_with_error(one)
    world.running("second")  # the server is well, and so is its GPU


def killed_client(world):
    one = world.running("first")
    refused = world.start("second")
    line = refused.stdout.readline()
    assert line.startswith("failed "), f"one GPU, two machines: {line}"
    one.kill()
    killed = time.monotonic()
    while world.start("second").stdout.readline() != "running\n":
        assert time.monotonic() - killed < FREE_WITHIN_S, "the GPU is still taken"


def killed_server(world):
    one = world.running("first")
    world.server.kill()
    ends_with_error(one)


def main():
    if sys.argv[1:] == ["program"]:
        return program()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--client", required=True)
    arguments = parser.parse_args()
    for case in (killed_worker, killed_client, killed_server):
        begun = time.monotonic()
        with World(arguments) as world:
            case(world)
        print(f"{case.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
