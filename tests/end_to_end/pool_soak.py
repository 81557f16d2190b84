#!/usr/bin/env python3
"""A soak: programs come and go on a pool of three nodes while nodes, clients and connections are killed at random. Afterwards
nothing may be lost, doubled or left over, and memory must be flat. Prints a summary, and what is wrong with its time and place.

    pool_soak.py BIN LIB (--hours H | --seconds S) [--seed N]     BIN: folder of tnr-gpu-server; LIB: of libcuda.so.1

The seed decides what is done to whom; when, the machine has a say in, too. Node a is never killed, nor replaced by a newer server:
it is the one whose memory is compared, after a quarter of the time and at the end, when nothing runs; descriptors, processes and
files are compared of all.
"""
import argparse
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
import etcd  # noqa: E402
import history  # noqa: E402
import nodes  # noqa: E402
import processes  # noqa: E402
import proxy as proxies  # noqa: E402
import soak_checks as checks  # noqa: E402
from ports import INSIDE, OUTSIDE, Ports  # noqa: E402

NODES = ("a", "b", "c")
GPUS_EACH = 2
WORKERS = 16       # ports of a node's workers
USERS = 5          # who run programs, one after the other or two at once
WAIT_S = 120       # for a GPU
PROGRAM_LIMIT_S = 240
SETTLES_WITHIN_S = 60
WORDS = 4096
GROWTH_BYTES, GROWTH_DESCRIPTORS = 16 << 20, 8

# Computes on the GPU for a while: x = a x + c, again and again. Says when it begins, and the sum at the end.
PROGRAM = r"""
import ctypes, os, pathlib, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} returned {code}")
PTX = b'''
.version 7.0
.target sm_70
.address_size 64
.visible .entry step(.param .u64 words) {
 .reg .u64 %at, %i; .reg .u32 %x, %t, %b, %n;
 ld.param.u64 %at, [words];
 mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x;
 mad.lo.u32 %t, %b, %n, %t;
 mul.wide.u32 %i, %t, 4; add.u64 %at, %at, %i;
 ld.global.u32 %x, [%at];
 mad.lo.u32 %x, %x, 1664525, 1013904223;
 st.global.u32 [%at], %x;
 ret;
}
'''
first, count, steps, pause = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
context, at = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
module, step = ctypes.c_void_p(), ctypes.c_void_p()
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(step), module, b"step")
words = (ctypes.c_uint32 * count)(*((first + i) & 0xffffffff for i in range(count)))
size = ctypes.c_size_t(4 * count)
call("cuMemAlloc_v2", ctypes.byref(at), size)
call("cuMemcpyHtoD_v2", at, words, size)
print("computes", time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(at), ctypes.c_void_p))
for i in range(steps):
    call("cuLaunchKernel", step, count // 256, 1, 1, 256, 1, 1, 0, None, parameters, None)
    if i % 3 == 0:
        call("cuMemcpyDtoH_v2", words, at, size)
        call("cuMemcpyHtoD_v2", at, words, size)
    time.sleep(pause)
if len(sys.argv) > 5:
    pathlib.Path(sys.argv[5], f"has-{os.getpid()}").touch()
    while not pathlib.Path(sys.argv[5], "told").exists():
        time.sleep(0.1)
call("cuMemcpyDtoH_v2", words, at, size)
print("result", sum(words) & 0xffffffff, flush=True)
print("over", time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
"""


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def result_of(first, steps):
    """What the program says, if nothing was lost and nothing done twice."""
    a, c = 1, 0
    for _ in range(steps):
        a, c = a * 1664525 & 0xffffffff, (c * 1664525 + 1013904223) & 0xffffffff
    return str((a * sum(range(first, first + WORDS)) + c * WORDS) & 0xffffffff)


class Soak:
    def __init__(self, arguments, folder):
        self.seconds, self.seed, self.folder = arguments.seconds, arguments.seed, folder
        self.own_shared_memory = arguments.own_shared_memory
        self.pool = nodes.Pool(arguments.programs, arguments.library, folder)
        self.ports = Ports(len(NODES) * (WORKERS + 1))
        self.proxies = {}
        self.programs, self.running, self.troubles = [], {}, []
        self.deaths = {node: [] for node in NODES}
        self.reloads, self.wrong = {True: 0, False: 0}, []
        self.lock = threading.Lock()
        self.goes_on = threading.Event()  # users begin programs
        self.over = threading.Event()

    # ---- the pool

    def first_port(self, node):
        return self.ports.first + NODES.index(node) * (WORKERS + 1)

    def serve(self, node):
        first = self.first_port(node)
        self.pool.serve(node, f"h100:{GPUS_EACH}", "--listen", f"tcp://{INSIDE}:{first}",
                        "--control-address", f"tcp://{OUTSIDE}:{first}", "--worker-address", OUTSIDE,
                        "--worker-ports", f"{first + 1}-{first + WORKERS}", "--history", f"{self.folder}/{node}.history")

    def begin(self):
        for node in NODES:
            self.serve(node)
            self.proxies[node] = [proxies.Proxy((OUTSIDE, port), (INSIDE, port))
                                  for port in range(self.first_port(node), self.first_port(node) + WORKERS + 1)]
        self.accounts = [self.pool.user(name)["machine"] for name in ("alice", "bob")]
        self.keys = {node: self.pool.server_key(node) for node in NODES}

    # ---- users

    def begin_program(self, dice, machine, until_told=False):
        """`machine`: its name, and whose it is. `until_told`: it keeps its GPU until there is the file "told"."""
        node, first, steps = dice.choice(NODES), dice.randrange(1 << 20), dice.randrange(5, 120)
        pause = dice.choice((0, 0.01, 0.05))
        config = {"pool": f"tcp://{OUTSIDE}:{self.first_port(node)}", "server_key": self.keys[node], "gpu": "h100",
                  "wait_s": WAIT_S, "machine": dict(machine[1], name=machine[0])}
        record = checks.Program(machine[0], result_of(first, steps), now())
        words = map(str, (first, WORDS, steps, pause))
        process = self.pool.start(config, [sys.executable, "-c", PROGRAM, *words, *([self.folder] if until_told else [])])
        with self.lock:
            self.programs.append(record)
            self.running[process.pid] = (process, record)
        return process, record

    def end_program(self, process, record):
        try:
            record.out, record.errors = process.communicate(timeout=PROGRAM_LIMIT_S)
            record.code = process.returncode
        except subprocess.TimeoutExpired:
            pass  # it is said to have not ended
        record.ended = now()
        with self.lock:
            del self.running[process.pid]
            if record.code is None:
                process.kill()
        process.communicate()

    def use(self, number):
        dice = random.Random(f"{self.seed} user {number}")
        for turn in range(1 << 30):
            while not self.goes_on.wait(0.2):
                if self.over.is_set():
                    return
            if self.over.is_set():
                return
            machine = f"m{number}-{turn}", dice.choice(self.accounts)
            for each in [self.begin_program(dice, machine) for _ in range(dice.choice((1, 1, 2)))]:
                self.end_program(*each)
            time.sleep(dice.uniform(0, 0.5))

    # ---- what goes wrong

    def cut(self, dice, node):
        dice.choice(self.proxies[node] + self.proxies[node][:1] * WORKERS).cut()

    def cut_all(self, dice, node):
        for each in self.proxies[node]:
            each.cut()

    def fray(self, dice, node):
        """For a while connections end by themselves."""
        for each in self.proxies[node]:
            each.cut_after = (2_000, 200_000)
        time.sleep(dice.uniform(0.2, 3))
        for each in self.proxies[node]:
            each.cut_after = None

    def silence(self, dice, node):
        """Nothing gets through, and nobody is told."""
        for each in self.proxies[node]:
            each.flows.clear()
        time.sleep(dice.uniform(0.1, 2))
        for each in self.proxies[node]:
            each.flows.set()

    def kill_client(self, dice, node):
        with self.lock:
            for process, record in sorted(self.running.values(), key=lambda one: one[1].begun)[:1]:
                if process.poll() is None:
                    record.killed = True
                    process.kill()

    def kill(self, dice, node):
        server = self.pool.servers[node]
        self.deaths[node].append(now())
        os.killpg(server.pid, signal.SIGKILL)
        self.pool.stop(node)
        time.sleep(dice.uniform(0, 2))
        self.serve(node)

    def restart(self, dice, node):
        self.deaths[node].append(now())
        self.pool.stop(node)
        self.serve(node)

    def reload(self, dice, node):
        """Replaced, as by a newer package, while its programs go on. Where what is in between does not come to rest, it stays."""
        done = subprocess.run([self.pool.server_program, "reload", "--state", f"{self.folder}/{node}"], capture_output=True,
                              text=True)
        self.reloads[done.returncode == 0] += 1
        if done.returncode != 0 and "was not replaced, and goes on" not in done.stderr:
            self.wrong.append(checks.text(now(), node, f"cannot be replaced: {done.stderr}"))

    KINDS = {"cut": 8, "cut_all": 2, "fray": 2, "silence": 2, "kill_client": 6, "kill": 2, "restart": 1, "reload": 3}

    def trouble(self, dice):
        kind = dice.choices(list(self.KINDS), self.KINDS.values())[0]
        node = dice.choice(NODES[1:] if kind in ("kill", "restart", "reload") else NODES)
        begun = now()
        getattr(self, kind)(dice, node)
        shown = "cut" if kind in ("cut_all", "fray", "silence") else kind
        self.troubles.append(checks.Trouble(shown, node, begun, now()))

    # ---- looking

    def settle(self):
        """Until nothing runs any more: each node has a waiting worker for each of its GPUs, and nothing else."""
        self.goes_on.clear()
        nodes.wait_until(lambda: not self.running, PROGRAM_LIMIT_S + 30)
        def quiet(node):
            children = processes.children(self.pool.servers[node].pid)
            time.sleep(0.5)  # a wipe is a child, too, but not for long
            return len(children) == GPUS_EACH and children == processes.children(self.pool.servers[node].pid) and \
                self.pool.node(node) == {"state": "ready", "gpus": f"h100 {GPUS_EACH}/{GPUS_EACH}", "claims": "0"}
        for node in NODES:
            try:
                nodes.wait_until(lambda: quiet(node), SETTLES_WITHIN_S)
            except AssertionError:
                return [checks.text(now(), node, f"does not come to rest: {self.pool.node(node)}, "
                                    f"{processes.family(self.pool.servers[node].pid)}")]
        return []

    def measure(self):
        there = [path for node in NODES for path in pathlib.Path(self.folder, node).rglob("*") if path.is_file()]
        there += pathlib.Path("/dev/shm").iterdir() if self.own_shared_memory else []
        # Those grow, and of a node that was killed what its ledger had is kept.
        files = [str(path) for path in there if not path.name.startswith("audit.") and path.name != "fellows.json"]
        held = {}
        for node in NODES:
            pid = self.pool.servers[node].pid
            held[node] = {"descriptors": processes.descriptors(pid), "processes": len(processes.family(pid)), "files": files}
        held["a"]["bytes"] = processes.resident_bytes(self.pool.servers["a"].pid)
        return held

    def every_gpu_can_be_had(self):
        """As many programs as there are GPUs, each by itself, and none ends before all have one (look_back)."""
        wrong = []
        self.last_machines = {f"after-{number}" for number in range(len(NODES) * GPUS_EACH)}
        dice = random.Random(self.seed)
        begun = [self.begin_program(dice, (machine, self.accounts[0]), until_told=True) for machine in sorted(self.last_machines)]
        try:
            nodes.wait_until(lambda: all(self.has_gpu(process) for process, _ in begun), WAIT_S)
        except AssertionError:
            wrong.append(checks.text(now(), "pool", "does not give all its GPUs when all is over"))
        pathlib.Path(self.folder, "told").touch()
        for process, record in begun:
            self.end_program(process, record)
            if record.code != 0:
                wrong.append(checks.text(now(), record.machine, f"gets no GPU when all is over: {record.errors}"))
        return wrong

    def has_gpu(self, process):
        return pathlib.Path(self.folder, f"has-{process.pid}").exists()

    def ledger(self, node):
        since_boot = time.time() - now()
        with sqlite3.connect(f"{self.folder}/{node}/pool.db") as database:
            rows = database.execute("SELECT id, machine, devices, began_ms, until_ms, ended_ms FROM claims").fetchall()
        return [{"id": row[0], "machine": row[1], "devices": row[2].split(","), "began_s": row[3] / 1000 - since_boot,
                 "until_s": row[4] / 1000 - since_boot, "ended": row[5] is not None} for row in rows]

    def left_processes(self):
        def left():
            processes.bury([self.pool.etcd.process.pid])
            return [each for each in processes.children(os.getpid()) if each.pid != self.pool.etcd.process.pid]
        try:
            nodes.wait_until(lambda: not left(), 10)
        except AssertionError:
            return [f"processes are left: {left()}"]
        return []

    # ---- all of it

    def run(self):
        self.begin()
        users = [threading.Thread(target=self.use, args=(number,)) for number in range(USERS)]
        dice = random.Random(f"{self.seed} trouble")
        for user in users:
            user.start()
        wrong, measured = [], []
        try:
            begun = time.monotonic()
            for part in (0.25, 1):
                self.goes_on.set()
                while time.monotonic() - begun < part * self.seconds:
                    self.trouble(dice)
                    time.sleep(dice.uniform(0, 1.5))
                wrong += self.settle()
                measured.append(self.measure())
        finally:
            self.over.set()
            self.goes_on.clear()
            for user in users:
                user.join()
        wrong += self.every_gpu_can_be_had()
        for node in NODES:
            self.deaths[node].append(now())
            if (code := self.pool.stop(node).returncode) != 0:
                wrong.append(checks.text(now(), node, f"ended with {code}"))
        wrong += self.left_processes()
        return self.wrong + wrong + self.look_back(measured), measured

    def look_back(self, measured):
        events = history.read(f"{self.folder}/{node}.history" for node in NODES)
        rows = {node: self.ledger(node) for node in NODES}
        deaths = {node: [at * 1000 for at in times] for node, times in self.deaths.items()}
        self.claims = sum(event["event"] == "has" for event in events)
        return (checks.of_programs(self.programs, self.troubles, checks.nodes_of(rows)) + checks.of_ledger(rows, events, self.deaths) +
                checks.of_use(self.programs, rows) + history.complaints(events, deaths) +
                checks.of_gpus(self.last_machines, rows, len(NODES) * GPUS_EACH) +
                [f"node {node}: {what}" for node in NODES for what in
                 checks.of_growth(*(held[node] for held in measured), GROWTH_BYTES, GROWTH_DESCRIPTORS)])

    def summary(self, measured, wrong):
        count = {kind: sum(trouble.kind == kind for trouble in self.troubles) for kind in self.KINDS}
        ran = sum(program.code == 0 for program in self.programs)
        killed = sum(program.killed for program in self.programs)
        first, last = (held["a"] for held in measured)
        print(f"seed {self.seed}, {self.seconds / 60:.1f} minutes\n"
              f"programs: {len(self.programs)}; {ran} with the right result, {killed} killed, "
              f"{len(self.programs) - ran - killed} ended with an error\nclaims: {self.claims}\n"
              f"nodes killed {count['kill']} times, restarted {count['restart']}; replaced {self.reloads[True]} "
              f"(and {self.reloads[False]} times not); connections cut {count['cut']} times; "
              f"connections that ended by cuts: {sum(each.ended for all_ in self.proxies.values() for each in all_)}\n"
              f"node a, after a quarter and at the end: {first['bytes'] >> 10} and {last['bytes'] >> 10} KiB of memory, "
              f"{first['descriptors']} and {last['descriptors']} open files\n"
              f"wrong: {len(wrong)}")
        for what in wrong:
            print(f"  {what}")

    def close(self):
        self.pool.__exit__()
        for each in sum(self.proxies.values(), []):
            each.close()
        self.ports.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    if (arguments.hours is None) == (arguments.seconds is None):
        parser.error("say how long: --hours or --seconds")
    if not etcd.program():
        sys.exit("no etcd: apt-get install etcd-server")
    arguments.seconds = arguments.seconds or arguments.hours * 3600
    print(f"seed {arguments.seed}", flush=True)
    processes.adopt_orphans()
    arguments.own_shared_memory = processes.take_own_shared_memory()
    with tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True) as folder:
        soak = Soak(arguments, folder)
        soak.pool.__enter__()
        try:
            wrong, measured = soak.run()
        finally:
            soak.close()
        soak.summary(measured, wrong)
        if wrong:
            for node in NODES:
                print(f"---- the log of node {node}\n{soak.pool.log(node)[-8000:]}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
