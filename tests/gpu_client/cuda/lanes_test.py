#!/usr/bin/env python3
"""Copies of an encrypted session travel over its lanes, in equal parts; of a plain one, and of a stranger, nothing does.

    lanes_test.py --server bin/tnr-gpu-server --client lib --program bin/resume_program

The program copies blocks of many sizes up and down, compares each, and counts its commands. What travelled where is the
client library's own count (TNR_STATS).
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import with_server  # noqa: E402

ROUNDS = 8
TRIES = 5
ENDS_WITHIN_S = 120
PIECE_BYTES = 1 << 20


class Pool:
    def __init__(self, arguments, encrypted, lanes):
        self.arguments = argparse.Namespace(server=arguments.server, client=arguments.client, driver=None,
                                            emulate="h100", memory_mib="256", gpu="h100")
        self.program, self.encrypted, self.lanes = arguments.program, encrypted, lanes

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.server = with_server.start_server(self.arguments, self.folder.name, encrypted=self.encrypted,
                                               more=["--lanes", str(self.lanes)])
        self.address = with_server.address_of(self.server)
        assert self.address, "the server did not start"
        return self

    def __exit__(self, kind, *_):
        with_server.stop(self.server)
        with open(with_server.log_of(self.folder.name), errors="replace") as file:
            log = file.read()
        if kind:
            print("the server's log:\n" + log[-10_000:], file=sys.stderr)
        self.folder.cleanup()
        assert kind or not any(finding in log for finding in with_server.FINDINGS), log[-10_000:]

    def run(self, lanes):
        """Bytes that one program sent and received: all, and by lane."""
        environment = with_server.client_environment(self.arguments, self.address, self.folder.name)
        environment.update(TNR_STATS="1", TNR_LANES=str(lanes))
        if self.encrypted:
            environment["TNR_CONFIG"] = with_server.enrolled(self.arguments, self.folder.name, self.address)
        done = subprocess.run([self.program, str(ROUNDS)], env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=ENDS_WITHIN_S)
        assert done.returncode == 0 and re.search("^right: ", done.stdout, re.M), done.stdout + done.stderr
        total = re.search(r"^tnr: (\d+) bytes sent, (\d+) bytes received", done.stderr, re.M)
        by_lane = re.findall(r"^tnr: lane \d: (\d+) bytes sent, (\d+) bytes received", done.stderr, re.M)
        return tuple(map(int, total.groups())), [tuple(map(int, lane)) for lane in by_lane]


def striped_in_equal_parts(arguments):
    for offered, wanted, lanes in ((2, 4, 2), (4, 4, 4), (4, 1, 1)):
        with Pool(arguments, encrypted=True, lanes=offered) as pool:
            # A lane that comes up late, on a busy machine, has less: it need not catch up.
            for left in reversed(range(TRIES)):
                total, by_lane = pool.run(wanted)
                assert len(by_lane) == lanes, (offered, wanted, by_lane)
                ways = [[lane[way] for lane in by_lane] for way in (0, 1)]
                if all(max(parts) - min(parts) <= 2 * PIECE_BYTES for parts in ways):
                    break
                assert left, ways
        for parts, all_bytes in zip(ways, total):
            assert sum(parts) >= 0.6 * all_bytes, (parts, total)


def without(arguments):
    for encrypted, offered, wanted in ((False, 4, 4), (True, 0, 4), (True, 4, 0)):
        with Pool(arguments, encrypted, offered) as pool:
            total, by_lane = pool.run(wanted)
        assert by_lane == [] and min(total) > 10 * PIECE_BYTES, (encrypted, offered, wanted, total, by_lane)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--program", required=True)
    arguments = parser.parse_args()
    for case in (striped_in_equal_parts, without):
        case(arguments)


if __name__ == "__main__":
    main()
