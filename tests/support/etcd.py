"""A real etcd for a test: one member or several, in folders of their own, on ports of the kernel's choice."""
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import ports

START_LIMIT_S = 30


def program():
    """Debian's package puts it into /usr/bin."""
    return shutil.which("etcd")


def ends_leases_of_the_living():
    """Whether a leader of this etcd that stood still may end leases that were renewed meanwhile (etcd's issue 15247)."""
    said = subprocess.run([program(), "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    version = tuple(map(int, re.search(r"(\d+)\.(\d+)\.(\d+)", said).groups()))
    return version < ((3, 4, 31) if version[:2] == (3, 4) else (3, 5, 13))


class Etcd:
    """One member: the only one, or one of those that together() makes."""

    def __init__(self, folder, host="127.0.0.1", command=(), name="test", alone=True, fsync=False):
        """`command`: put before etcd's own, such as ("ip", "netns", "exec", NAME)."""
        self.ports = ports.Ports(2)  # also for the next start; one of the kernel's choice may be a connection's by then
        self.port, self.peer_port = self.ports.all()
        self.host, self.folder, self.command, self.name = host, folder, tuple(command), name
        self.peer = f"http://{host}:{self.peer_port}"  # for other members
        self.all_peers = f"{name}={self.peer}"
        self.process = None
        self.fast = () if fsync else ("--unsafe-no-fsync",)
        self.more = ()  # more of etcd's options, for the next start
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
                 "--initial-advertise-peer-urls", self.peer, "--initial-cluster", self.all_peers, *self.fast,
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
        return {key: (one["create_revision"], one["lease"]) for key, one in self.all().items() if "lease" in one}

    def all(self):
        """What this member itself has, whatever the others have: by key, with the value as a text."""
        coded = {name: base64.b64encode(key).decode() for name, key in (("key", b"\0"), ("range_end", b"\0"))}
        told = self.ask("kv/range", dict(coded, serializable=True)).get("kvs", [])
        return {base64.b64decode(one["key"]).decode(): dict(one, value=base64.b64decode(one.get("value", "")).decode(errors="replace"))
                for one in told}

    def leads(self):
        """Whether it leads the others, as it says; one that does not answer does not."""
        try:
            status = self.ask("maintenance/status", {})
        except subprocess.CalledProcessError:
            return False
        return status["header"]["member_id"] == status.get("leader")

    def ask(self, what, question):
        """From where it is: it may be in a network of its own."""
        ask = ("import sys, urllib.request as u; "
               "sys.stdout.buffer.write(u.urlopen(sys.argv[1], sys.argv[2].encode(), 10).read())")
        return json.loads(subprocess.run(
            [*self.command, sys.executable, "-c", ask, f"http://{self.host}:{self.port}/v3/{what}", json.dumps(question)],
            check=True, stdout=subprocess.PIPE).stdout)

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
