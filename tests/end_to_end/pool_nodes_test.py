#!/usr/bin/env python3
"""A pool of two nodes on one etcd, as its users and its operator meet it: any node answers, a limit holds for all of them, one
is drained.

    pool_nodes_test.py BIN LIB    BIN: folder of tnr and tnr-gpu-server; LIB: folder of libcuda.so.1
"""
import base64
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import etcd  # noqa: E402
import pool_case  # noqa: E402
import ports  # noqa: E402
import processes  # noqa: E402
from nodes import wait_until  # noqa: E402

BIN, LIB = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

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
class PoolNodes(pool_case.PoolCase):
    folders = BIN, LIB

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
        running = self.program(alice, "a100", 300)
        running.stdout.readline()

        def all_say():  # a node that took half a second to answer is left alone for ten
            now = tnr("pool", "top")
            return not any(node["silent"] for node in now["nodes"]) and now
        now, _ = wait_until(all_say, 60)
        self.assertEqual(sorted(node["name"] for node in now["nodes"]), ["a", "b"])
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
        wait_until(lambda: {"a100", "h100"} <= {line["name"] for line in tnr("billing", "--by", "gpu")["lines"]}, 60)
        wait_until(lambda: tnr("billing")["pools"][0]["silent"] == [], 60)
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
        wait_until(lambda: self.node(drained)["state"].startswith("gone"), 20) if drained != "a" else None
        out, errors = running.communicate(timeout=30)
        self.assertIn("done", out, errors)
        self.operator("undrain", drained)

    def test_addresses(self):
        """Nodes behind routers: where they listen and what clients are told are two things. IPv6 literals."""
        self.serve("a", "h100", "--listen", "tcp://[::1]:0")
        self.assertRegex(self.addresses["a"], r"^tcp://\[::1\]:\d+$")
        free = ports.Ports(9)
        self.addCleanup(free.close)
        port = free.first
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
