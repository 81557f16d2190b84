"""A real etcd for a test: one member, in a folder of its own, on ports of the kernel's choice."""
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import ports

START_LIMIT_S = 30


def program():
    """Debian's package puts it into /usr/bin."""
    return shutil.which("etcd")


class Etcd:
    def __init__(self, folder, host="127.0.0.1", command=()):
        """`command`: put before etcd's own, such as ("ip", "netns", "exec", NAME)."""
        self.ports = ports.Ports(2)  # also for the next start; one of the kernel's choice may be a connection's by then
        self.port, self.peer_port = self.ports.all()
        self.host, self.folder, self.command = host, folder, tuple(command)
        self.process, self.more = None, ()  # more of etcd's options, for the next start
        self.start()

    @property
    def store(self):
        return f"etcd://{self.host}:{self.port}"

    def start(self, wait=True):
        url, peer = f"http://{self.host}:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        with open(os.path.join(self.folder, "etcd.log"), "a") as log:
            self.process = self.run(url, peer, log)
        if wait:
            self.wait()

    def run(self, url, peer, log):
        return subprocess.Popen(
            [*self.command, program(), "--name", "test", "--data-dir", os.path.join(self.folder, "etcd"),
             "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"test={peer}", "--unsafe-no-fsync", *self.more],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)

    def wait(self):
        ask = f"import urllib.request as u; u.urlopen('http://{self.host}:{self.port}/health', timeout=1)"
        end = time.monotonic() + START_LIMIT_S
        while subprocess.run([*self.command, sys.executable, "-c", ask], stderr=subprocess.DEVNULL).returncode != 0:
            if time.monotonic() > end:
                self.kill()
                raise RuntimeError("etcd did not start")

    def leased(self):
        """What it has under leases: each key's revision and lease. One that went and came again has others."""
        coded = {name: base64.b64encode(key).decode() for name, key in (("key", b"\0"), ("range_end", b"\0"))}
        request = urllib.request.Request(f"http://{self.host}:{self.port}/v3/kv/range", json.dumps(coded).encode())
        found = json.load(urllib.request.urlopen(request, timeout=10)).get("kvs", [])
        return {base64.b64decode(one["key"]).decode(): (one["create_revision"], one["lease"]) for one in found if "lease" in one}

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
