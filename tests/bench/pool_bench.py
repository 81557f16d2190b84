#!/usr/bin/env python3
"""What a pool costs its users: claims with many clients that come and go, and how soon a GPU is with its next tenant.

    tests/bench/pool_bench.py                     100 clients on 32 emulated GPUs for 30 s; 20 hand-overs; a minute
    tests/bench/pool_bench.py --clients 10 --seconds 5
    tests/bench/pool_bench.py --json FILE --markdown FILE

Claims are timed inside of the programs, from the first call that needs a GPU to its first answer. A hand-over is timed from the
last moment of a program that has the only GPU to the first answer of one that waits for it: wiping and a new worker included.
An emulated GPU's memory ends with its worker, so 16 MiB of it are wiped to try the way; "all wiped" is one whose memory
outlives its worker, as a GPU's does, and all 2 GiB of it are.
Exit status 0; 1: a client was not served. Never because of a time.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import remoting_bench  # noqa: E402
import with_server  # noqa: E402

CLIENT_LIMIT_S = 120
HOLDS_S = 0.1  # how long a client uses its GPU
EMULATED_GPUS_MAX = 32  # that one node has


class Pool:
    """A server with emulated GPUs, open to anybody here. Each client is a machine of its own, a stranger to the others."""

    def __init__(self, build, gpus, memory_mib, memory_stays=False):
        self.build, self.gpus, self.memory_mib, self.memory_stays = build, gpus, memory_mib, memory_stays

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        arguments = argparse.Namespace(server=os.path.join(self.build, "bin", "tnr-gpu-server"), driver=None,
                                       emulate=f"h100:{self.gpus}", memory_mib=str(self.memory_mib))
        stays = ["--emulated-memory-folder", os.path.join(self.folder.name, "memory")] if self.memory_stays else []
        if stays:
            os.chmod(self.folder.name, 0o711)  # workers have a user of their own
            os.mkdir(stays[1])
        self.server = with_server.start_server(arguments, self.folder.name, more=stays)
        self.address = with_server.address_of(self.server)
        if not self.address:
            with open(with_server.log_of(self.folder.name)) as log:
                raise RuntimeError("the server did not start:\n" + log.read())
        return self

    def __exit__(self, *_):
        with_server.stop(self.server)
        self.server.stdout.close()
        self.folder.cleanup()

    def processor_ms(self):
        """Of the server, its workers and its helpers, as far as they have ended."""
        with open(f"/proc/{self.server.pid}/stat") as file:
            ticks = file.read().rsplit(")", 1)[1].split()[11:15]
        return sum(map(int, ticks)) * 1e3 / os.sysconf("SC_CLK_TCK")

    def environment(self, machine):
        config = os.path.join(self.folder.name, machine + ".json")
        with open(config, "w") as file:
            json.dump({"pool": self.address, "gpu": "h100", "wait_s": CLIENT_LIMIT_S, "machine": {"name": machine}}, file)
        libraries = os.path.join(self.build, "lib")
        return dict(os.environ, TNR_CONFIG=config, HOME=self.folder.name, LD_LIBRARY_PATH=libraries)


def client(pool, machine):
    """A program that takes a GPU, says when it has it, and gives it back when its input ends (or it is killed)."""
    return subprocess.Popen([os.path.join(pool.build, "bin", "pool_client")], env=pool.environment(machine),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def has_it(process):
    """When it began to ask, and when it had its GPU."""
    words = process.stdout.readline().split()
    if len(words) != 2:
        raise RuntimeError("a client was not served")
    return float(words[0]), float(words[1])


def claims(pool, clients, seconds):
    """Milliseconds of each claim. Clients think, on average, so long that a third of the GPUs is used."""
    took, failed, lock = [], [], threading.Lock()
    until = time.monotonic() + seconds
    thinks_s = max(seconds / 4, 1.0)

    def come_and_go(number):
        chance = random.Random(number)
        while True:
            time.sleep(chance.expovariate(1 / thinks_s))
            if time.monotonic() >= until:
                return
            process = client(pool, f"client-{number}")
            try:
                began, had = has_it(process)
                time.sleep(HOLDS_S)
                process.communicate("", timeout=CLIENT_LIMIT_S)
                with lock:
                    took.append((had - began) * 1e3)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                process.kill()
                with lock:
                    failed.append(f"client-{number}: {error}")

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, failed


def hand_overs(pool, times, killed):
    """Milliseconds from the end of one tenant to the next tenant's first answer."""
    took = []
    holder = client(pool, "tenant-0")
    has_it(holder)
    for number in range(1, times + 1):
        waiting = client(pool, f"tenant-{number}")
        time.sleep(0.5)  # it has its place in the queue
        if killed:
            ended = time.monotonic()
            holder.kill()
            holder.communicate()
        else:
            ended = float(holder.communicate("", timeout=CLIENT_LIMIT_S)[0])
        took.append((has_it(waiting)[1] - ended) * 1e3)
        holder = waiting
    holder.communicate("")
    return took


def share(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--gpus", type=int, default=EMULATED_GPUS_MAX)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--hand-overs", type=int, default=20)
    parser.add_argument("--json", help="write the figures there")
    parser.add_argument("--markdown", help="write the table there")
    options = parser.parse_args()
    figures, status = [], 0

    def figure(row, name, value, unit="ms", aim=""):
        figures.append({"row": row, "figure": name, "value": value, "unit": unit, "delay_ms": 0, "aim": aim})

    with Pool(options.build, options.gpus, 256) as pool:
        before = pool.processor_ms()
        took, failed = claims(pool, options.clients, options.seconds)
        server_ms = (pool.processor_ms() - before) / max(len(took), 1)
    for error in failed:
        print("pool_bench: " + error, file=sys.stderr)
        status = 1
    row = f"{options.clients} clients, {options.gpus} GPUs"
    figure(row, "claims", len(took), "")
    if took:
        figure(row, "claim, median", share(took, 0.5), aim="<= 5 ms")
        figure(row, "claim, 99 of 100", share(took, 0.99), aim="<= 20 ms")
        figure(row, "processor time of the server, its next worker and the wipe", server_ms)
    for row, all_wiped in (("hand-over", False), ("hand-over, all wiped", True)):
        with Pool(options.build, 1, 2048, all_wiped) as pool:
            for name, killed in (("its tenant ended", False), ("its tenant was killed", True)):
                took = hand_overs(pool, options.hand_overs, killed)
                figure(row, name + ", median", share(took, 0.5), aim="<= 300 ms")
                figure(row, name + ", longest", max(took))
    text = remoting_bench.table(figures, [0])
    print(text)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
