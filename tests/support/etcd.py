"""A real etcd for a test: one member or several, in folders of their own, on ports of the kernel's choice."""
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
    """One member: the only one, or one of those that together() makes."""

    def __init__(self, folder, host="127.0.0.1", command=(), name="test", alone=True):
        """`command`: put before etcd's own, such as ("ip", "netns", "exec", NAME)."""
        self.ports = ports.Ports(2)  # also for the next start; one of the kernel's choice may be a connection's by then
        self.port, self.peer_port = self.ports.all()
        self.host, self.folder, self.command, self.name = host, folder, tuple(command), name
        self.peer = f"http://{host}:{self.peer_port}"  # for other members
        self.all_peers = f"{name}={self.peer}"
        self.process, self.more = None, ()  # more of etcd's options, for the next start
        if alone:
            self.start()

    @property
    def store(self):
        return f"etcd://{self.host}:{self.port}"

    def start(self, wait=True):
        url = f"http://{self.host}:{self.port}"
        with open(os.path.join(self.folder, "etcd.log"), "a") as log:
            self.process = subprocess.Popen(
                [*self.command, program(), "--name", self.name, "--data-dir", os.path.join(self.folder, "etcd"),
                 "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", self.peer,
                 "--initial-advertise-peer-urls", self.peer, "--initial-cluster", self.all_peers, "--unsafe-no-fsync",
                 *self.more], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        if wait:
            self.wait()

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


def together(members):
    """Members that were made with alone=False: begun as one etcd."""
    peers = ",".join(member.all_peers for member in members)
    for member in members:
        member.all_peers = peers
        member.start(wait=False)
    for member in members:
        member.wait()
