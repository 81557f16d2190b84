#!/usr/bin/env python3
"""A pool of two nodes on one etcd, as its users and its operator meet it: any node answers, a node dies, is drained, etcd is
away.

    pool_nodes_test.py BIN LIB    BIN: folder of tnr and tnr-gpu-server; LIB: folder of libcuda.so.1
"""
import base64
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import etcd  # noqa: E402
import nodes  # noqa: E402
import processes  # noqa: E402
from nodes import wait_until  # noqa: E402

BIN, LIB = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
FREED_WITHIN_S = 5  # the claims of a node that has died

# Says which GPU it has, then uses it all the time, or until it is asked to end.
PROGRAM = """
import ctypes, signal, sys, time
cuda, at, buffer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), bytes(1 << 20)
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} returned {code}")
context, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(16)
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(1 << 20))
call("cuMemcpyHtoD_v2", at, buffer, ctypes.c_size_t(len(buffer)))
call("cuDeviceGetUuid", uuid, 0)
print(uuid.raw.hex(), flush=True)
end, asked = time.time() + float(sys.argv[1]), []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
while time.time() < end and not asked:
    call("cuMemcpyHtoD_v2", at, buffer, ctypes.c_size_t(len(buffer)))
    call("cuMemcpyDtoH_v2", buffer, at, ctypes.c_size_t(len(buffer)))
    time.sleep(0.05)
print("done", flush=True)
"""


# Asks for its GPU when it is told to, and holds it for a moment.
TOGETHER = """
import ctypes, signal, time
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
cuda.cuInit(0)
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
code, begun = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), time.time()
time.sleep(1)
print(code, begun, time.time(), flush=True)
"""


@unittest.skipUnless(etcd.program(), "no etcd: apt-get install etcd-server")
class PoolNodes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.pool = nodes.Pool(BIN, LIB, folder.name)
        self.folder = folder.name
        self.pool.__enter__()
        self.addCleanup(self.pool.__exit__)
        self.etcd, self.servers, self.addresses = self.pool.etcd, self.pool.servers, self.pool.addresses
        self.serve, self.node, self.operator = self.pool.serve, self.pool.node, self.pool.operator
        self.log, self.user = self.pool.log, self.pool.user

    def program(self, user, gpu, seconds, count=1, **environment):
        config, command = dict(user, gpu=gpu, count=count), [sys.executable, "-c", PROGRAM, str(seconds)]
        program = self.pool.start(config, command, **environment)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.stderr.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        return program

    def runs(self, user, gpu, seconds=0.1):
        """The GPU that it had."""
        program = self.program(user, gpu, seconds)
        out, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 0, errors + self.log("a") + self.log("b"))
        return out.split()[0]

    def ends(self, program):
        """As soon as it is asked to, and well."""
        program.terminate()
        out, errors = program.communicate(timeout=60)
        self.assertIn("done", out, errors)

    def refused(self, user, gpu, count=1, **environment):
        program = self.program(user, gpu, 0.1, count, **environment)
        out, errors = program.communicate(timeout=60)
        self.assertNotEqual(program.returncode, 0, out)
        return errors

    def test_any_node_answers(self):
        self.serve("a", "h100")
        self.serve("b", "h100,a100")
        alice, bob = self.user("alice"), self.user("bob")
        self.runs(alice, "a100")  # which only b has
        first = self.program(alice, "h100", 60)
        here = first.stdout.readline().strip()
        self.assertEqual(self.node("a")["claims"], "1")
        there = self.runs(bob, "h100")  # a's is in use
        self.assertNotEqual(here, there)
        # The machine's second program joins its claim, also when it is at the other node.
        second = self.program(bob, "a100", 60)
        gpu = second.stdout.readline().strip()
        self.assertEqual(self.runs(bob, "a100"), gpu)
        error = self.refused(self.user("carol"), "a100")
        self.assertIn("in use", error)
        # Who waits at a gets b's when that is free first.
        waits = self.program(dict(self.user("dora"), wait_s=60), "a100", 0.1)
        self.assertIn("number 1 of 1 in the queue", waits.stderr.readline())
        self.ends(second)
        out, errors = waits.communicate(timeout=60)
        self.assertEqual(out.split(), [gpu, "done"], errors)
        self.ends(first)
        # The whole pool in what any node tells.
        home = dict({name: value for name, value in os.environ.items() if not name.startswith("TNR_")}, HOME=self.folder)
        subprocess.run([BIN / "tnr", "login", "pool", self.addresses["a"], alice["server_key"]], check=True, env=home,
                       input=alice["machine"]["secret_key"], text=True, capture_output=True)

        def tnr(*words):
            return json.loads(subprocess.run([BIN / "tnr", *words, "--json"], check=True, capture_output=True, env=home).stdout)

        def everyones_bill():
            try:
                return tnr("billing", "--everyone")["lines"]
            except subprocess.CalledProcessError:  # no node has heard yet that she may
                return []
        self.assertEqual({line["name"]: line["total"] for line in tnr("gpus")["types"]}, {"a100": 1, "h100": 2})
        refused = subprocess.run([BIN / "tnr", "run", "--dry-run", "--gpu", "h100:2", "true"], env=home, capture_output=True)
        self.assertIn(b"none has more than 1 of type h100", refused.stderr)  # two there are, of two nodes
        running = self.program(alice, "a100", 30)
        running.stdout.readline()
        now = tnr("pool", "top")
        self.assertEqual({node["name"]: node["silent"] for node in now["nodes"]}, {"a": False, "b": False})
        self.assertEqual(sorted((gpu["node"], gpu["type"]) for gpu in now["gpus"]),
                         [("a", "h100"), ("b", "a100"), ("b", "h100")])
        self.assertIn(("b", "a100", "alice"), {(gpu["node"], gpu["type"], gpu["user"]) for gpu in now["gpus"]})
        others = json.loads(self.operator("status", "-o", "json"))["other_nodes"]
        self.assertEqual([(node["name"], node["address"], node["types"]) for node in others],
                         [("b", self.addresses["b"], ["a100", "h100"])])
        processes.freeze(self.servers["b"].pid)
        try:
            silent = {node["name"]: node["silent"] for node in tnr("pool", "top")["nodes"]}
            self.assertEqual(silent, {"a": False, "b": True})  # in its lease, and after it
            self.assertEqual(tnr("billing")["pools"][0]["silent"], ["b"])
        finally:
            os.kill(self.servers["b"].pid, signal.SIGCONT)
        running.kill()
        wait_until(lambda: tnr("billing")["pools"][0]["silent"] == [], 20)
        self.assertLessEqual({"a100", "h100"}, {line["name"] for line in tnr("billing", "--by", "gpu")["lines"]})
        self.operator("user", "limit", "alice", "--role", "operator")
        wait_until(lambda: {"alice", "bob", "dora"} <= {line["name"] for line in everyones_bill()}, 20)
        self.assertIn("no 'l4'", self.refused(alice, "l4"))

    def test_who_is_refused_hears_of_the_whole_pool(self):
        self.serve("a", "h100")
        self.serve("b", "h100,a100:2,l4")
        alice, bob = self.user("alice"), self.user("bob")
        holds = [self.program(self.user(name), "h100", 60) for name in ("carol", "dora")]
        for program in holds:
            program.stdout.readline()
        error = self.refused(alice, "h100")  # a has nothing else
        self.assertIn("all 2 h100 are in use", error)
        self.assertIn("a100 is free: --gpu a100", error)
        error = self.refused(dict(bob, wait_s=1), "h100")
        self.assertIn("it waited for 1 s", error)
        self.assertIn("a100 is free", error)
        self.assertIn("no 't4'; it has: a100, h100, l4", self.refused(alice, "t4"))
        self.assertIn("no node of the pool has 2 h100; the largest has 1", self.refused(alice, "h100", count=2))
        self.assertIn("the pool has 2 a100, not 3", self.refused(alice, "a100", count=3))

    def ask_all_nodes_at_once(self, **more):
        """What each of two programs hears that ask two nodes at the same moment for their user's only GPU."""
        self.serve("a", "h100:2")
        self.serve("b", "h100:2")
        alice = self.user("alice")
        self.operator("user", "limit", "alice", "--gpus", "1")
        at = {"a": alice, "b": dict(alice, pool=self.addresses["b"], server_key=self.pool.server_key("b"))}
        for _ in range(5):  # 3 of 4 times both had one
            machines = [dict(user, gpu="h100", machine=dict(alice["machine"], name=f"at-{node}"), **more)
                        for node, user in at.items()]
            together = [self.pool.start(machine, [sys.executable, "-c", TOGETHER]) for machine in machines]
            for program in together:
                self.assertEqual(program.stdout.readline(), "ready\n")
            for program in together:
                os.kill(program.pid, signal.SIGUSR1)
            said = [program.communicate(timeout=60) for program in together]
            yield [out.split() for out, _ in said], "".join(errors for _, errors in said)
            wait_until(lambda: all(self.node(node)["gpus"] == "h100 2/2" for node in at), 30)

    def test_a_users_limit_holds_for_who_asks_all_nodes_at_once(self):
        for heard, errors in self.ask_all_nodes_at_once():
            self.assertLessEqual([code for code, *_ in heard].count("0"), 1, errors)

    def test_who_waits_and_loses_that_race_has_it_next(self):
        for heard, errors in self.ask_all_nodes_at_once(wait_s=50):
            self.assertEqual([code for code, *_ in heard], ["0", "0"], errors)
            first, second = sorted((float(begun), float(ended)) for _, begun, ended in heard)
            self.assertLessEqual(first[1], second[0])

    def test_check_asks_the_etcd_that_the_nodes_share(self):
        def check(store, expect):
            done = subprocess.run([BIN / "tnr-gpu-server", "check", "--emulate", "h100", "--state", f"{self.folder}/new",
                                   "--listen", "tcp://127.0.0.1:0", "--store", store], capture_output=True, text=True)
            self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
            return done.stdout
        dead = f"127.0.0.1:{etcd.free_port()}"
        self.assertRegex(check(self.etcd.store, 0), r"ok +etcd +etcd://\S+ answers")
        self.assertRegex(check(f"{self.etcd.store},{dead}", 0), rf"warn +etcd +http://{dead}: no answer \(.*\); the others do")
        self.assertRegex(check(f"etcd://{dead}", 1), rf"fail +etcd +http://{dead}: no answer \(.*\)\n +→ look at the etcd")
        # One that wants passwords says so, and what helps; nodes have none.
        for path, body in (("user/add", {"name": "root", "password": "x"}), ("user/grant", {"user": "root", "role": "root"}),
                           ("enable", {})):
            self.ask_etcd(f"auth/{path}", **body)
        self.assertRegex(check(self.etcd.store, 1), r"fail +etcd .*wants to know who asks.*\n +→ .*etcdctl auth disable")

    @unittest.skipUnless(shutil.which("etcdctl"), "needs etcd-client")
    def test_etcd_is_restored_from_a_snapshot(self):
        """What came later is forgotten; GPUs are had as before, though the numbers of their claims begin again."""
        def etcdctl(*words):
            subprocess.run(["etcdctl", *words], check=True, capture_output=True, env=dict(os.environ, ETCDCTL_API="3"))
        self.serve("a", "h100")
        self.serve("b", "a100")
        alice = self.user("alice")
        etcdctl(f"--endpoints=127.0.0.1:{self.etcd.port}", "snapshot", "save", f"{self.folder}/snapshot")
        for _ in range(20):
            self.runs(alice, "h100", 0)
        self.user("bob")
        running = self.program(alice, "a100", 60)
        running.stdout.readline()
        self.etcd.kill()
        shutil.rmtree(f"{self.folder}/etcd")
        peer = f"http://127.0.0.1:{self.etcd.peer_port}"
        etcdctl("snapshot", "restore", f"{self.folder}/snapshot", "--data-dir", f"{self.folder}/etcd", "--name", "test",
                "--initial-cluster", f"test={peer}", "--initial-advertise-peer-urls", peer)
        self.etcd.start()
        wait_until(lambda: self.program(alice, "h100", 0).wait() == 0, 20)
        wait_until(lambda: "bob" not in self.operator("user", "list"), 30)
        carol = self.user("carol")
        wait_until(lambda: self.program(carol, "h100", 0).wait() == 0, 30)
        self.assertEqual(self.node("b")["claims"], "1")
        self.ends(running)
        self.runs(alice, "a100", 0)

    def test_a_backup_says_what_is_not_in_it(self):
        self.serve("a", "h100")
        said = self.operator("backup", f"{self.folder}/backup")
        self.assertIn(f"accounts and prices are not in it, but in {self.etcd.store}: etcdctl snapshot save", said)

    def test_check_finds_the_addresses_that_serve_refuses(self):
        for words, said in (
                (["--control-address", "nonsense"], "'nonsense' is no address"),
                (["--control-address", "tcp://0.0.0.0:14900"], "leads nowhere"),
                (["--worker-bind", "192.0.2.1"], "--worker-bind: cannot bind"),
                (["--worker-address", "tcp://here:1"], "is no host"),
                (["--node", "a/b"], "is no name for a node"),
                (["--listen", "tcp://0.0.0.0:0"], "--control-address"),
                (["--state", "/etc/passwd"], "is not a folder")):
            words = [*words, *([] if "--listen" in words else ["--listen", "tcp://127.0.0.1:0"]),
                     *([] if "--state" in words else ["--state", f"{self.folder}/new"]), "--emulate", "h100", "--store",
                     self.etcd.store]
            for command, expect in (("check", 1), ("serve", 2)):
                done = subprocess.run([BIN / "tnr-gpu-server", command, *words], capture_output=True, text=True, timeout=30)
                self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
                self.assertIn(said, done.stdout + done.stderr)

    def ask_etcd(self, path, **body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.etcd.port}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def test_etcd_is_full(self):
        """What runs goes on, what ends is gone, what begins hears why; and all is well as soon as there is room."""
        self.etcd.kill()
        self.etcd.more = ("--quota-backend-bytes", str(4 << 20))
        self.etcd.start()
        self.serve("a", "h100")
        alice = self.user("alice")
        runs = self.program(alice, "h100", 60)
        runs.stdout.readline()
        big, key = base64.b64encode(os.urandom(300_000)).decode(), base64.b64encode(b"another's").decode()
        with self.assertRaises(urllib.error.HTTPError) as refused:
            for _ in range(100):
                self.ask_etcd("kv/put", key=key, value=big)
        refused.exception.close()
        self.assertIn("etcdctl alarm disarm", self.operator("user", "add", "bob", expect=1))
        check = subprocess.run([BIN / "tnr-gpu-server", "check", "--emulate", "h100", "--state", f"{self.folder}/new",
                                "--listen", "tcp://127.0.0.1:0", "--store", self.etcd.store], capture_output=True, text=True)
        self.assertRegex(check.stdout, r"fail +etcd +\S+ memberID:\d+ alarm:NOSPACE *\n +→ .*etcdctl alarm disarm")
        self.assertEqual(check.returncode, 1)
        self.ends(runs)
        wait_until(lambda: self.node("a")["claims"] == "0", 30)
        full = r"the pool's store, etcd://\S+, is full \(.*database space exceeded\)[\s\S]*etcdctl alarm disarm"
        self.assertRegex(self.refused(alice, "h100"), full)
        self.assertRegex(self.refused(alice, "h100", TNR_WAIT="forever"), full)
        with self.assertRaises(AssertionError) as not_started:
            self.serve("b", "h100")
        self.assertRegex(str(not_started.exception), "does not take in the node 'b': " + full)
        self.pool.stop("b")
        now = self.ask_etcd("kv/range", key=key)["header"]["revision"]
        self.ask_etcd("kv/compaction", revision=now, physical=True)
        self.ask_etcd("maintenance/defragment")
        for alarm in self.ask_etcd("maintenance/alarm", action="GET")["alarms"]:
            self.ask_etcd("maintenance/alarm", action="DEACTIVATE", **alarm)
        self.runs(alice, "h100")

    def test_a_nodes_key_is_another(self):
        """The others send clients there with the new one: also once the old one is worthless."""
        self.serve("a", "h100")
        self.serve("b", "a100")
        alice = self.user("alice")
        self.runs(alice, "a100")
        before = self.key_of("b")
        self.operator("rotate-key", node="b")
        wait_until(lambda: self.key_of("b") != before, 20)
        self.operator("rotate-key", "--drop-old", node="b")
        wait_until(lambda: "old key is worthless" in self.log("b"), 20)
        self.runs(alice, "a100")

    def key_of(self, node):
        """As the others tell it."""
        prefix = base64.b64encode(b"/tnr/view/nodes/" + node.encode()).decode()
        found = self.ask_etcd("kv/range", key=prefix)["kvs"]
        return json.loads(base64.b64decode(found[0]["value"]))["server_key"]

    def test_a_node_dies(self):
        self.serve("a", "h100")
        self.serve("b", "a100")
        alice, bob = self.user("alice"), self.user("bob")
        there = self.program(alice, "a100", 60)
        there.stdout.readline()
        here = self.program(bob, "h100", 9)
        here.stdout.readline()
        self.assertEqual(self.node("b")["claims"], "1")
        os.killpg(self.servers["b"].pid, signal.SIGKILL)
        self.pool.stop("b")
        _, took = wait_until(lambda: self.node("b")["state"].startswith("gone"), FREED_WITHIN_S)
        self.assertEqual(self.node("b")["claims"], "-")
        print(f"claims of a node that was killed: free after {took:.1f} s", file=sys.stderr)
        begun = time.monotonic()
        _, errors = there.communicate(timeout=60)
        print(f"its client ended {time.monotonic() - begun:.1f} s later: {errors}", file=sys.stderr)
        self.assertNotEqual(there.returncode, 0)
        self.assertRegex(errors, "lost|gone|node")
        out, errors = here.communicate(timeout=30)
        self.assertIn("done", out, errors)
        self.serve("b", "a100")
        self.runs(alice, "a100")

    def test_a_node_sleeps_and_its_gpu_goes_to_another(self):
        """Two servers of one host with the same GPU. One is stopped until the operator gives its GPU to the other."""
        self.serve("a", "l4")
        self.serve("b", "h100", "--emulated-seed", "shared")
        alice, bob = self.user("alice"), self.user("bob")
        first = self.program(alice, "h100", 90)
        gpu = first.stdout.readline().strip()
        asleep = self.servers.pop("b")
        self.addCleanup(lambda: (asleep.kill(), asleep.wait()))
        workers = subprocess.run(["pgrep", "-P", str(asleep.pid)], capture_output=True, text=True).stdout.split()
        for process in [asleep.pid, *map(int, workers)]:
            processes.freeze(process)
            self.addCleanup(lambda process=process: os.path.exists(f"/proc/{process}") and os.kill(process, signal.SIGCONT))
        wait_until(lambda: self.node("b")["state"].startswith("gone"), 20)
        self.operator("remove-node", "b")
        self.serve("c", "h100", "--emulated-seed", "shared")
        second = self.program(bob, "h100", 20)
        self.assertEqual(second.stdout.readline().strip(), gpu)
        # The worker alone, then the supervisor that still believes in its claim.
        for process in map(int, workers):
            os.kill(process, signal.SIGCONT)
        _, errors = first.communicate(timeout=60)
        self.assertNotEqual(first.returncode, 0)
        self.assertIn("has been given to another", errors)
        os.kill(asleep.pid, signal.SIGCONT)
        out, errors = second.communicate(timeout=60)
        self.assertIn("done", out, errors)

    def test_a_node_is_drained(self):
        self.serve("a", "h100")
        self.serve("b", "h100")
        alice, bob = self.user("alice"), self.user("bob")
        first = self.program(alice, "h100", 90)
        gpu = first.stdout.readline().strip()
        drained = "a" if self.node("a")["claims"] == "1" else "b"
        self.operator("drain", "c", expect=1)
        self.operator("drain", drained)
        wait_until(lambda: self.node(drained)["state"] == "draining", 20)
        wait_until(lambda: "it is being drained" in self.operator("status", node=drained), 20)
        wait_until(lambda: f"{drained} (draining)" in self.operator("status", node="ba"[drained == "b"]), 20)
        self.assertNotEqual(self.runs(bob, "h100"), gpu)
        self.assertEqual(self.runs(alice, "h100"), gpu)  # another program of a claim that is there
        self.ends(first)
        wait_until(lambda: self.node(drained)["state"] == "drained", 20)
        other = self.runs(alice, "h100")
        self.assertNotEqual(other, gpu)
        # Its server is replaced while a program runs at the other.
        running = self.program(bob, "h100", 5)
        running.stdout.readline()
        self.pool.stop(drained)
        wait_until(lambda: self.node(drained)["state"].startswith("gone"), FREED_WITHIN_S) if drained != "a" else None
        out, errors = running.communicate(timeout=30)
        self.assertIn("done", out, errors)
        self.operator("undrain", drained)

    def test_addresses(self):
        """Nodes behind routers: where they listen and what clients are told are two things. IPv6 literals."""
        self.serve("a", "h100", "--listen", "tcp://[::1]:0")
        self.assertRegex(self.addresses["a"], r"^tcp://\[::1\]:\d+$")
        port = etcd.free_port()
        # Listens everywhere, its workers on one address; clients go through a name.
        self.serve("b", "a100", "--listen", f"tcp://0.0.0.0:{port}", "--control-address", f"tcp://localhost:{port}",
                   "--worker-bind", "127.0.0.1", "--worker-address", "localhost", "--worker-ports", f"{port + 1}-{port + 8}")
        alice = self.user("alice")
        self.assertIn("[::1]", alice["pool"])
        self.runs(alice, "h100")
        program = self.program(alice, "a100", 5)
        program.stdout.readline()
        connections = subprocess.run(["ss", "-tnp"], capture_output=True, text=True).stdout
        ours = [line for line in connections.splitlines() if f"pid={program.pid}," in line]
        self.assertTrue(any(re.search(rf"127\.0\.0\.1:({'|'.join(str(port + i) for i in range(1, 9))})\b", line)
                            for line in ours), ours)
        listening = subprocess.run(["ss", "-tlnp"], capture_output=True, text=True).stdout
        self.assertFalse(re.search(rf"0\.0\.0\.0:({'|'.join(str(port + i) for i in range(1, 9))})\b", listening))
        out, errors = program.communicate(timeout=30)
        self.assertIn("done", out, errors)

    def test_etcd_is_away(self):
        self.serve("a", "h100,l4")
        self.serve("b", "a100")
        alice, bob = self.user("alice"), self.user("bob")
        programs = [self.program(alice, "h100", 12), self.program(alice, "a100", 12)]
        for program in programs:
            program.stdout.readline()
        self.etcd.kill()
        time.sleep(3.5)  # longer than the leases
        error = self.refused(bob, "l4")
        self.assertIn("out of touch with its pool", error)
        self.assertIn("programs that run are not touched", error)
        serves = threading.Thread(target=self.serve, args=("c", "l4"))  # a server waits for its store to be there
        serves.start()
        wait_until(lambda: "does not answer" in self.log("c"), 15)
        self.etcd.start(False)
        serves.join()
        _, took = wait_until(lambda: self.program(bob, "l4", 0).wait() == 0, 30)
        print(f"etcd is back: claims again after {took:.1f} s", file=sys.stderr)
        for program in programs:
            out, errors = program.communicate(timeout=30)
            self.assertIn("done", out, errors)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
