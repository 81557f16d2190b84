#!/usr/bin/env python3
"""Programs whose records are changed on their way to the worker: whatever becomes of them, nobody else notices, and nothing is
left of them: no process, no file, no memory.

TNR_TEST_TRIES=30 tries ten times as much.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

SUPPORT = pathlib.Path(__file__).resolve().parents[2] / "support"
sys.path.insert(0, str(SUPPORT))
import proxy as proxies  # noqa: E402
import with_server  # noqa: E402
from ports import INSIDE, OUTSIDE, Ports  # noqa: E402
from processes import resident_bytes  # noqa: E402

WORKERS = 12
PROGRAMS = 24 * max(1, int(os.environ.get("TNR_TEST_TRIES", "3")) // 3)
# For a program whose stream makes no sense any more; then it is killed, as its user would do. At least so many seconds, and
# a few times what a program took that nobody disturbed: one that waits for its GPU to be wiped has not been tried.
PATIENCE_S, PATIENCE_TIMES = 2, 3
SETTLES_WITHIN_S = 30
GROWTH_MAX_BYTES = 32 << 20
QUARANTINE = "quarantine_size_mb=8"  # of AddressSanitizer, which else keeps 256 MiB of what was freed: that is no growth
ROUNDS = "2"


class Changer:
    """Flips bits of what a program sends, now and then; each connection's first bytes, ZeroMQ's own, are left alone."""

    def __init__(self):
        self.chance, self.changed = 0.0, 0

    def __call__(self, connection, target, data):
        first = not hasattr(connection, "begun")
        if target is connection.server:
            connection.begun = True
        if target is connection.client or first or random.random() >= self.chance:
            return data
        data = bytearray(data)
        for _ in range(random.randint(1, 3)):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        self.changed += 1
        return bytes(data)


def children(pid):
    return len(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def files(folder):
    return sorted(path.name for path in pathlib.Path(folder, "server").rglob("*") if path.is_file())


def environment(arguments, address, folder, machine):
    config = os.path.join(folder, f"{machine}.json")
    with open(config, "w") as file:
        json.dump({"pool": address, "gpu": "h100", "machine": {"name": machine}}, file)
    home = os.path.join(folder, machine)
    os.makedirs(home, exist_ok=True)
    return dict(with_server.client_environment(arguments, address, home), TNR_CONFIG=config)


def run(arguments, folder):
    random.seed(2026)
    ports = Ports(WORKERS)
    more = ["--worker-ports", f"{ports.first}-{ports.first + WORKERS - 1}"]
    os.environ.update(TNR_WORKER_GRACE_MS="500", TNR_WORKER_KNOCK_MS="200")
    server = with_server.start_server(arguments, folder, more=more)
    change = Changer()
    try:
        address = with_server.address_of(server)
        assert address, "the server did not start"
        port = int(address.rsplit(":", 1)[1])
        everything = [proxies.Proxy((OUTSIDE, port), (INSIDE, port))]
        for each in ports.all():
            everything.append(proxies.Proxy((OUTSIDE, each), (INSIDE, each)))
            everything[-1].change = change
        neighbour = environment(arguments, address, folder, "neighbour")
        victim = environment(arguments, address.replace(INSIDE, OUTSIDE), folder, "victim")

        def program(env):
            return subprocess.Popen([arguments.program, ROUNDS], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        assert program(victim).wait(60) == 0, "the way through the proxies does not work"
        begun = time.monotonic()
        for each in (victim, neighbour):  # both GPUs have been used now, and are wiped before they are given away
            assert program(each).wait(60) == 0
        patience_s = max(PATIENCE_S, PATIENCE_TIMES * (time.monotonic() - begun) / 2)
        before = resident_bytes(server.pid), files(folder)
        outcomes = {"well": 0, "failed": 0, "hung": 0}
        beside = program(neighbour)
        beside_runs = 0
        change.chance = 0.05
        for _ in range(PROGRAMS):
            one = program(victim)
            try:
                outcomes["well" if one.wait(patience_s) == 0 else "failed"] += 1
            except subprocess.TimeoutExpired:
                outcomes["hung"] += 1
                one.kill()
                one.wait()
            if beside.poll() is not None:
                assert beside.returncode == 0, f"the neighbour failed: {beside.returncode}"
                beside_runs += 1
                beside = program(neighbour)
            assert server.poll() is None, "the server died"
        change.chance = 0.0
        assert beside.wait(60) == 0, "the neighbour failed"
        print(f"{change.changed} changed pieces in {PROGRAMS} programs: {outcomes}; the neighbour ran {beside_runs + 1} times")
        assert change.changed > PROGRAMS / 4 and outcomes["failed"] + outcomes["hung"] > PROGRAMS / 10, "nothing was tried"
        assert program(victim).wait(60) == 0, "the victim's machine cannot use its GPU any more"
        give_up = time.monotonic() + SETTLES_WITHIN_S
        while children(server.pid) > 2:  # a waiting worker for each GPU
            assert time.monotonic() < give_up, f"{children(server.pid)} processes are left"
            time.sleep(0.1)
        grown = resident_bytes(server.pid) - before[0]
        assert grown < GROWTH_MAX_BYTES, f"the server has grown by {grown >> 20} MiB"
        assert [name for name in files(folder) if not name.startswith("audit.")] == [
            name for name in before[1] if not name.startswith("audit.")], files(folder)
    finally:
        with_server.stop(server)
        ports.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--server", "--client", "--program"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    arguments = argparse.Namespace(server=given.server, client=given.client, program=given.program, driver=None,
                                   emulate="h100:2", memory_mib="256", gpu="h100")
    os.environ["ASAN_OPTIONS"] = ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"), QUARANTINE)))
    with tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True) as folder:
        try:
            run(arguments, folder)
        except BaseException:
            with open(with_server.log_of(folder), errors="replace") as file:
                print("the server's log:\n" + file.read()[-10_000:], file=sys.stderr)
            raise


if __name__ == "__main__":
    main()
