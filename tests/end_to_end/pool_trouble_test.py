#!/usr/bin/env python3
"""What a CUDA program and tnr say when the pool cannot give them a GPU: a device count of none, soon, and why.

    pool_trouble_test.py BIN LIB        BIN: folder of tnr and tnr-gpu-server; LIB: folder of our libcuda.so.1
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import with_server  # noqa: E402

BIN, LIB = map(pathlib.Path, sys.argv[1:3])
NO_DEVICE, NOT_INITIALIZED = 100, 3
SOON_S = 30  # promised are 5; the machine may be busy

# A program as any other: it asks how many GPUs there are, and asks again.
PROGRAM = """
import ctypes, json
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1)
print(json.dumps([cuda.cuInit(0), cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count))]))
"""


class Proxy:
    """Between a client and the server: changes what the client says about its version."""

    def __init__(self, server, before, after):
        self.server, self.before, self.after = server, before, after
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            server = socket.create_connection(self.server)
            for one, other, change in ((client, server, True), (server, client, False)):
                threading.Thread(target=self.forward, args=(one, other, change), daemon=True).start()

    def forward(self, one, other, change):
        while data := one.recv(65536):  # a request is far smaller, and comes in one piece on loopback
            other.sendall(data.replace(self.before, self.after) if change else data)
        other.shutdown(socket.SHUT_WR)


class PoolTrouble(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.server, cls.address = cls.serve("plain", "--plain")
        cls.locked_server, cls.locked_address = cls.serve("locked")
        cls.protocol = json.loads(cls.tnr("version", "--json").stdout)["protocol"]

    @classmethod
    def serve(cls, name, *options):
        server = subprocess.Popen(
            [BIN / "tnr-gpu-server", "serve", "--listen", "tcp://127.0.0.1:0", "--emulate", "h100:2,a100",
             "--emulated-memory", "256", "--state", f"{cls.folder.name}/{name}", *options],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        cls.addClassCleanup(with_server.stop, server)
        cls.addClassCleanup(server.stdout.close)
        address = with_server.address_of(server)
        assert address, "the server did not start"
        return server, address

    @classmethod
    def environment(cls, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        return dict(kept, HOME=cls.folder.name, XDG_CONFIG_HOME=f"{cls.folder.name}/config",
                    XDG_CACHE_HOME=f"{cls.folder.name}/cache", XDG_STATE_HOME=f"{cls.folder.name}/state",
                    LD_LIBRARY_PATH=str(LIB), **variables)

    @classmethod
    def tnr(cls, *arguments):
        return subprocess.run([BIN / "tnr", *arguments], capture_output=True, text=True, env=cls.environment())

    def has_no_gpu(self, **variables):
        """Runs the program; what it was told on stderr."""
        begun = time.monotonic()
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                              env=self.environment(**variables))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), [NO_DEVICE, NO_DEVICE, NOT_INITIALIZED], done.stderr)
        self.assertLess(time.monotonic() - begun, SOON_S)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), len(set(lines)), done.stderr)  # once, however often the program asks
        return done.stderr

    def test_a_pool_that_is_not_there_is_named_with_what_to_check(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # taken, and nobody listens
            address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
            said = self.has_no_gpu(TNR_POOL=address, TNR_GPU="h100")
        self.assertIn(f"no answer from the pool at {address}", said)
        self.assertRegex(said, "hint: .*tnr-gpu-server runs.*port is open.*the key that this computer has for it is enrolled")

    def test_a_pool_that_never_answers_is_no_hang(self):
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            address = f"tcp://127.0.0.1:{deaf.getsockname()[1]}"
            self.assertIn(address, self.has_no_gpu(TNR_POOL=address, TNR_GPU="h100"))

    def test_a_pool_of_an_unknown_name_is_named(self):
        self.assertIn("tcp://no-such-host.invalid:14900",
                      self.has_no_gpu(TNR_POOL="tcp://no-such-host.invalid:14900", TNR_GPU="h100"))

    def test_an_address_that_is_none_is_told_with_an_example(self):
        self.assertRegex(self.has_no_gpu(TNR_POOL="gpu-node", TNR_GPU="h100"), "gpu-node.*\n.*hint: .*tcp://")

    def test_a_machine_whose_key_the_pool_does_not_know_is_told_to_check_that(self):
        said = self.has_no_gpu(TNR_POOL=self.locked_address, TNR_GPU="h100")
        self.assertRegex(said, "hint: .*the key that this computer has for it is enrolled")

    def test_a_machine_without_configuration_is_told_how_to_get_one(self):
        if os.path.exists("/etc/tnr/gpu.json"):
            self.skipTest("this computer has a configuration")
        self.assertRegex(self.has_no_gpu(), "no GPU is configured on this machine[\\s\\S]*tnr run")

    def test_a_broken_configuration_is_named(self):
        config = pathlib.Path(self.folder.name) / "gpu.json"
        config.write_text('{"pool": ')
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                              env=self.environment(TNR_CONFIG=str(config)))
        self.assertIn(str(config), done.stderr)

    def test_an_unknown_gpu_type_is_told_with_those_there_are(self):
        self.assertRegex(self.has_no_gpu(TNR_POOL=self.address, TNR_GPU="h300"), "h300[\\s\\S]*a100[\\s\\S]*h100")

    def seen_by_protocol(self, protocol):
        """The server as somebody whose tnr speaks another protocol version meets it."""
        host, port = self.address.removeprefix("tcp://").split(":")
        proxy = Proxy((host, int(port)), f'"protocol":{self.protocol}'.encode(), f'"protocol":{protocol}'.encode())
        self.addCleanup(proxy.listener.close)
        return proxy.address

    def names_both_versions(self, said, theirs):
        self.assertRegex(said, f"this machine's tnr is version .*\\(protocol {theirs}\\), the pool's server is version "
                               f".*\\(protocol {self.protocol}\\)")

    def test_a_pool_of_another_version_is_told_with_both_versions(self):
        older, newer = self.protocol - 2, self.protocol + 1
        said = self.has_no_gpu(TNR_POOL=self.seen_by_protocol(older), TNR_GPU="h100")
        self.names_both_versions(said, older)
        self.assertIn("hint: install the server's version here", said)
        said = self.has_no_gpu(TNR_POOL=self.seen_by_protocol(newer), TNR_GPU="h100")
        self.names_both_versions(said, newer)
        self.assertIn("hint: update the pool's server", said)

    def test_tnr_tells_both_versions_too(self):
        done = self.tnr("run", "--gpu", "h100", "--pool", self.seen_by_protocol(self.protocol - 2), "--", "true")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.names_both_versions(done.stderr, self.protocol - 2)

    def test_tnr_says_where_no_pool_is(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
            done = self.tnr("run", "--gpu", "h100", "--pool", address, "--", "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"cannot connect to the pool at {address}\n", done.stderr)

    def test_tnr_waits_for_a_silent_pool_for_long_once_and_then_says_so(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            first, second = (self.tnr("run", "--gpu", "h100", "--pool", address, "--", "true") for _ in range(2))
        self.assertIn(f"no answer from the pool at {address} within 5000 ms\n", first.stderr)
        self.assertRegex(second.stderr, f"no answer from the pool at {address} within 1000 ms\nhint: .*silent a moment ago")

    def test_nvidia_smi_says_why_it_shows_nothing(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
            done = subprocess.run([BIN / "nvidia-smi"], capture_output=True, text=True,
                                  env=self.environment(TNR_POOL=address, TNR_GPU="h100"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(address, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
