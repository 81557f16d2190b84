"""A pool of several nodes on one etcd, each a server of its own with emulated GPUs, for a unittest.TestCase or a program.

    with nodes.Pool(BIN, LIB, folder) as pool:
        pool.serve("a", "h100:2")
        alice = pool.user("alice")
        pool.start(alice, "h100", [sys.executable, "-c", PROGRAM])
"""
import json
import os
import pathlib
import re
import subprocess
import time

import etcd
import with_server

READY_LIMIT_S = 30


def wait_until(what, limit_s, every_s=0.05):
    """What it found, and how long that took."""
    begun = time.monotonic()
    while not (found := what()):
        if time.monotonic() - begun > limit_s:
            raise AssertionError(f"not within {limit_s} s")
        time.sleep(every_s)
    return found, time.monotonic() - begun


class Pool:
    def __init__(self, programs, library, folder):
        """`programs`: the folder of tnr-gpu-server; `library`: that of libcuda.so.1."""
        self.server_program, self.library, self.folder = pathlib.Path(programs) / "tnr-gpu-server", library, str(folder)
        self.servers, self.addresses = {}, {}
        self.etcd = None

    def __enter__(self):
        self.etcd = etcd.Etcd(self.folder)
        return self

    def __exit__(self, *_):
        for node in list(self.servers):
            self.stop(node)
        self.etcd.kill()

    def serve(self, node, gpus, *more, wait=True):
        listen = [] if "--listen" in more else ["--listen", "tcp://127.0.0.1:0"]
        store = [] if "--store" in more else ["--store", self.etcd.store]
        with open(f"{self.folder}/{node}.log", "a") as log:
            server = subprocess.Popen(
                [self.server_program, "serve", *listen, "--emulate", gpus, "--emulated-memory", "256", "--linger-ms", "0",
                 "--state", f"{self.folder}/{node}", *store, "--node", node, *more],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        self.servers[node] = server
        self.addresses[node] = with_server.address_of(server)
        if self.addresses[node] is None:
            raise AssertionError(f"node {node} did not start:\n" + self.log(node))
        if wait:
            wait_until(lambda: self.is_ready(node), READY_LIMIT_S)
            wait_until(lambda: all(self.knows(one, other) for one in self.servers for other in self.servers), READY_LIMIT_S)

    def stop(self, node):
        """Asks it to end, or takes what is left of it away."""
        server = self.servers.pop(node)
        with_server.stop(server)
        server.stdout.close()
        return server

    def is_ready(self, node):
        seen = self.node(node)
        return seen["state"] == "ready" and "0/" not in seen["gpus"]

    def knows(self, node, other):
        """Whether it has heard of the other one."""
        if node == other or not self.is_there(node) or not self.is_there(other):
            return True
        status = json.loads(self.operator("status", "-o", "json", node=node))
        return other in [one["name"] for one in status["other_nodes"]]

    def is_there(self, node):
        return self.servers[node].poll() is None

    def log(self, node):
        file = pathlib.Path(f"{self.folder}/{node}.log")
        return file.read_text(errors="replace") if file.exists() else ""

    def operator(self, *arguments, node="a", expect=0):
        done = subprocess.run([self.server_program, *arguments, "--state", f"{self.folder}/{node}"],
                              capture_output=True, text=True)
        if done.returncode != expect:
            raise AssertionError(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def node(self, name):
        """Its line of `tnr-gpu-server nodes`."""
        for line in self.operator("nodes", node=name if name in self.servers else "a").splitlines():
            words = re.split(r"  +", line)
            if words[0] == name:
                return {"state": words[1], "gpus": words[2], "claims": words[3]}
        return {"state": "unknown", "gpus": "", "claims": ""}

    def user(self, name):
        """An account enrolled at node a, as the file for TNR_CONFIG."""
        words = self.operator("user", "add", name).replace("'", "").split()
        key = next(line.split()[-1] for line in self.operator("user", "list").splitlines() if line.startswith(name + " "))
        return {"pool": self.addresses["a"], "server_key": words[-1],
                "machine": {"name": name, "public_key": key, "secret_key": words[1]}}

    def server_key(self, node):
        return self.operator("user", "add", f"at-{node}", node=node).replace("'", "").split()[-1]

    def start(self, config, command, **environment):
        """A program on a machine whose TNR_CONFIG says this."""
        path = f"{self.folder}/{config['machine']['name']}-{config['gpu']}.json"
        pathlib.Path(path).write_text(json.dumps(config))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(kept, TNR_CONFIG=path, LD_LIBRARY_PATH=str(self.library), HOME=self.folder, **environment))
