#!/usr/bin/env python3
"""A pool in which others are known by their names, while the name server says nothing: a reload keeps the node registered, and
nothing waits for the name server. In a network of its own, with a name server of its own.

    pool_names_test.py BIN LIB    BIN: folder of tnr-gpu-server; LIB: folder of libcuda.so.1
"""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import etcd  # noqa: E402
import pool_case  # noqa: E402
from nodes import wait_until  # noqa: E402

BIN, LIB = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
IN_NAMESPACES = "TNR_TEST_IN_NAMESPACES"
NAMES_S = 30  # how long whoever asks for a name waits: the longest that the C library allows
SOON_S = 12  # promised are two; the machine may be busy
LOADED_S = 60
NODE, MEMBER = "gpu-b.example", "etcd-b.example"


class SilentNameServer:
    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.questions = []
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        while True:
            self.questions.append(self.socket.recv(512))

    def is_asked_for(self, name, since=0):
        coded = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
        return any(coded in question for question in self.questions[since:])


@unittest.skipUnless(etcd.program(), "no etcd: apt-get install etcd-server")
@unittest.skipUnless(IN_NAMESPACES in os.environ, "needs iproute2, and the right to make network and mount namespaces")
class PoolNames(pool_case.PoolCase):
    folders = BIN, LIB

    @classmethod
    def setUpClass(cls):
        cls.names = SilentNameServer()
        ask = subprocess.Popen([sys.executable, "-c", "import socket; socket.getaddrinfo('some.example', 80)"],
                               stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: cls.names.is_asked_for("some.example") or ask.poll() is not None, LOADED_S)
        finally:
            ask.kill()
            ask.wait()
        if not cls.names.is_asked_for("some.example"):
            raise unittest.SkipTest("this machine asks others for names than /etc/resolv.conf says")

    def asked_for(self, name, since=0):
        def is_asked():
            self.operator("status")  # which looks at the other nodes
            return self.names.is_asked_for(name, since)
        wait_until(is_asked, LOADED_S)

    def in_time(self, what):
        begun = time.monotonic()
        what()
        self.assertLess(time.monotonic() - begun, SOON_S, self.log("a")[-3000:])

    def test_a_node_is_replaced_and_ends_as_if_all_names_were_known(self):
        self.serve("a", "h100")
        self.serve("b", "h200", "--control-address", f"tcp://{NODE}:14900")
        program = self.program(self.user("alice"), "h100", LOADED_S)
        program.stdout.readline()

        def registrations():
            return {key: since for key, since in self.etcd.leased().items() if "/free/" not in key}
        self.assertEqual(len([key for key in registrations() if "/held/" in key]), 1)
        for _ in range(3):  # a machine that stands still for three seconds loses a lease whatever a node does
            self.asked_for(NODE)
            asked, before = len(self.names.questions), registrations()
            self.in_time(lambda: self.operator("reload"))
            time.sleep(4)  # longer than a lease lasts
            after = registrations()
            if after == before:
                break
        self.assertEqual(after, before, self.log("a")[-3000:])
        self.ends(program)
        self.asked_for(NODE, since=asked)
        self.servers["a"].terminate()
        self.in_time(lambda: self.servers["a"].wait(LOADED_S))

    def test_a_member_of_etcd_that_is_known_by_its_name_keeps_nobody_from_the_others(self):
        self.pool.store = f"{self.etcd.store},{MEMBER}:2379"
        self.in_time(lambda: self.serve("a", "h100"))
        self.runs(self.user("alice"), "h100")
        self.etcd.kill()
        asked = len(self.names.questions)
        wait_until(lambda: self.names.is_asked_for(MEMBER, asked), LOADED_S)
        self.servers["a"].terminate()
        self.in_time(lambda: self.servers["a"].wait(LOADED_S))


def enter_namespaces():
    """Runs this again where we are the name server; returns where that cannot be."""
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    begin = f"""ip link set lo up && file=$(mktemp) && echo "nameserver 127.0.0.1
options timeout:{NAMES_S} attempts:1" > "$file" && mount --bind "$file" /etc/resolv.conf && rm "$file" && exec "$@\""""
    unshare = ["unshare", *root, "--net", "--mount", "sh", "-c", begin, "sh"]
    if not shutil.which("ip") or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        return
    os.environ[IN_NAMESPACES] = "1"
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv])


if __name__ == "__main__":
    if IN_NAMESPACES not in os.environ:
        enter_namespaces()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
