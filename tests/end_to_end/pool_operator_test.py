#!/usr/bin/env python3
"""A pool of several nodes as its operator sees it at any one of them: who has what, who waits, what was used and its cost.

    pool_operator_test.py BIN LIB OUT    BIN: folder of tnr-gpu-server; LIB: of libcuda.so.1; OUT: for screenshots
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import etcd  # noqa: E402
import nodes  # noqa: E402
from nodes import wait_until  # noqa: E402

BIN, LIB, OUT = (pathlib.Path(each).resolve() for each in sys.argv[1:4])
FIGURES = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "pool_figures.py"
LIMIT_S = 60

# Holds its GPU for as long as it is told.
PROGRAM = """
import ctypes, sys, time
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
for call in (lambda: cuda.cuInit(0), lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)):
    if code := call():
        sys.exit(f"code {code}")
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""


@unittest.skipUnless(etcd.program(), "no etcd: apt-get install etcd-server")
class PoolOperator(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.pool = nodes.Pool(BIN, LIB, folder.name)
        self.pool.__enter__()
        self.addCleanup(self.pool.__exit__)
        self.pool.serve("a", "h100", "--http", "127.0.0.1:0")
        self.pool.serve("b", "a100,l4")
        self.url = re.search(r"watch it at (\S+)", self.pool.log("a")).group(1)

    def program(self, user, gpu, seconds):
        program = self.pool.start(dict(user, gpu=gpu, count=1), [sys.executable, "-c", PROGRAM, str(seconds)])
        for cleanup in (program.stdout.close, program.stderr.close, program.wait, program.kill):
            self.addCleanup(cleanup)
        return program

    def serve_a_silent_node(self):
        """One that says to the others that it is where nobody is. Its clients know better."""
        self.pool.serve("c", "t4", "--control-address", "tcp://127.0.0.1:9")
        user = self.pool.user("carol")
        return dict(user, pool=self.pool.addresses["c"], server_key=self.pool.server_key("c"))

    def get(self, path):
        return json.loads(urllib.request.urlopen(self.url + path, timeout=10).read())

    def shows(self, *patterns):
        """What status says, once it has all of these: a node that took half a second to answer is left alone for ten."""
        for _ in range(LIMIT_S):
            shown = self.pool.operator("status", node="a")
            missing = [pattern for pattern in patterns if not re.search(pattern, shown, re.M)]
            if not missing:
                return shown
            time.sleep(1)
        self.fail(f"no {missing} in\n{shown}")

    def test_status_of_one_node_shows_the_pool(self):
        holds = self.program(self.pool.user("alice"), "a100", 600)
        holds.stdout.readline()
        waits = self.program(dict(self.pool.user("bob"), wait_s=600), "a100", 0)
        waits.stderr.readline()  # its place in the queue
        shown = self.shows(r"^1 a100 +1 of 1 at b +bob +bob ", r"The pool has 1 more: b$", r"^a h100 #0 +free ",
                           r"^b a100 #0 +claimed +alice +alice +\d+\S* +0% +python", r"^b l4 #1 +free ")
        self.assertNotIn("AT NODE", shown)
        # A node that is silent says nothing of itself; who has its GPUs, the pool's store knows.
        self.program(self.serve_a_silent_node(), "t4", 600).stdout.readline()
        shown = self.shows(r"^c +1 t4 +carol +carol ", r"The pool has 2 more: b, c \(does not say what it has\)$",
                           r"^b a100 #0 +claimed +alice ")
        self.assertNotRegex(shown, r"(?m)^c t4 #0")

    def test_the_last_day_of_one_nodes_page_is_the_pools(self):
        self.pool.operator("prices", "set", "a100", "3600/h", node="b")
        alice, bob = self.pool.user("alice"), self.pool.user("bob")
        for user, gpu in ((alice, "a100"), (alice, "h100"), (bob, "h100")):
            self.assertEqual(self.program(user, gpu, 1.1).wait(timeout=LIMIT_S), 0)

        def by_user(day):
            return {user["user"]: user for user in day["users"]}

        def day_with(is_so):  # a node that took half a second to answer is left alone for ten
            return wait_until(lambda: is_so(day := self.get("api/day")) and day, LIMIT_S)[0]
        day = day_with(lambda day: day["silent"] == [] and by_user(day).get("alice", {}).get("claims") == 2)
        self.assertEqual((day["nodes"], day["whole"]), (["a", "b"], True))
        used = by_user(day)
        self.assertEqual(used["bob"]["claims"], 1)
        self.assertGreater(used["alice"]["gpu_s"], 2)
        (cost,) = used["alice"]["cost"]  # of b's GPU alone: the other type has no price
        self.assertEqual(cost["currency"], "USD")
        self.assertGreater(cost["amount"], 1)
        self.assertGreater(used["alice"]["unpriced_s"], 1)
        self.assertEqual(sum(part["claims"] for part in day["parts"]), 3)
        self.assertAlmostEqual(sum(part["held_s"] for part in day["parts"]), sum(user["gpu_s"] for user in day["users"]), 1)
        # The same asked of the other node: its watch address is a socket in its folder.
        answer = subprocess.run(["curl", "-sf", "--unix-socket", f"{self.folder}/b/watch.sock", "http://localhost/api/day"],
                                capture_output=True, check=True).stdout
        self.assertIn("alice", {user["user"] for user in json.loads(answer)["users"]})
        # Without a node that does not answer, it says so.
        self.serve_a_silent_node()
        day = day_with(lambda day: day["silent"] == ["c"])
        self.assertEqual(day["nodes"], ["a", "b"])
        # What a node said before it went is still there.
        self.pool.servers["b"].kill()
        day = day_with(lambda day: [(one["node"], one["gone"]) for one in day["earlier"]] == [("b", True)])
        self.assertEqual(day["nodes"], ["a"])
        self.assertEqual(by_user(day)["alice"]["claims"], 2)
        self.assertEqual(by_user(day)["alice"]["cost"][0]["currency"], "USD")

    def test_the_quickstarts_figures_have_what_users_had_once(self):
        self.pool.serve("d", "t4", "--http", "127.0.0.1:0")
        alice, bob = self.pool.user("alice"), self.pool.user("bob")
        for user, gpu in ((alice, "h100"), (alice, "t4"), (bob, "t4")):
            self.assertEqual(self.program(user, gpu, 0).wait(timeout=LIMIT_S), 0)
        for began_anew in (False, True):
            if began_anew:  # it counts one of alice's, and the day of before has three more
                self.pool.stop("d")
                self.pool.serve("d", "t4", "--http", "127.0.0.1:0")
                self.assertEqual(self.program(alice, "t4", 0).wait(timeout=LIMIT_S), 0)
            urls = [re.findall(r"watch it at (\S+)", self.pool.log(node))[-1] for node in "ad"]
            said = subprocess.run([sys.executable, FIGURES, *["--began-anew"] * began_anew, *urls], check=True, text=True,
                                  capture_output=True).stdout
            nodes, pool = said.split("\nthe pool\n")
            self.assertRegex(nodes, r"(?m)^a, http\S+\n  GPUs free +\d of 1\n  claims, programs +1, ")
            self.assertRegex(nodes, rf"(?m)^d, http\S+\n  GPUs free +\d of 1\n  claims, programs +{1 if began_anew else 2}, ")
            self.assertNotIn("user ", nodes)
            self.assertRegex(pool, rf"(?m)^  user alice +{2 + began_anew} claims, ")
            self.assertRegex(pool, r"(?m)^  user bob +1 claims, ")
            self.assertEqual(len(pool.splitlines()), 2, pool)

    def test_a_silent_node_is_known_to_be(self):
        self.serve_a_silent_node()
        wait_until(lambda: self.get("api/now")["silent"] == ["c"], LIMIT_S)
        self.shows(r"b, c \(does not say what it has\)")

    @unittest.skipUnless(shutil.which("chromium"), "chromium is not there")
    def test_the_page_of_one_node_shows_the_pool(self):
        self.program(self.pool.user("alice"), "a100", 600).stdout.readline()
        wait_until(lambda: any(one["claims"] for one in self.get("api/now")["fellows"]), LIMIT_S)
        wait_until(lambda: self.get("api/day")["users"], LIMIT_S)
        OUT.mkdir(parents=True, exist_ok=True)
        common = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=6000",
                  f"--user-data-dir={self.folder}/chromium"]
        shot = OUT / "watch-page-pool.png"
        shot.unlink(missing_ok=True)
        subprocess.run([*common, "--window-size=1200,1500", f"--screenshot={shot}", self.url], check=True, capture_output=True,
                       timeout=120)
        self.assertGreater(shot.stat().st_size, 20_000)

        def page_shows(*patterns):  # a node that took half a second to answer is left alone for ten
            for _ in range(5):
                page = subprocess.run([*common, "--dump-dom", self.url], check=True, text=True, capture_output=True,
                                      timeout=120).stdout
                text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split("<main>")[1].split("<script>")[0]))
                missing = [pattern for pattern in patterns if not re.search(pattern, text)]
                if not missing:
                    return
                time.sleep(3)
            self.fail(f"no {missing} in\n{text}")
        page_shows(r"a h100 #0 +free", r"b a100 #0 +claimed +alice / alice ", r"b l4 #1 +free",
                   r"Of the 2 nodes that are there\.", r"Cost by user, last day.* alice +1 +\d+")
        self.serve_a_silent_node()
        page_shows(r"Not in it, for they have not said what was used there: c\.")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
