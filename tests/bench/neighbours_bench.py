#!/usr/bin/env python3
"""How much a tenant that is beyond its limits slows another down: launches with a wait each, alone and beside it, in turns.

    tests/bench/neighbours_bench.py                       all kinds, five turns of two seconds: two minutes
    tests/bench/neighbours_bench.py --only memory --turns 9 --seconds 4
    tests/bench/neighbours_bench.py --own-core            the one measured shares no core with the others
    tests/bench/neighbours_bench.py --json FILE

Each of the two users has a GPU of one emulated node, with keys. A ratio of 0.90 and more is what the pool promises. `honest`
is a tenant that does the same as the one measured: what two programs cost each other on this machine's processors. Where
that is below 1, so is the rest. With --own-core the program that is measured and its worker have one core, alone and beside
others, and everything else has the other cores: what is left is what tenants of a node with cores enough cost each other.
Exit status 0; 1: somebody was not served. Never because of a time.
"""
import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import with_server  # noqa: E402

# Says "ready", then answers each line with how often it did its work in so many seconds, while it goes on all the time.
PROGRAM = r"""
import ctypes, sys, threading, time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments, may_be=()):
    code = getattr(cuda, name)(*arguments)
    if code and code not in may_be:
        sys.exit(f"{name} returned {code}")
    return code
OUT_OF_MEMORY, BLOCK = 2, 64 << 20
context, module, kernel, memory, stream = c_void_p(), c_void_p(), c_void_p(), c_uint64(), c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", byref(module), b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n")
call("cuModuleGetFunction", byref(kernel), module, b"nothing")
call("cuStreamCreate", byref(stream), 1)
one = c_uint(1)

def launches():
    call("cuLaunchKernel", kernel, one, one, one, one, one, one, c_uint(0), stream, None, None)
    call("cuStreamSynchronize", stream)
def too_much_memory():
    call("cuMemAlloc_v2", byref(memory), c_size_t(1 << 50), may_be=[OUT_OF_MEMORY])
    call("cuCtxSetLimit", 2, c_size_t(1 << 50), may_be=[OUT_OF_MEMORY])
def too_many_handles():
    call("cuEventCreate", byref(c_void_p()), 0, may_be=[OUT_OF_MEMORY])
def launches_without_end():
    call("cuLaunchKernel", kernel, one, one, one, one, one, one, c_uint(0), stream, None, None)
def copies_without_end():
    if not memory:
        call("cuMemAlloc_v2", byref(memory), c_size_t(BLOCK))
        call("cuMemHostAlloc", byref(host), c_size_t(BLOCK), 0)
    call("cuMemcpyHtoDAsync_v2", memory, host, c_size_t(BLOCK), stream)
def questions_without_end():
    if nvml.nvmlInit_v2() or nvml.nvmlShutdown():
        sys.exit("the pool does not answer")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
host, done, work = c_void_p(), 0, globals()[sys.argv[1]]

def answer():
    for line in sys.stdin:
        before, began = done, time.monotonic()
        time.sleep(float(line))
        print((done - before) / (time.monotonic() - began), flush=True)
    import os
    os._exit(0)
work()
threading.Thread(target=answer, daemon=True).start()
print("ready", flush=True)
while True:
    work()
    done += 1
"""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)


class Tenant:
    def __init__(self, node, user, work):
        self.program = subprocess.Popen([sys.executable, "-c", PROGRAM, work], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=node.environment(user))
        if self.program.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{user} was not served")

    def rate(self, seconds):
        """What it did a second."""
        self.program.stdin.write(f"{seconds}\n")
        self.program.stdin.flush()
        line = self.program.stdout.readline()
        if not line:
            raise RuntimeError("a tenant's program ended")
        return float(line)

    def end(self):
        self.program.kill()
        self.program.communicate()


class Passers:
    """A user whose programs come and go, as fast as they can."""

    def __init__(self, node, user):
        self.program = [str(node.build / "bin" / "pool_client")]
        self.environment = node.environment(user)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.pass_by)
        self.thread.start()

    def pass_by(self):
        while not self.over.is_set():
            subprocess.run(self.program, stdin=subprocess.DEVNULL, capture_output=True, env=self.environment)

    def end(self):
        self.over.set()
        self.thread.join()


class Stranger:
    """Comes from another address, as fast as it can, and has no key."""

    def __init__(self, node, says):
        self.port, self.says, self.over = int(node.address.rsplit(":", 1)[1]), says, threading.Event()
        self.thread = threading.Thread(target=self.knock)
        self.thread.start()

    def knock(self):
        held = []
        while not self.over.is_set():
            one = socket.socket()
            one.settimeout(0.2)
            try:
                one.bind(("127.0.0.2", 0))
                one.connect(("127.0.0.1", self.port))
                one.sendall(self.says)
            except OSError:
                pass
            held.append(one)
            if len(held) > 200:
                held.pop(0).close()
        for one in held:
            one.close()

    def end(self):
        self.over.set()
        self.thread.join()


class Node:
    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.folder = self.temporary.name
        self.arguments = argparse.Namespace(server=str(self.build / "bin" / "tnr-gpu-server"), driver=None,
                                            emulate="h100:2", memory_mib="512", gpu="h100")
        self.server = with_server.start_server(self.arguments, self.folder, encrypted=True)
        self.address = with_server.address_of(self.server)
        if not self.address:
            raise RuntimeError("the server did not start:\n" + pathlib.Path(with_server.log_of(self.folder)).read_text())
        return self

    def __exit__(self, *_):
        with_server.stop(self.server)
        self.server.stdout.close()
        self.temporary.cleanup()

    def environment(self, user):
        """Of programs of a new account, or of an account with a new key."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        config = with_server.enrolled(self.arguments, self.folder, self.address, name=user, wait_s=60)
        return dict(kept, TNR_CONFIG=config, LD_LIBRARY_PATH=str(self.build / "lib"), HOME=self.folder)


def threads(pid):
    """None of a process that is gone."""
    try:
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def pin(pid, cores):
    """With all its threads; those that begin later are where the one is that begins them."""
    for thread in threads(pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cores)


def descendants(pid):
    found = []
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            for child in pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found += [int(child), *descendants(child)]
    return found


def ticks(pid):
    """What it has computed; 0 once it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def give_own_core(node, neighbour):
    own, *others = sorted(os.sched_getaffinity(neighbour.program.pid))
    for pid in [os.getpid(), *descendants(os.getpid())]:
        pin(pid, others)
    workers = {pid: ticks(pid) for pid in descendants(node.server.pid)}
    neighbour.rate(0.5)
    its_worker = max(workers, key=lambda pid: ticks(pid) - workers[pid])
    for pid in (neighbour.program.pid, its_worker):
        pin(pid, [own])


KINDS = {
    "honest": lambda node: Tenant(node, "other", "launches"),
    "launches": lambda node: Tenant(node, "other", "launches_without_end"),
    "copies": lambda node: Tenant(node, "other", "copies_without_end"),
    "memory": lambda node: Tenant(node, "other", "too_much_memory"),
    "handles": lambda node: Tenant(node, "other", "too_many_handles"),
    "questions": lambda node: Tenant(node, "other", "questions_without_end"),
    "programs": lambda node: Passers(node, "other"),
    "connections": lambda node: Stranger(node, b""),
    "handshakes": lambda node: Stranger(node, GREETING),
}


def measure(node, kind, turns, seconds, own_core):
    """The neighbour's rates alone and beside it, of each turn."""
    alone, beside = [], []
    all_cores = os.sched_getaffinity(0)
    neighbour = Tenant(node, "neighbour", "launches")
    try:
        if own_core:
            give_own_core(node, neighbour)
        for _ in range(turns):
            alone.append(neighbour.rate(seconds))
            other = KINDS[kind](node)
            try:
                beside.append(neighbour.rate(seconds))
            finally:
                other.end()
    finally:
        neighbour.end()
        os.sched_setaffinity(0, all_cores)
    return alone, beside


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, with commas")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement, two a turn")
    parser.add_argument("--own-core", action="store_true", help="for the neighbour and its worker; needs two")
    parser.add_argument("--json", help="write it there, too")
    arguments = parser.parse_args()
    if arguments.own_core and len(os.sched_getaffinity(0)) < 2:
        sys.exit("--own-core needs two cores")
    found = {}
    print(f"{os.cpu_count()} cores; launches with a wait each, a second, median of {arguments.turns} turns")
    print(f"{'beside':12} {'alone':>8} {'beside':>8} {'ratio':>6}")
    with Node(arguments.build) as node:
        for kind in arguments.only.split(","):
            alone, beside = (statistics.median(rates) for rates in measure(node, kind, arguments.turns,
                                                                              arguments.seconds, arguments.own_core))
            if not alone or not beside:
                sys.exit(f"{kind}: the neighbour was not served")
            found[kind] = {"alone": alone, "beside": beside, "ratio": beside / alone}
            print(f"{kind:12} {alone:8.0f} {beside:8.0f} {beside / alone:6.2f}", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"cores": os.cpu_count(), "rates": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
