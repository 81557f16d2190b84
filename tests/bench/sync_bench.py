#!/usr/bin/env python3
"""`tnr sync` against rsync over ssh: the same sshd on loopback, the same files, one after the other in turns.

  tests/bench/sync_bench.py [--build DIR] [--rounds N] [--folder DIR] [--quick] [--markdown FILE]

Times are those of whole programs, from connecting to the end. Bytes are what went through the TCP connection in both directions,
counted by a relay in between; its own run is not timed. The ratio is of the medians. Needs rsync, ssh, sshd.
"""
import argparse
import asyncio
import getpass
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

GOALS = {"first copy": 0.7, "nothing changed": 0.7, "large file": 1.0, "1 % changed": 1.0}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Relay:
    """Counts the bytes of all connections that go through it."""

    def __init__(self, target):
        self.target, self.bytes = target, 0
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        threading.Thread(target=self.run, args=(started,), daemon=True).start()
        started.wait()

    def run(self, started):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.carry, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    async def pump(self, reader, writer):
        while piece := await reader.read(1 << 18):
            self.bytes += len(piece)
            writer.write(piece)
            await writer.drain()
        writer.close()

    async def carry(self, reader, writer):
        there = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(self.pump(reader, there[1]), self.pump(there[0], writer), return_exceptions=True)


class World:
    def __init__(self, build, folder):
        self.folder, self.tool = pathlib.Path(folder), build / "bin" / "sync_bench"
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        shutil.copy(self.folder / "user.pub", self.folder / "authorized")
        self.folder.chmod(0o711)
        self.port = free_port()
        (self.folder / "config").write_text(
            f"HostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nUsePAM no\n"
            f"PermitRootLogin yes\nListenAddress 127.0.0.1\nPort {self.port}\nPidFile none\n"
            f"SetEnv XDG_CACHE_HOME={self.folder}/cache\n")
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        self.sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", self.folder / "config"])
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.05)
        self.relay = Relay(self.port)

    def close(self):
        self.sshd.terminate()
        self.sshd.wait()

    def tnr(self, source, target, port):
        return [self.tool, str(port), self.folder / "user", self.folder / "host.pub", source, f"m:{target}"]

    def rsync(self, source, target, port):
        ssh = (f"ssh -F none -p {port} -i {self.folder}/user -o StrictHostKeyChecking=no "
               "-o UserKnownHostsFile=/dev/null -o LogLevel=error")
        return ["rsync", "-a", "-e", ssh, source, f"{getpass.getuser()}@127.0.0.1:{target}"]

    def run(self, kind, source, target, counted=False):
        port = self.relay.port if counted else self.port
        before, begun = self.relay.bytes, time.monotonic()
        subprocess.run([str(word) for word in getattr(self, kind)(source, target, port)], check=True,
                       stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - begun
        return self.relay.bytes - before if counted else seconds


def small_files(folder, count):
    """Half text, half what does not compress; sizes as in a source tree, 4 KiB on average."""
    rng = random.Random(1)
    for i in range(count):
        place = folder / f"{i // 100:03d}"
        place.mkdir(parents=True, exist_ok=True)
        size = int(rng.expovariate(1 / 4096))
        text = (f"import os  # line {i}\n" * (size // 20 + 1))[:size // 2].encode()
        (place / f"{i}.py").write_bytes(text + rng.randbytes(size - len(text)))


def large_file(path, size):
    rng = random.Random(2)
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(rng.randbytes(1 << 20))


def change_one_percent(path, seed):
    """In 64 places, as a database or a disk image changes; the time is another one for sure."""
    rng, size = random.Random(seed), path.stat().st_size
    with open(path, "r+b") as file:
        for i in range(64):
            file.seek(i * (size // 64) + rng.randrange(size // 128))
            file.write(rng.randbytes(size // 6400))
    os.utime(path, (0, 1_000_000_000 + seed))


def measure(world, rounds, count, size):
    rows = {name: {kind: [] for kind in ("tnr", "rsync")} for name in GOALS}
    sizes = {name: {} for name in GOALS}
    small, large = world.folder / "small", world.folder / "large"
    small_files(small, count)
    large_file(large, size)
    copies = {kind: world.folder / f"copy-{kind}" for kind in ("tnr", "rsync")}
    for copy in copies.values():
        copy.mkdir()
    world.run("tnr", f"{world.folder}/config", f"{world.folder}/brought")  # the server is there from now on
    os.sync()
    for turn in range(rounds + 1):
        counted = turn == rounds  # the last one is for the bytes
        order = ["tnr", "rsync"] if turn % 2 else ["rsync", "tnr"]

        def each(name, source, place):
            for kind in order:
                value = world.run(kind, source, f"{copies[kind]}/{place}", counted)
                if counted:
                    sizes[name][kind] = value
                else:
                    rows[name][kind].append(value)

        for copy in copies.values():
            shutil.rmtree(copy)
            copy.mkdir()
        each("first copy", f"{small}/", "small")
        each("nothing changed", f"{small}/", "small")
        each("large file", large, "large")
        change_one_percent(large, turn)
        each("1 % changed", large, "large")
        for kind in copies:
            same = subprocess.run(["cmp", large, copies[kind] / "large"]).returncode == 0
            same = same and subprocess.run(["diff", "-rq", small, copies[kind] / "small"]).returncode == 0
            if not same:
                sys.exit(f"{kind} copied something wrong")
    return rows, sizes


def table(rows, sizes):
    lines = ["| | tnr, s | rsync, s | ratio | goal | tnr, bytes | rsync, bytes | ratio |", "|---|---|---|---|---|---|---|---|"]
    for name, goal in GOALS.items():
        ours, theirs = (statistics.median(rows[name][kind]) for kind in ("tnr", "rsync"))
        sent, theirs_sent = sizes[name]["tnr"], sizes[name]["rsync"]
        lines.append(f"| {name} | {ours:.2f} | {theirs:.2f} | **{ours / theirs:.2f}** | {goal} | {sent:,} | {theirs_sent:,} "
                     f"| {sent / theirs_sent:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", type=pathlib.Path)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--folder", help="where to work; a file system in memory leaves the disk out of it")
    parser.add_argument("--quick", action="store_true", help="tiny: only to see that it works")
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    if not shutil.which("rsync"):
        print("skipped: there is no rsync")
        return 0
    folder = tempfile.mkdtemp(prefix="tnr-sync-bench.", dir=options.folder)
    world = World(options.build.resolve(), folder)
    try:
        if options.quick:
            rows, sizes = measure(world, 1, 200, 4 << 20)
        else:
            rows, sizes = measure(world, options.rounds, 20_000, 1 << 30)
    finally:
        world.close()
        shutil.rmtree(folder)
    text = table(rows, sizes)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
