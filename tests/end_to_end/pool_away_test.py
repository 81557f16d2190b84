#!/usr/bin/env python3
"""A pool of two nodes on one etcd, of which something goes away: a node dies or sleeps; etcd is away, full, or restored from a
snapshot.

    pool_away_test.py BIN LIB    BIN: folder of tnr and tnr-gpu-server; LIB: folder of libcuda.so.1
"""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import unittest
import urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import etcd  # noqa: E402
import pool_case  # noqa: E402
import ports  # noqa: E402
import processes  # noqa: E402
import proxy  # noqa: E402
from nodes import wait_until  # noqa: E402

BIN, LIB = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
SOON_S = 30  # promised are 5; the machine may be busy


@unittest.skipUnless(etcd.program(), "no etcd: apt-get install etcd-server")
class PoolAway(pool_case.PoolCase):
    folders = BIN, LIB

    def test_check_asks_the_etcd_that_the_nodes_share(self):
        def check(store, expect):
            done = subprocess.run([BIN / "tnr-gpu-server", "check", "--emulate", "h100", "--state", f"{self.folder}/new",
                                   "--listen", "tcp://127.0.0.1:0", "--store", store], capture_output=True, text=True)
            self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
            return done.stdout
        unused = ports.Ports(1)
        self.addCleanup(unused.close)
        dead = f"127.0.0.1:{unused.first}"
        self.assertRegex(check(self.etcd.store, 0), r"ok +etcd +etcd://\S+ answers")
        self.assertRegex(check(f"{self.etcd.store},{dead}", 0), rf"warn +etcd +http://{dead}: no answer \(.*\); the others do")
        self.assertRegex(check(f"etcd://{dead}", 1), rf"fail +etcd +http://{dead}: no answer \(.*\)\n +→ look at the etcd")
        # One that wants passwords says so, and what helps; nodes have none.
        for path, body in (("user/add", {"name": "root", "password": "x"}), ("user/grant", {"user": "root", "role": "root"}),
                           ("enable", {})):
            self.ask_etcd(f"auth/{path}", **body)
        self.assertRegex(check(self.etcd.store, 1), r"fail +etcd .*wants to know who asks.*\n +→ .*etcdctl auth disable")

    def test_a_store_that_was_never_reached_does_not_take_the_place_of_the_one_that_was(self):
        def operator(*words):
            done = subprocess.run([BIN / "tnr-gpu-server", "user", *words, "--state", f"{self.folder}/new"], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout
        operator("add", "alice", "--address", "tcp://192.0.2.1:14900")
        unused = ports.Ports(1)
        self.addCleanup(unused.close)
        with subprocess.Popen([BIN / "tnr-gpu-server", "serve", "--emulate", "h100", "--state", f"{self.folder}/new", "--listen",
                               "tcp://127.0.0.1:0", "--store", f"etcd://127.0.0.1:{unused.first}"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
            try:
                self.assertTrue(any("does not answer" in line for line in server.stderr))  # it asks again from here on
            finally:
                server.terminate()
        self.assertNotEqual(server.returncode, 0)
        self.assertIn("alice", operator("list"))

    def test_an_etcd_that_writes_slowly(self):
        """A claim is made all the same. Where it is too slow for that, the store is blamed, and nobody pays for the time."""
        between = proxy.Proxy(("127.0.0.1", 0), ("127.0.0.1", self.etcd.port))
        self.addCleanup(between.close)
        self.pool.store = f"etcd://127.0.0.1:{between.port}"
        self.serve("a", "h100")
        alice = self.user("alice")
        over, slow_s = threading.Event(), 0
        self.addCleanup(over.set)
        def change(connection, target, data):
            if target is connection.server and (b'"request_put"' in data or b'"request_delete_range"' in data):
                over.wait(slow_s)
            return data
        between.change = change
        slow_s = 1.5  # longer than a node waits for the first answer
        self.runs(alice, "h100")
        slow_s = 60
        self.assertIn("the pool's store did not take the claim in time", self.refused(alice, "h100"))
        self.assertIn("the pool's store did not take it in time", self.log("a"))
        wait_until(lambda: len(self.ended_claims("a")) == 2, 30)
        served, never = self.ended_claims("a")
        self.assertGreater(served["lasted_ms"], 0)
        self.assertEqual(never["lasted_ms"], 0)

    def test_a_node_that_was_restarted_has_its_gpus_whatever_the_one_before_said_last(self):
        """That gave them away, and its words were on their way for so long that nobody waited any more."""
        between = proxy.Proxy(("127.0.0.1", 0), ("127.0.0.1", self.etcd.port))
        self.addCleanup(between.close)
        self.pool.store = f"etcd://127.0.0.1:{between.port}"
        late = []
        def change(connection, target, data):
            if target is connection.server and b'"request_delete_range"' in data:
                late.append(data.partition(b"\r\n\r\n")[2])
                time.sleep(2)  # until the node has given up
            return data
        self.serve("a", "h100")
        alice = self.user("alice")
        self.runs(alice, "h100")
        between.change = change
        self.pool.stop("a")
        between.change = lambda connection, target, data: data
        self.assertTrue(late)
        self.serve("a", "h100")
        for words in late:
            self.ask_etcd("kv/txn", **json.loads(words))
        self.runs(dict(alice, pool=self.addresses["a"]), "h100")

    def ended_claims(self, node):
        with contextlib.closing(sqlite3.connect(f"file:{self.folder}/{node}/pool.db?mode=ro", uri=True)) as ledger:
            ledger.row_factory = sqlite3.Row
            return ledger.execute("SELECT until_ms - began_ms AS lasted_ms FROM claims WHERE ended_ms IS NOT NULL "
                                  "ORDER BY id").fetchall()

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
        _, took = wait_until(lambda: self.node("b")["state"].startswith("gone"), SOON_S)
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

    def test_etcd_is_away(self):
        self.serve("a", "h100,l4")
        self.serve("b", "a100")
        alice, bob = self.user("alice"), self.user("bob")
        programs = [self.program(alice, "h100", 200), self.program(alice, "a100", 200)]
        for program in programs:
            program.stdout.readline()
        self.etcd.kill()
        time.sleep(3.5)  # longer than the leases
        error = self.refused(bob, "l4")
        self.assertIn("out of touch with its pool", error)
        self.assertIn("programs that run are not touched", error)
        status = self.operator("status")  # most wanted then; what only the store knows is said to be unknown
        self.assertRegex(status, r"a h100 #0  claimed +alice")
        self.assertIn("What users may have is not known", status)
        self.assertIsNone(json.loads(self.operator("status", "-o", "json"))["limits"])
        waits = self.program(bob, "l4", 0, TNR_WAIT="60")  # for that, too
        serves = threading.Thread(target=self.serve, args=("c", "l4"))  # a server waits for its store to be there
        serves.start()
        wait_until(lambda: "does not answer" in self.log("c"), 15)
        self.etcd.start(False)
        serves.join()
        out, errors = waits.communicate(timeout=60)
        self.assertIn("done", out, errors)
        _, took = wait_until(lambda: self.program(bob, "l4", 0).wait() == 0, 30)
        print(f"etcd is back: claims again after {took:.1f} s", file=sys.stderr)
        for program in programs:
            self.assertIsNone(program.poll())
            self.ends(program)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
