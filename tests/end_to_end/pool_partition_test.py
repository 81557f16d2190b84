#!/usr/bin/env python3
"""Three nodes and an etcd, of one member or of three, each in a network namespace of its own, while networks are cut, processes
killed and stopped, and clocks jump, etcd's too. Afterwards every node's history is read: no GPU ever had two owners, and nobody was taken for dead
who believed in its lease. Nodes b and c have the same GPU, as two servers of one host would: only one of them may serve it.

    pool_partition_test.py BIN LIB CLOCK OTHER_CLOCK [SECONDS] [SEED]     CLOCK: clock_jump.so; needs root
"""
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import etcd  # noqa: E402
import history  # noqa: E402
import nodes  # noqa: E402
import with_server  # noqa: E402

BIN, LIB, CLOCK, OTHER_CLOCK = map(pathlib.Path, sys.argv[1:5])
SECONDS = float(sys.argv[5]) if len(sys.argv) > 5 else 30
SEED = int(sys.argv[6]) if len(sys.argv) > 6 else random.randrange(1 << 30)
NODES = {"a": "10.77.0.11", "b": "10.77.0.12", "c": "10.77.0.13"}
MEMBERS, USERS = ["10.77.0.1", "10.77.0.2", "10.77.0.3"], "10.77.0.20"
CLIENTS = 4
AFTER_A_LEASE_S = 4.5  # it has three seconds, and etcd ends it within another half
LONG_S = 60
HEARD_S = 30  # promised are 11, until the connection to a member that is silent is taken for dead; the machine may be busy
JUMPS = [-86400, -60, 5, 3600, 86400 * 400]  # seconds

PROGRAM = """
import ctypes, sys, time
cuda, at, buffer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), bytes(1 << 16)
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} returned {code}")
context = ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(1 << 16))
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    call("cuMemcpyHtoD_v2", at, buffer, ctypes.c_size_t(len(buffer)))
    call("cuMemcpyDtoH_v2", buffer, at, ctypes.c_size_t(len(buffer)))
    time.sleep(0.02)
"""


def boot_ms():
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


class Network:
    """A switch, and namespaces with one cable each to it."""

    def __init__(self):
        self.mark = f"tnr{os.getpid() % 100000}"
        self.names = []
        self.switch = self.space("s")
        self.inside(self.switch, "ip", "link", "add", "sw", "type", "bridge")
        self.inside(self.switch, "ip", "link", "set", "sw", "up")

    def space(self, name):
        subprocess.run(["ip", "netns", "add", f"{self.mark}{name}"], check=True)
        self.names.append(f"{self.mark}{name}")
        self.inside(self.names[-1], "ip", "link", "set", "lo", "up")
        return self.names[-1]

    def inside(self, space, *command):
        subprocess.run(["ip", "netns", "exec", space, *command], check=True)

    def add(self, name, address):
        space, cable = self.space(name), f"cable{name}"
        subprocess.run(["ip", "link", "add", cable, "netns", self.switch, "type", "veth", "peer", "name", "eth", "netns",
                        space], check=True)
        self.inside(self.switch, "ip", "link", "set", cable, "master", "sw", "up")
        self.inside(space, "ip", "address", "add", f"{address}/24", "dev", "eth")
        self.inside(space, "ip", "link", "set", "eth", "up")
        return ("ip", "netns", "exec", space)

    def cut(self, name, cut):
        self.inside(self.switch, "ip", "link", "set", f"cable{name}", "down" if cut else "up")

    def part(self, name, addresses, parted):
        """From these alone."""
        for address in addresses:
            self.inside(f"{self.mark}{name}", "ip", "route", "add" if parted else "delete", "blackhole", f"{address}/32")

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name])


class Checker(unittest.TestCase):
    """The checker itself: it would find what must not be."""

    def test_two_owners_are_found(self):
        def has(node, t, claim, fence):
            return {"event": "has", "node": node, "t_ms": t, "claim": claim, "gpus": ["G"], "fence": fence, "until_ms": t + 9}
        end = {"event": "has not", "node": "b", "t_ms": 30, "claim": 1}
        self.assertEqual(history.complaints([has("b", 10, 1, 5), end, has("c", 40, 1, 7)], {}), [])
        self.assertIn("two owners", history.complaints([has("b", 10, 1, 5), has("c", 20, 1, 7), end], {})[0])
        self.assertIn("fences", history.complaints([has("b", 10, 1, 5), end, has("c", 40, 1, 4)], {})[0])
        self.assertEqual(history.complaints([has("b", 10, 1, 5), has("c", 40, 1, 7)], {"b": [20]}), [])

    def test_a_lease_that_was_not_respected_is_found(self):
        def sees(node, t, nodes, until=0):
            return {"event": "sees", "node": node, "t_ms": t, "nodes": nodes, "joined": until > 0, "fence": 3,
                    "until_ms": until}
        believes = [sees("b", 10, {"b": 3}, 2500), sees("a", 20, {"b": 3})]
        self.assertEqual(history.complaints(believes + [sees("a", 3000, {})], {}), [])
        self.assertIn("for dead", history.complaints(believes + [sees("a", 2000, {})], {})[0])


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip") and etcd.program(), "needs root, iproute2 and etcd-server")
class Partitions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.network = Network()
        self.addCleanup(self.network.remove)
        self.spaces = {name: self.network.add(name, address) for name, address in NODES.items()}
        self.users = self.network.add("u", USERS)
        self.servers, self.deaths, self.ran = {}, {name: [] for name in NODES}, {}
        self.random = random.Random(SEED)

    def clock(self, name, jump=None):
        """The file that says how far somebody's clock has jumped."""
        clock = pathlib.Path(f"{self.folder}/{name}.clock")
        if jump is None:
            if not clock.exists():
                clock.write_bytes(struct.pack("q", 0))
        else:
            with open(clock, "r+b") as file:
                file.write(struct.pack("q", jump))
        return str(clock)

    def serve(self, node):
        with open(f"{self.folder}/{node}.log", "a") as log:
            self.servers[node] = subprocess.Popen(
                [*self.spaces[node], BIN / "tnr-gpu-server", "serve", "--listen", f"tcp://{NODES[node]}:14900",
                 "--emulate", "h100", "--emulated-memory", "256", "--emulated-seed", "a" if node == "a" else "shared",
                 "--linger-ms", "0", "--state", f"{self.folder}/{node}", "--store", self.store, "--node", node,
                 "--history", f"{self.folder}/{node}.history"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
                env=dict(os.environ, LD_PRELOAD=str(CLOCK), TNR_CLOCK_JUMP=self.clock(node)))
        self.addCleanup(self.end, node)

    def end(self, node):
        server = self.servers.pop(node, None)
        if server:
            os.kill(server.pid, signal.SIGCONT)
            with_server.stop(server)

    def all_are_there(self):
        said = subprocess.run([*self.spaces["a"], BIN / "tnr-gpu-server", "nodes", "--state", f"{self.folder}/a"],
                              capture_output=True, text=True).stdout
        return [line.split()[:2] for line in said.splitlines() if line.split()[0] in NODES] == [[node, "ready"] for node in NODES]

    def all_serve(self):
        """A node is in the pool a moment before its folder knows the address that keys are for."""
        return all(" serves " in pathlib.Path(f"{self.folder}/{node}.log").read_text() for node in NODES)

    def operator(self, *words):
        done = subprocess.run([*self.spaces["a"], BIN / "tnr-gpu-server", *words, "--state", f"{self.folder}/a"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def enroll(self, name="alice"):
        words = self.operator("user", "add", name).replace("'", "").split()
        keys = next(line for line in self.operator("user", "list").splitlines() if line.split()[0] == name)
        return {"secret_key": words[1], "public_key": keys.split()[-1]}

    def server_key(self, node):
        entry = next(line for line in subprocess.run(
            [*self.spaces["a"], BIN / "tnr-gpu-server", "user", "add", f"at-{node}", "--state", f"{self.folder}/{node}"],
            check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines())
        return entry.replace("'", "").split()[-1]

    def run_program(self, name, node, seconds):
        config = {"pool": f"tcp://{NODES[node]}:14900", "gpu": "h100", "wait_s": 3, "server_key": self.keys[node],
                  "machine": dict(self.own, name=name)}
        path = f"{self.folder}/{name}.json"
        pathlib.Path(path).write_text(json.dumps(config))
        return subprocess.run(
            [*self.users, sys.executable, "-c", PROGRAM, str(seconds)], capture_output=True, text=True, timeout=120,
            env=dict(os.environ, TNR_CONFIG=path, LD_LIBRARY_PATH=str(LIB), HOME=self.folder, TNR_GRACE_MS="3000"))

    def use(self, number, until):
        dice = random.Random(SEED + number)
        for turn in range(10_000):
            if time.monotonic() > until:
                return
            done = self.run_program(f"m{number}-{turn}", dice.choice(list(NODES)), dice.uniform(0, 1))
            self.ran[done.returncode == 0] = self.ran.get(done.returncode == 0, 0) + 1

    def trouble(self):
        node, how_long = self.random.choice(list(NODES)), self.random.uniform(0.5, 6)
        kind = self.random.choice(["cut", "stop", "kill", "restart", "clock", "etcd stops", "etcd's clock", "etcd is cut",
                                   "etcd is killed"])
        member = self.random.choice(self.members)
        if kind == "etcd stops" and len(self.members) > 1 and etcd.ends_leases_of_the_living() and member.leads():
            member = self.members[self.members.index(member) - 1]
        print(f"{kind} {member.name if 'etcd' in kind else node} {how_long:.1f} s", file=sys.stderr)
        server = self.servers[node]
        if kind == "cut":
            self.network.cut(node, True)
            time.sleep(how_long)
            self.network.cut(node, False)
        elif kind == "stop":
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(how_long)
            os.kill(server.pid, signal.SIGCONT)
        elif kind == "kill":
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            self.deaths[node].append(boot_ms())
            self.serve(node)
        elif kind == "restart":
            self.deaths[node].append(boot_ms())
            self.end(node)
            self.serve(node)
        elif kind == "clock":
            self.clock(node, self.random.choice(JUMPS))
        elif kind == "etcd's clock":
            self.clock(member.name, self.random.choice(JUMPS))
        elif kind == "etcd is cut":
            self.network.cut(member.name, True)
            time.sleep(how_long)
            self.network.cut(member.name, False)
        elif kind == "etcd is killed":
            member.kill()
            time.sleep(how_long)
            member.start(wait=False)
        else:
            os.killpg(member.process.pid, signal.SIGSTOP)
            time.sleep(how_long)
            os.killpg(member.process.pid, signal.SIGCONT)

    def member(self, address):
        name = f"e{address[-1]}"
        folder = f"{self.folder}/{name}"
        os.mkdir(folder)
        made = etcd.Etcd(folder, address, (*self.network.add(name, address), OTHER_CLOCK, self.clock(name)), name, alone=False)
        self.addCleanup(made.kill)
        return made

    def begin(self, members):
        """With an etcd of so many members."""
        self.members = [self.member(address) for address in MEMBERS[:members]]
        etcd.together(self.members)
        self.store = "etcd://" + ",".join(f"{member.host}:{member.port}" for member in self.members)
        for node in NODES:
            self.serve(node)
        nodes.wait_until(self.all_are_there, nodes.READY_LIMIT_S)
        nodes.wait_until(self.all_serve, nodes.READY_LIMIT_S)
        self.own, self.keys = self.enroll(), {node: self.server_key(node) for node in NODES}

    def can_be_used(self, node):
        end = time.monotonic() + 30
        while (done := self.run_program(f"after-{node}", node, 0.1)).returncode != 0 and time.monotonic() < end:
            time.sleep(0.2)
        if done.returncode != 0:
            logs = "".join(f"\n{each}:\n" + pathlib.Path(f"{self.folder}/{each}.log").read_text()[-5000:] for each in NODES)
            self.fail(f"seed {SEED}, at {node}: {done.stderr}{self.all_in_etcd()}{logs}")

    def all_in_etcd(self):
        """As each member has it, which may differ."""
        told = ""
        for member in self.members:
            told += f"\n{member.name}:\n"
            try:
                told += "".join(f"{key} = {one['value'][:100]} ({one['create_revision']}, {one.get('lease')})\n"
                                for key, one in member.all().items())
            except subprocess.CalledProcessError as error:
                told += f"{error}\n"
        return told

    def test_no_gpu_has_two_owners(self):
        self.no_gpu_has_two_owners(members=1)

    def test_no_gpu_has_two_owners_with_three_members_of_etcd(self):
        self.no_gpu_has_two_owners(members=3)

    def no_gpu_has_two_owners(self, members):
        print(f"seed {SEED}", file=sys.stderr)
        self.begin(members)
        until = time.monotonic() + SECONDS
        clients = [threading.Thread(target=self.use, args=(number, until)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        while time.monotonic() < until:
            self.trouble()
            time.sleep(self.random.uniform(0, 2))
        for client in clients:
            client.join()
        # All is well again: every GPU can be had.
        for node in NODES:
            self.can_be_used(node)
        for node in list(self.servers):
            self.deaths[node].append(boot_ms())
            self.end(node)
        events = history.read(f"{self.folder}/{node}.history" for node in NODES)
        claims = [event for event in events if event["event"] == "has"]
        lost = sum(not event["joined"] for event in events if event["event"] == "sees")
        print(f"programs: {self.ran.get(True, 0)} ran, {self.ran.get(False, 0)} ended with an error; {len(claims)} claims; "
              f"{len(events)} lines of history", file=sys.stderr)
        self.assertEqual(history.complaints(events, self.deaths), [], f"seed {SEED}")
        self.assertGreater(len(claims), SECONDS / 4)
        self.assertEqual({event["node"] for event in claims} - {"b", "c"}, {"a"})
        self.assertGreater(lost, 0)

    def test_leases_that_etcd_does_not_end(self):
        """etcd 3.4 ends leases by a clock that may be set back, and says nothing to who renews one that is over until then."""
        self.begin(members=1)
        self.network.cut("a", True)
        os.killpg(self.servers["b"].pid, signal.SIGKILL)
        self.clock(self.members[0].name, -86400)
        time.sleep(AFTER_A_LEASE_S)
        self.network.cut("a", False)
        self.can_be_used("a")
        self.operator("remove-node", "b")

    def test_a_member_of_etcd_that_is_cut_off_keeps_nothing_from_the_nodes(self):
        """Each in turn, so that whichever a node follows is cut off once: from the other members alone, then from all."""
        self.begin(members=3)
        for turn, member in enumerate(self.members * 2):
            def cut(on):
                if turn < len(self.members):
                    self.network.part(member.name, [address for address in MEMBERS if address != member.host], on)
                else:
                    self.network.cut(member.name, on)
            nodes.wait_until(self.all_are_there, nodes.READY_LIMIT_S)  # the cut before may have cost some their leases
            self.own = self.enroll(f"bob{turn}")
            with concurrent.futures.ThreadPoolExecutor() as several:
                programs = {}
                def both_gpus_are_in_use():
                    for node in ("a", "b"):
                        if node not in programs or programs[node].done():
                            programs[node] = several.submit(self.run_program, f"bobs-{node}", node, LONG_S)
                    return self.operator("nodes").count(" 0/1 ") == len(programs)
                nodes.wait_until(both_gpus_are_in_use, nodes.READY_LIMIT_S)
                cut(True)
                nodes.wait_until(lambda: self.is_removed(f"bob{turn}"), nodes.READY_LIMIT_S)
                removed = time.monotonic()
                ended = [program.result() for program in programs.values()]
                took = time.monotonic() - removed
                cut(False)
            print(f"{member.name} was cut off: bob's programs ended after {took:.1f} s", file=sys.stderr)
            self.assertEqual([one.returncode != 0 for one in ended], [True, True])
            self.assertLess(took, HEARD_S)

    def is_removed(self, user):
        """While the members choose another leader, the store may not answer in time."""
        def ask(*words):
            return subprocess.run([*self.spaces["a"], BIN / "tnr-gpu-server", "user", *words, "--state", f"{self.folder}/a"],
                                  capture_output=True, text=True)
        ask("remove", user)
        listed = ask("list")
        return listed.returncode == 0 and user not in listed.stdout


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[7:])
