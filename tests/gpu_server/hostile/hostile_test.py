#!/usr/bin/env python3
"""A worker that its tenant has taken over (see hostile_driver.cpp), and a stranger's program on the other GPU, which must
go on as if nothing were.

    hostile_test.py SERVER LIB DRIVER    SERVER: tnr-gpu-server; LIB: folder of libcuda.so.1; DRIVER: the hostile one
"""
import json
import os
import pathlib
import re
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import with_server  # noqa: E402

SERVER, LIB, DRIVER = sys.argv[1:4]
EVERYTHING, FILL, HOARD, STAY, SHOUT, HIDE_IN_FLIGHT, HIDE_IN_A_THREAD, HIDE_BY_LENDING, TALK = range(1, 10)
HOST_MEMORY_MIB = 300
SOON_S = 30  # promised is a second; the machine may be busy
ORDINARY_USER = 4242

# Does the same again and again until its input ends, checks it, and says how long each time took, in microseconds.
VICTIM = """
import ctypes, select, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, words = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_uint32 * 1024)()
def call(name, *values):
    code = getattr(cuda, name)(*values)
    if code:
        sys.exit(f"{name} returned {code}")
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
round = 0
while not select.select([sys.stdin], [], [], 0.01)[0]:
    round += 1
    begun = time.perf_counter()
    call("cuMemsetD32_v2", memory, ctypes.c_uint(round), ctypes.c_size_t(1024))
    call("cuMemcpyDtoH_v2", words, memory, ctypes.c_size_t(4096))
    if set(words) != {round}:
        sys.exit("wrong words")
    print(int((time.perf_counter() - begun) * 1e6), flush=True)
"""

ATTACKER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(32 << 20))
cuda.cuMemsetD32_v2(memory, ctypes.c_uint(0xbad00000 + int(sys.argv[1])), ctypes.c_size_t(int(sys.argv[2])))
print("attacks", flush=True)
cuda.cuCtxSynchronize()
sys.stdin.read()
"""


def become(user):
    """What a command begins with that somebody else runs."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []


class Victim:
    def __init__(self, node, machine="victim"):
        self.program = node.program(machine, VICTIM)

    def look(self, rounds):
        """The median of so many rounds from now on."""
        times = [int(self.program.stdout.readline()) for _ in range(rounds)]
        return statistics.median(times)

    def ends_well(self):
        self.program.stdin.close()
        for _ in self.program.stdout:
            pass
        return self.program.wait(SOON_S) == 0


class Node:
    def __init__(self, case, user=None, more=()):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        case.addCleanup(folder.cleanup)
        self.case, self.folder = case, folder.name
        os.chmod(self.folder, 0o755)
        state = pathlib.Path(self.folder, "server")
        state.mkdir(mode=0o700)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = f"tnr-test-{os.getpid()}-{id(self)}"
        listening.bind("\0" + name)
        case.addCleanup(listening.close)
        if user:
            os.chown(state, user, user)
        environment = dict(with_server.environment_for_sanitizers(), TNR_WORKER_GRACE_MS="1000", TNR_WORKER_HOSTILE_STATE=str(state),
                           TNR_WORKER_HOSTILE_SOCKET=name)
        log = open(self.log_path(), "w")
        case.addCleanup(log.close)
        self.server = subprocess.Popen(
            [*become(user), "sh", "-c", 'TNR_WORKER_HOSTILE_SERVER=$$ exec "$@"', "sh", SERVER, "serve", "--plain", "--listen",
             "tcp://127.0.0.1:0", "--linger-ms", "0", "--state", state, "--driver", DRIVER, "--host-memory-mib",
             str(HOST_MEMORY_MIB), *more],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment,
            start_new_session=True)
        case.addCleanup(self.stop)
        self.address = with_server.address_of(self.server)
        case.assertIsNotNone(self.address, self.log())

    def stop(self):
        with_server.stop(self.server)
        self.server.stdout.close()

    def log_path(self):
        return os.path.join(self.folder, "server.log")

    def log(self):
        return pathlib.Path(self.log_path()).read_text(errors="replace")

    def wait_for_log(self, pattern):
        give_up = time.monotonic() + SOON_S
        while not (found := re.search(pattern, self.log())):
            self.case.assertLess(time.monotonic(), give_up, f"no {pattern} in\n{self.log()[-5000:]}")
            time.sleep(0.05)
        return found

    def program(self, machine, text, *arguments):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        environment = dict(kept, TNR_POOL=self.address, TNR_GPU="h100", TNR_MACHINE=machine, LD_LIBRARY_PATH=LIB,
                           HOME=self.folder)
        config = os.path.join(self.folder, machine + ".json")
        pathlib.Path(config).write_text(
            f'{{"pool": "{self.address}", "gpu": "h100", "machine": {{"name": "{machine}"}}}}')
        environment["TNR_CONFIG"] = config
        program = subprocess.Popen([sys.executable, "-c", text, *map(str, arguments)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, env=environment)
        for close in (program.stdout.close, program.stdin.close, program.wait, program.kill):
            self.case.addCleanup(close)
        return program

    def worker_of(self, machine):
        return int(self.wait_for_log(rf"{machine} process \d+ .*is served by worker (\d+)")[1])

    def attack(self, which):
        """The attacking program, whose worker is at it."""
        program = self.program("attacker", ATTACKER, which, self.worker_of("victim"))
        self.case.assertEqual(program.stdout.readline(), "attacks\n")
        return program


def is_there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class HostileWorker(unittest.TestCase):
    def beside(self, user=None, more=()):
        if user and os.geteuid() != 0:
            self.skipTest("only root is anybody else")
        if user and subprocess.run([*become(user), "test", "-r", DRIVER, "-a", "-x", SERVER]).returncode != 0:
            self.skipTest("nobody else may read what was built here")
        node = Node(self, user, more)
        victim = Victim(node)
        victim.look(20)
        return node, victim

    def gone_soon(self, process):
        give_up = time.monotonic() + SOON_S
        while is_there(process):
            self.assertLess(time.monotonic(), give_up, "the worker is still there")
            time.sleep(0.05)

    def everything_is_refused(self, node, victim):
        if re.search("sandbox lacks: .*(namespaces|a private filesystem)", node.log()):
            self.skipTest("no namespaces here")
        node.attack(EVERYTHING)
        node.wait_for_log("attempted all")
        attempts = re.findall(r"attempt (.*): (\d+)", node.log())
        self.assertGreater(len(attempts), 80)
        self.assertEqual([name for name, error in attempts if error == "0"], [])
        self.assertTrue(victim.ends_well())

    def test_everything_is_refused(self):
        self.everything_is_refused(*self.beside())

    def test_everything_is_refused_where_the_server_is_not_root(self):
        self.everything_is_refused(*self.beside(ORDINARY_USER))

    def test_what_it_takes_of_threads_files_and_disk_is_bounded(self):
        node, victim = self.beside()
        node.attack(FILL)
        if os.geteuid() == 0:
            self.assertLessEqual(int(node.wait_for_log(r"made (\d+) threads")[1]), 1024)
        self.assertLessEqual(int(node.wait_for_log(r"opened (\d+) files")[1]), 16384)
        self.assertLessEqual(int(node.wait_for_log(r"wrote (\d+) MiB")[1]), 256)
        victim.look(20)
        self.assertTrue(victim.ends_well())

    def test_a_machines_programs_share_their_threads(self):
        if os.geteuid() != 0:
            self.skipTest("only root gives each worker a user of its own, whose threads are counted")
        node, victim = self.beside()
        for number, most in enumerate((1024, 768), 1):
            node.attack(FILL)
            node.wait_for_log(r"(?s)(made \d+ threads.*){%d}" % number)
            self.assertLessEqual(int(re.findall(r"made (\d+) threads", node.log())[-1]), most)
        self.assertTrue(victim.ends_well())

    def test_memory_that_nobody_has_mapped_is_the_attackers(self):
        if os.geteuid() != 0:
            self.skipTest("only root may look, and only control groups hold others")
        node, victim = self.beside()
        node.attack(HOARD)
        node.wait_for_log(rf"MiB of the GPU node's own memory; the limit is {HOST_MEMORY_MIB} MiB")
        self.gone_soon(node.worker_of("attacker"))
        victim.look(20)
        self.assertTrue(victim.ends_well())

    def test_no_memory_is_where_nobody_looks(self):
        for way in (HIDE_IN_FLIGHT, HIDE_IN_A_THREAD):
            with self.subTest(way):
                node, victim = self.beside()
                node.attack(way)
                self.assertEqual(node.wait_for_log(r"hid \d+ MiB|cannot hide")[0], "cannot hide")
                self.assertTrue(victim.ends_well())

    def test_memory_that_it_has_lent_and_closed_is_the_attackers(self):
        if os.geteuid() != 0:
            self.skipTest("only root may look, and only control groups hold others")
        node, victim = self.beside()
        node.attack(HIDE_BY_LENDING)
        node.wait_for_log(rf"MiB of the GPU node's own memory; the limit is {HOST_MEMORY_MIB} MiB")
        self.gone_soon(node.worker_of("attacker"))
        self.assertTrue(victim.ends_well())

    def test_whatever_it_says_a_newer_server_takes_over_and_its_line_in_the_ledger_makes_sense(self):
        node, victim = self.beside()
        program = node.attack(TALK)
        node.wait_for_log("talks")
        worker = node.worker_of("attacker")
        for _ in range(3):
            said = subprocess.run([SERVER, "reload", "--state", f"{node.folder}/server"], capture_output=True, text=True)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr + node.log()[-5000:])
            victim.look(20)
        self.assertTrue(is_there(worker))  # it says nothing that makes no sense
        program.kill()
        self.gone_soon(worker)
        self.assertTrue(victim.ends_well())
        newcomer = Victim(node, "newcomer")
        newcomer.look(1)
        self.assertTrue(newcomer.ends_well())

        def lines():
            with sqlite3.connect(f"{node.folder}/server/pool.db") as pool:
                return pool.execute("SELECT machine, ended_ms IS NOT NULL, bytes_up, bytes_down, busy_ms, until_ms - began_ms"
                                    " FROM claims ORDER BY machine").fetchall()
        give_up = time.monotonic() + SOON_S
        while not all(line[1] for line in lines()) and time.monotonic() < give_up:
            time.sleep(0.1)
        self.assertEqual([line[:2] for line in lines()], [("attacker", 1), ("newcomer", 1), ("victim", 1)])
        for _, _, up, down, busy, lasted in lines():
            self.assertTrue(0 <= up <= 1 << 60 and 0 <= down <= 1 << 60, lines())
            self.assertTrue(0 <= busy <= lasted + 1000, lines())
        # Nothing that it took or said to have taken is held any more. What is shown may be a second old.
        def held():
            now = json.loads(subprocess.run([SERVER, "status", "-o", "json", "--state", f"{node.folder}/server"],
                                            capture_output=True, text=True, check=True).stdout)
            return [(gpu["state"], gpu["granted_bytes"]) for gpu in now["gpus"]]
        while held() != [("free", 0)] * 3:
            self.assertLess(time.monotonic(), give_up + SOON_S, held())
            time.sleep(0.2)
        self.assertNotIn("\x1b", node.log())

    def test_it_ends_with_its_session(self):
        self.it_ends_with_its_session(*self.beside())

    def test_it_ends_with_its_session_behind_one_port(self):
        self.it_ends_with_its_session(*self.beside(more=["--one-port"]))

    def it_ends_with_its_session(self, node, victim):
        program = node.attack(STAY)
        node.wait_for_log("stays")
        worker = node.worker_of("attacker")
        program.kill()
        program.wait()
        self.gone_soon(worker)
        node.wait_for_log("its client is gone, which its worker has not noticed")
        self.assertTrue(victim.ends_well())

    def test_it_ends_with_its_server(self):
        node, _ = self.beside()
        node.attack(STAY)
        node.wait_for_log("stays")
        worker = node.worker_of("attacker")
        node.server.send_signal(signal.SIGKILL)
        self.gone_soon(worker)

    def test_it_may_shout(self):
        node, victim = self.beside()
        before = victim.look(100)
        node.attack(SHOUT)
        node.wait_for_log("shouts")
        during = victim.look(100)
        print(f"a round of the victim's took {before:.0f} us, and beside the one that shouts {during:.0f} us")
        # And who comes now is let in.
        newcomer = Victim(node, "newcomer")
        newcomer.look(1)
        self.assertTrue(newcomer.ends_well())
        log = node.log()
        self.assertLess(len(log), 200_000)
        self.assertNotIn("\x1b", log)
        self.assertIsNone(re.search(r"^2026-01-01", log, re.MULTILINE))
        self.assertTrue(victim.ends_well())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
