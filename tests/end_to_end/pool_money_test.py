#!/usr/bin/env python3
"""What GPU time costs, from the operator's price to the user's bill; waiting for a GPU, and for a killed program's memory.

    pool_money_test.py BIN        BIN: folder of tnr and tnr-gpu-server
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import with_server  # noqa: E402

BIN = pathlib.Path(sys.argv[1])
HOUR_S = 3600

# Holds the GPU for a while, and moves 8 MiB to it.
PROGRAM = """
import ctypes, sys, time
cuda, at, buffer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), bytes(8 << 20)
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
context = ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(int(sys.argv[1]) << 20))
call("cuMemcpyHtoD_v2", at, buffer, ctypes.c_size_t(len(buffer)))
time.sleep(float(sys.argv[2]))
if sys.argv[3:] == ["dies"]:
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


class PoolMoney(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.server = self.serve(self.address)

    def serve(self, address):
        server = subprocess.Popen(
            [BIN / "tnr-gpu-server", "serve", "--listen", address, "--emulate", "h100", "--emulated-memory", "2048",
             "--state", f"{self.folder}/server"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(with_server.stop, server)
        self.assertEqual(with_server.address_of(server), address)
        return server

    def operator(self, *arguments):
        done = subprocess.run([BIN / "tnr-gpu-server", *arguments, "--state", f"{self.folder}/server"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def environment(self, user):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        home = f"{self.folder}/{user}"
        return dict(kept, HOME=home, XDG_CONFIG_HOME=f"{home}/config", XDG_CACHE_HOME=f"{home}/cache",
                    XDG_STATE_HOME=f"{home}/state")

    def tnr(self, user, *arguments, expect=0, **more):
        done = subprocess.run([BIN / "tnr", *arguments], capture_output=True, text=True, env=self.environment(user),
                              **more)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stdout

    def sign_in(self, user):
        line = self.operator("user", "add", user, "--token")  # for a shell, as it is
        environment = self.environment(user)
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True,
                              env=dict(environment, PATH=f"{BIN}:{environment['PATH']}"))
        self.assertEqual(done.returncode, 0, done.stderr)

    def run_program(self, user, megabytes, seconds, *more, expect=0):
        self.tnr(user, "run", "--", sys.executable, "-c", PROGRAM, str(megabytes), str(seconds), *more, expect=expect)

    def bill(self, user):
        return json.loads(self.tnr(user, "billing", "--json"))

    def test_the_operators_price_is_on_the_users_bill_and_on_nobody_elses(self):
        self.sign_in("alice")
        self.sign_in("bob")
        self.operator("prices", "set", "h100", "3600/h")  # a dollar a second
        self.assertIn("$3600/h", self.tnr("alice", "gpus"))
        begun = time.monotonic()
        self.run_program("alice", 100, 1.5)
        took = time.monotonic() - begun
        self.operator("prices", "set", "h100", "7200EUR/h")
        begun = time.monotonic()
        self.run_program("alice", 100, 1)
        took_later = time.monotonic() - begun
        bill = self.bill("alice")
        amounts = {each["currency"]: each["amount"] for each in bill["total"]["amounts"]}
        self.assertGreater(amounts["USD"], 1.4)
        self.assertLess(amounts["USD"], took + 1)
        self.assertGreater(amounts["EUR"], 1.9)
        self.assertLess(amounts["EUR"], 2 * (took_later + 1))
        self.assertEqual(bill["total"]["hours_unknown"], 0)
        self.assertEqual(bill["pools"][0]["claims"], 2)
        self.assertGreater(bill["pools"][0]["bytes_up"], 16 << 20)
        self.assertLess(bill["pools"][0]["bytes_up"], 20 << 20)
        self.assertRegex(bill["lines"][0]["name"], "^tnr run on ")
        bobs = self.bill("bob")
        self.assertEqual(bobs["pools"][0]["claims"], 0)
        self.assertEqual(bobs["total"]["amounts"], [])

    def test_a_supervisor_that_is_killed_bills_what_was_used_once(self):
        self.sign_in("alice")
        self.operator("prices", "set", "h100", "3600/h")
        program = subprocess.Popen([BIN / "tnr", "run", "--", sys.executable, "-c", PROGRAM, "100", "60"],
                                   env=self.environment("alice"), stderr=subprocess.DEVNULL)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        deadline = time.monotonic() + 60
        while self.bill("alice")["total"]["hours_gpu"] < 1.5 / HOUR_S:  # as far as it was noted: it grows while it runs
            self.assertLess(time.monotonic(), deadline)
        billed = self.bill("alice")["total"]["amounts"][0]["amount"]
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.serve(self.address)
        bill = self.bill("alice")
        self.assertEqual(bill["pools"][0]["claims"], 1)
        self.assertGreater(bill["total"]["amounts"][0]["amount"], billed - 5)
        self.assertLess(bill["total"]["amounts"][0]["amount"], billed + 5)

    def test_a_program_that_waits_is_told_its_place_and_gets_the_gpu(self):
        self.sign_in("alice")
        first = subprocess.Popen([BIN / "tnr", "run", "--", sys.executable, "-c", PROGRAM, "100", "4"],
                                 env=self.environment("alice"), stderr=subprocess.DEVNULL)
        self.addCleanup(first.wait)
        self.addCleanup(first.kill)
        deadline = time.monotonic() + 60
        while not self.bill("alice")["pools"][0]["claims"]:
            self.assertLess(time.monotonic(), deadline)
        command = [BIN / "tnr", "run", "--wait", "1m", "--", sys.executable, "-c", PROGRAM, "100", "0"]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment("alice"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("number 1 of 1 in the queue", done.stderr)
        self.tnr("alice", "run", "--wait", "soon", "--", "true", expect=2)

    def test_a_program_gets_the_memory_of_one_that_has_just_been_killed(self):
        self.sign_in("alice")
        config = {"pool": self.address, "gpu": "h100"}
        logins = json.loads(pathlib.Path(f"{self.folder}/alice/config/tnr/pool.json").read_text())
        keys = logins["pools"][0]["client_key"]
        config["server_key"] = logins["pools"][0]["server_key"]
        config["machine"] = {"name": "one", "public_key": keys["public"], "secret_key": keys["secret"]}
        path = pathlib.Path(self.folder) / "gpu.json"
        path.write_text(json.dumps(config))
        self.run_program("alice", 100, 0)  # unpacks the library
        library = next(pathlib.Path(f"{self.folder}/alice").rglob("libcuda.so.1")).parent
        for round_ in range(4):  # a machine's programs are one claim, and the next comes while that lasts
            done = subprocess.run([sys.executable, "-c", PROGRAM, "1500", "0", "dies"], capture_output=True, text=True,
                                  env=dict(self.environment("alice"), TNR_CONFIG=str(path),
                                           LD_LIBRARY_PATH=str(library)))
            self.assertEqual(done.returncode, -signal.SIGKILL, f"round {round_}: {done.stderr}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
