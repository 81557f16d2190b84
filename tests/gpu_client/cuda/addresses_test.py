#!/usr/bin/env python3
"""Whatever a program has in its address space, host memory is never taken for device memory.

    addresses_test.py --server bin/tnr-gpu-server --client lib --program bin/addresses_program

The program has memory in many places, checks that each is host memory to the driver, and that copies go the right way.
Where its own memory lies where the worker has reserved a range, the two must agree on another place.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import with_server  # noqa: E402

PROCESSES = 50
LIMIT_S = 60
RANGE_BYTES_MIN = 1 << 38  # of a mapping in a worker: nothing else in it is nearly as large
MOVED = "its addresses were taken in this program"
ADDRESS_LIMIT_KIB = 8 << 20  # far less than a range


class World:
    def __init__(self, arguments):
        self.arguments = argparse.Namespace(server=arguments.server, client=arguments.client, driver=None,
                                            emulate="h100:2", memory_mib="256", gpu="h100")
        self.program = arguments.program

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.server = with_server.start_server(self.arguments, self.folder.name)
        self.address = with_server.address_of(self.server)
        assert self.address, "the server did not start"
        return self

    def __exit__(self, *_):
        with_server.stop(self.server)
        self.folder.cleanup()

    def run(self, seed, *words, gpu="h100", before=""):
        """Runs the program to its good end; what it wrote on stderr."""
        environment = with_server.client_environment(self.arguments, self.address, self.folder.name)
        environment.update(TNR_GPU=gpu, TNR_LOG="info")
        command = ["sh", "-c", before + 'exec "$@"', "sh", self.program, str(seed), *words]
        done = subprocess.run(command, env=environment, timeout=LIMIT_S, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        assert done.returncode == 0, f"seed {seed} {words} {gpu}: ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stderr

    def reserved(self):
        """The ranges of the workers that wait for their first client."""
        with open(f"/proc/{self.server.pid}/task/{self.server.pid}/children") as file:
            children = file.read().split()
        found = []
        for pid in children:
            try:
                with open(f"/proc/{pid}/maps") as file:
                    lines = file.read().splitlines()
            except OSError:  # a helper that has just ended
                continue
            for line in lines:
                begin, end = (int(part, 16) for part in re.match(r"(\w+)-(\w+) ", line).groups())
                if end - begin >= RANGE_BYTES_MIN:
                    found.append(f"{begin:x}-{end:x}")
        return found

    def warm(self):
        """A worker is warm once the pool has described its GPU, which a program waits for."""
        self.run(0)
        ranges = []
        while len(ranges) < 2:  # each GPU's; the next worker starts when the GPU is wiped
            ranges = self.reserved()
        return ranges


def varied_places(world):
    moved = sum(MOVED in world.run(seed) for seed in range(PROCESSES))
    assert moved < PROCESSES // 5, f"{moved} of {PROCESSES} programs had something where the worker's range is"


def taken_range(world):
    errors = world.run(1, *world.warm())
    assert MOVED in errors, f"it was not noticed that the range is taken: {errors}"


def taken_zone(world):
    errors = world.run(2, "block-zone")
    assert MOVED in errors, f"it was not noticed that the zone is taken: {errors}"


def several_gpus(world):
    world.run(3, gpu="h100:2")
    errors = world.run(4, "block-zone", gpu="h100:2")
    assert errors.count(MOVED) == 2, f"both ranges have to move: {errors}"


def limited_addresses(world):
    world.run(5, "no-wishes", before=f"ulimit -v {ADDRESS_LIMIT_KIB}; ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--server", "--client", "--program"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    with World(arguments) as world:
        for case in (taken_range, taken_zone, several_gpus, limited_addresses, varied_places):
            case(world)
            print(f"{case.__name__}: well", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
