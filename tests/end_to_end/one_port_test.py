#!/usr/bin/env python3
"""A server with one port for everything (`serve --one-port`), in a network of its own where nothing else listens: programs run,
also while strangers hold as many connections as they like, and hear at once that their worker has ended.

    one_port_test.py BIN LIB    BIN: folder of tnr-gpu-server; LIB: folder of libcuda.so.1
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402
import with_server  # noqa: E402

BIN, LIB = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
IN_OWN_NETWORK = "TNR_TEST_IN_OWN_NETWORK"
STRANGERS = 1000
LOADED_S = 60  # what takes a moment, on a machine that is busy

# Copies through the lanes and back, on all GPUs it has.
PROGRAM = """
import ctypes, os, sys, time
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} returned {code}")
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
size, buffers = 8 << 20, []
data = os.urandom(1 << 20) * 8
back = ctypes.create_string_buffer(size)
for device in range(count.value):
    context, at = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
    buffers.append((context, at))
print(count.value, "GPUs", flush=True)
end = time.monotonic() + float(sys.argv[1])
while True:
    for context, at in buffers:
        call("cuCtxSetCurrent", context)
        call("cuMemcpyHtoD_v2", at, data, ctypes.c_size_t(size))
        call("cuMemcpyDtoH_v2", back, at, ctypes.c_size_t(size))
        if back.raw != data:
            sys.exit("other data came back")
    if time.monotonic() > end:
        break
    time.sleep(0.05)
print("done", flush=True)
"""


def listening_ports():
    """All there are in this network."""
    found = set()
    for file in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in pathlib.Path(file).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                found.add(int(words[1].rsplit(":", 1)[1], 16))
    return found


def children_of(pid):
    return [int(child) for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]


class OnePort(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.arguments = argparse.Namespace(server=str(BIN / "tnr-gpu-server"), client=str(LIB), driver=None,
                                            emulate="h100:2,a100", memory_mib="256", gpu="h100")
        self.server = with_server.start_server(self.arguments, self.folder, encrypted=True,
                                               more=["--one-port", "--lanes", "2"])
        self.addCleanup(with_server.stop, self.server)
        self.addCleanup(self.server.stdout.close)
        self.address = with_server.address_of(self.server)
        self.assertIsNotNone(self.address, self.log())
        self.port = int(self.address.rsplit(":", 1)[1])
        self.config = json.loads(pathlib.Path(with_server.enrolled(self.arguments, self.folder, self.address)).read_text())

    def log(self):
        return pathlib.Path(with_server.log_of(self.folder)).read_text()

    def start(self, seconds, gpu="h100", count=1):
        path = f"{self.folder}/{gpu}-{count}.json"
        machine = dict(self.config["machine"], name=f"for-{gpu}")
        pathlib.Path(path).write_text(json.dumps(dict(self.config, gpu=gpu, count=count, machine=machine)))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(seconds)], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE,
                                   env=dict(kept, TNR_CONFIG=path, LD_LIBRARY_PATH=str(LIB), HOME=self.folder, TNR_LANES="2"))
        for cleanup in (program.stdout.close, program.stderr.close, program.wait, program.kill):
            self.addCleanup(cleanup)
        return program

    def ends_well(self, program):
        out, errors = program.communicate(timeout=LOADED_S)
        self.assertEqual(program.returncode, 0, errors + self.log()[-5000:])
        self.assertIn("done", out)
        return out

    def test_programs_need_one_port(self):
        both, one = self.start(4, count=2), self.start(4, "a100")
        self.assertEqual(both.stdout.readline(), "2 GPUs\n", self.log())
        self.assertEqual(one.stdout.readline(), "1 GPUs\n", self.log())
        second = self.start(0, "a100")  # of the same claim
        self.assertEqual(listening_ports(), {self.port})
        for program in (both, one, second):
            self.ends_well(program)
        self.assertEqual(listening_ports(), {self.port})

    def test_strangers_keep_nobody_out(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        strangers = []
        for number in range(STRANGERS):
            strangers.append(socket.create_connection(("127.0.0.1", self.port)))
            if number % 2:
                strangers[-1].sendall(b"\xff\0\0\0\0\0\0\0\1")  # nine of ten
        begun = time.monotonic()
        self.ends_well(self.start(0))
        print(f"beside {STRANGERS} strangers a program took {time.monotonic() - begun:.1f} s", file=sys.stderr)
        for stranger in strangers:
            stranger.close()

    def test_whoever_comes_while_the_server_does_something_else_is_not_sent_away(self):
        """Who finds no place is told nothing, and tries again seconds later."""
        kernel_allows = int(pathlib.Path("/proc/sys/net/core/somaxconn").read_text())
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        processes.freeze(self.server.pid)
        try:
            strangers = [socket.create_connection(("127.0.0.1", self.port), timeout=0.5)
                         for _ in range(min(STRANGERS, kernel_allows))]
        finally:
            os.kill(self.server.pid, signal.SIGCONT)
        self.ends_well(self.start(0))
        for stranger in strangers:
            stranger.close()

    def test_a_worker_ends(self):
        program = self.start(LOADED_S)
        program.stdout.readline()
        before = set(children_of(self.server.pid))
        served = [line for line in self.log().splitlines() if "is served by worker" in line][-1]
        worker = int(served.rsplit(" ", 1)[1])
        self.assertIn(worker, before)
        begun = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        _, errors = program.communicate(timeout=LOADED_S)
        took = time.monotonic() - begun
        print(f"its program ended {took:.1f} s after the worker", file=sys.stderr)
        self.assertNotEqual(program.returncode, 0)
        self.assertIn("the GPU's worker has ended", errors)
        self.assertLess(took, 20)  # the grace for a network that fails is 30
        self.ends_well(self.start(0))


def enter_own_network():
    """Runs this again where nothing but what it starts listens; returns where that cannot be."""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    up = ["ip", "link", "set", "lo", "up"]
    if not shutil.which("ip") or subprocess.run([*unshare, *up], capture_output=True).returncode != 0:
        return
    os.environ[IN_OWN_NETWORK] = "1"
    os.execvp("unshare", [*unshare, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv])


if __name__ == "__main__":
    if IN_OWN_NETWORK not in os.environ:
        enter_own_network()
        sys.exit("one_port_test: needs iproute2, and the right to make a network namespace")
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
