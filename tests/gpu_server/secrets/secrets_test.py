#!/usr/bin/env python3
"""A secret that one user leaves in the GPU's memory, looked for where the next one, or anybody who comes to the server's
host later, could find it: in all memory of the next claim, in the server's processes, in files. With wiping it is nowhere.
Without it the next user does find it, so that the search is known to be one.

    secrets_test.py SERVER LIB      SERVER: tnr-gpu-server; LIB: folder of libcuda.so.1

The GPU is emulated, with memory that outlives processes (serve --emulated-memory-folder), as a real one's does.
"""
import fcntl
import json
import os
import pathlib
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import processes  # noqa: E402
import with_server  # noqa: E402

SERVER, LIB = map(pathlib.Path, sys.argv[1:3])
MEMORY_MIB = 512
RESERVED_MIB = 16  # of the GPU's memory, for nobody's allocations
LIMIT_S = 60
CHUNK_BYTES = 16 << 20


def found_in(file, secret, begin=0, end=None):
    """Is it in the open file's bytes from `begin` to `end`? What cannot be read is passed over."""
    file.seek(begin)
    tail = b""
    while end is None or begin < end:
        try:
            data = file.read(CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - begin))
        except (OSError, ValueError):
            return False
        if not data:
            return False
        if secret in tail + data:
            return True
        begin, tail = begin + len(data), data[-len(secret):]
    return False


def memory_with(pid, secret):
    """The mappings of a process that hold the secret."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if line.split()[1].startswith("r") and "[v" not in line and found_in(memory, secret, begin, end):
                found.append(line.strip())
    return found


def files_with(secret, folders, since):
    found = []
    for path in (pathlib.Path(where, name) for each in folders for where, _, names in os.walk(each) for name in names):
        try:
            if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= since:
                with open(path, "rb") as file:
                    if found_in(file, secret):
                        found.append(str(path))
        except OSError:
            pass  # another's, or gone meanwhile
    return found


class Secrets(unittest.TestCase):
    def setUp(self):
        self.begun = time.time() - 1
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.memory, self.users = self.folder / "memory", self.folder / "users"
        for each in (self.memory, self.users):
            each.mkdir(mode=0o755)
        self.secret = secrets.token_bytes(32)

    def serve(self, *more):
        log = open(self.folder / "server.log", "ab")
        self.addCleanup(log.close)
        self.server = subprocess.Popen(
            [SERVER, "serve", "--listen", "tcp://127.0.0.1:0", "--emulate", "h100", "--emulated-memory", str(MEMORY_MIB),
             "--emulated-memory-folder", self.memory, "--linger-ms", "0", "--state", self.folder / "state", *more],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(with_server.stop, self.server)
        self.address = with_server.address_of(self.server)
        self.assertIsNotNone(self.address, self.log())

    def log(self):
        return (self.folder / "server.log").read_text()

    def operator(self, *words):
        return subprocess.run([SERVER, *words, "--state", self.folder / "state"], check=True, capture_output=True,
                              text=True).stdout

    def gpu_is_free(self):
        """Wiped, with a warm worker for the next one."""
        deadline = time.monotonic() + LIMIT_S
        while not (json.loads(self.operator("status", "-o", "json"))["gpus"][0]["state"] == "free" and
                   len(processes.children(self.server.pid)) == 1):
            self.assertLess(time.monotonic(), deadline, self.log())
            time.sleep(0.1)

    def program(self, user, *words):
        given = shlex.split(self.operator("user", "add", user))  # echo SECRET | tnr login pool ADDRESS KEY
        key = next(line.split()[-1] for line in self.operator("user", "list").splitlines() if line.startswith(user + " "))
        config = self.users / f"{user}.json"
        config.write_text(json.dumps({"pool": self.address, "gpu": "h100", "wait_s": LIMIT_S, "server_key": given[-1],
                                      "machine": {"name": user, "public_key": key, "secret_key": given[1]}}))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        program = subprocess.Popen(
            [sys.executable, HERE / "programs.py", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(kept, HOME=str(self.users), LD_LIBRARY_PATH=str(LIB), TNR_CONFIG=str(config)))
        for end in (program.stdin.close, program.stdout.close, program.wait, program.kill):
            self.addCleanup(end)
        program.stdin.write(self.secret.hex() + "\n")
        program.stdin.flush()
        return program

    def plant(self, *words):
        program = self.program("alice", "plant", *words)
        self.assertGreater(int(program.stdout.readline() or 0), 15, self.log())
        return program

    def look(self):
        """The next user's program, which still holds what it has looked through; and how often it has found it."""
        program = self.program("bob", "look")
        line = program.stdout.readline().split()
        self.assertEqual(len(line), 2, self.log())
        self.assertGreaterEqual(int(line[0]) >> 20, MEMORY_MIB - RESERVED_MIB, self.log())  # all there is
        return program, int(line[1])

    def nowhere(self):
        """Neither in what the server's processes hold, nor in files that are not its users' own."""
        if os.access(f"/proc/{self.server.pid}/mem", os.R_OK):  # root's right alone: they are not dumpable
            for each in processes.family(self.server.pid):
                self.assertEqual(memory_with(each.pid, self.secret), [], str(each))
        elif os.geteuid() == 0:
            self.fail("the server's memory cannot be read")
        left = files_with(self.secret, ["/dev/shm", "/tmp", "/var/tmp", self.folder / "state", self.memory], self.begun)
        self.assertEqual(left, [])

    def next_user_finds_nothing(self):
        self.gpu_is_free()
        self.nowhere()
        program, found = self.look()
        self.assertEqual(found, 0)
        self.nowhere()  # in the next session's worker, either
        program.stdin.close()
        self.assertEqual(program.wait(LIMIT_S), 0)

    def test_what_an_ended_program_leaves_is_nowhere(self):
        self.serve()
        self.assertEqual(self.plant("ends").wait(LIMIT_S), 0)
        self.next_user_finds_nothing()

    def test_what_a_killed_program_leaves_is_nowhere(self):
        self.serve()
        program = self.plant()
        self.assertNotEqual(files_with(self.secret, [self.memory], self.begun), [])  # so far it is there, and is found
        program.kill()
        program.wait()
        self.next_user_finds_nothing()

    def test_what_a_killed_server_leaves_is_nowhere(self):
        self.serve()
        program = self.plant()
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.wait()
        self.serve()
        program.kill()
        program.wait()
        self.next_user_finds_nothing()

    def test_memory_that_another_program_takes_before_the_wipe_goes_to_nobody(self):
        self.serve()
        self.gpu_is_free()
        program = self.plant()
        gpu, = self.memory.iterdir()
        with open(gpu, "r+b") as memory:
            fcntl.lockf(memory, fcntl.LOCK_EX | fcntl.LOCK_NB, 128 << 20, 300 << 20)  # who has a page has a lock on it
            program.kill()
            program.wait()
            deadline = time.monotonic() + LIMIT_S
            while "is out of order: its memory could not be wiped: 128 MiB of it are another program's" not in self.log():
                self.assertLess(time.monotonic(), deadline, self.log())
                time.sleep(0.1)
            while json.loads(self.operator("status", "-o", "json"))["gpus"][0]["state"] != "broken":  # told every second
                self.assertLess(time.monotonic(), deadline, self.log())
                time.sleep(0.1)
        self.next_user_finds_nothing()  # it is tried again

    def test_without_wiping_the_next_user_finds_it(self):
        self.serve("--unsafe-no-wipe")
        self.assertEqual(self.plant("ends").wait(LIMIT_S), 0)
        self.gpu_is_free()
        _, found = self.look()
        self.assertGreater(found, 1000)

    def test_a_server_of_real_gpus_always_wipes(self):
        for option in (["--unsafe-no-wipe"], ["--emulated-memory-folder", self.memory]):
            refused = subprocess.run([SERVER, "serve", *option, "--state", self.folder / "state"],
                                     capture_output=True, text=True)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("are for emulated GPUs", refused.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
