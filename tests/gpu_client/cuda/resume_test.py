#!/usr/bin/env python3
"""What becomes of a program whose connection to its GPU breaks, is slow, or falls silent.

    resume_test.py --server bin/tnr-gpu-server --client lib --program bin/resume_program [CASE…]

Between the program and its worker is a proxy (tests/support/proxy.py): the server and its workers are at 127.0.0.1, the
program is told that the pool is at 127.0.0.2, and finds the workers there, too, since their ports are known. The program
checks itself that every command was done once.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import proxy as proxies  # noqa: E402
import with_server  # noqa: E402
from ports import INSIDE, OUTSIDE, Ports  # noqa: E402

WORKERS = 6         # ports for them: one serves, one is warm, the rest are ending
ENDS_WITHIN_S = 120  # with sanitizers, on a machine that does other things as well
LEAVES_WITHIN_S = 20
KILLS = 4
ATTEMPTS_IN_VAIN = 10  # each is a connection of ZeroMQ's, and one that asks whether the port refuses


class World:
    """A server, a proxy for each of its ports, and a program."""

    def __init__(self, arguments, encrypted=False, lanes=0, **environment):
        self.arguments = argparse.Namespace(server=arguments.server, client=arguments.client, driver=None,
                                            emulate="h100", memory_mib="256", gpu="h100")
        self.binary, self.encrypted = arguments.program, encrypted
        self.lanes, self.environment = lanes, dict(environment, TNR_LANES=str(lanes))
        self.program = None

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.ports = Ports(WORKERS)
        first = self.ports.first
        # A loaded machine is slow to knock: what is tested here is that nothing gets lost, not how fast.
        os.environ.update(dict({"TNR_WORKER_KNOCK_MS": "20000"}, **self.environment))
        self.server = with_server.start_server(self.arguments, self.folder.name, encrypted=self.encrypted,
                                               more=["--worker-ports", f"{first}-{first + WORKERS - 1}",
                                                     "--lanes", str(self.lanes)])
        address = with_server.address_of(self.server)
        assert address, "the server did not start"
        self.port = int(address.rsplit(":", 1)[1])
        self.all = []
        try:
            for port in (self.port, *range(first, first + WORKERS)):
                self.all.append(proxies.Proxy((OUTSIDE, port), (INSIDE, port)))
        except OSError:  # another's proxy has that port there
            self.__exit__(None)
            return self.__enter__()
        self.proxies = self.all[1:]
        return self

    def __exit__(self, kind, *_):
        if self.program:
            self.program.kill()
            self.program.wait()
        for one in self.all:
            one.close()
        with_server.stop(self.server)
        self.ports.close()
        for name in {"TNR_WORKER_KNOCK_MS", *self.environment}:
            os.environ.pop(name)
        log = self.log()
        if kind:
            print("the server's log:\n" + log[-10_000:], file=sys.stderr)
        self.folder.cleanup()
        assert kind or not any(finding in log for finding in with_server.FINDINGS), log[-10_000:]

    def log(self):
        with open(with_server.log_of(self.folder.name), errors="replace") as file:
            return file.read()

    def wait_for_log(self, *texts, count=1):
        """Until these have been said so many times together. Which of them was the last?"""
        give_up = time.monotonic() + ENDS_WITHIN_S
        while len(said := [text for line in self.log().splitlines() for text in texts if text in line]) < count:
            assert time.monotonic() < give_up, f"the server never said any of {texts}"
            time.sleep(0.05)
        return texts.index(said[-1])

    def set(self, **settings):
        for one in self.proxies:
            for name, value in settings.items():
                setattr(one, name, value)

    def cut(self):
        for one in self.proxies:
            one.cut()

    def silence(self, on):
        for one in self.proxies:
            (one.flows.clear if on else one.flows.set)()

    def wait_until_said(self, text):
        """On the program's stderr."""
        for line in self.program.stderr:
            if text in line:
                return
        raise AssertionError(f"the program never said '{text}'")

    def wait_until_left(self):
        """Until program and worker have given up their silent connection."""
        assert any(one.connections for one in self.proxies)
        for one in self.proxies:
            one.wait_until_left(ENDS_WITHIN_S)

    def ended(self):
        return sum(one.ended for one in self.proxies)

    def start(self, rounds, *more, straight=False):
        """`straight`: not through the proxies."""
        pool = f"tcp://{INSIDE if straight else OUTSIDE}:{self.port}"
        environment = with_server.client_environment(self.arguments, pool, self.folder.name)
        if self.encrypted:
            environment["TNR_CONFIG"] = with_server.enrolled(self.arguments, self.folder.name, pool)
        self.program = subprocess.Popen([self.binary, str(rounds), *more], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.program

    def round(self):
        """Waits until the program has finished a round."""
        line = self.program.stdout.readline()
        assert line.startswith("round "), line + self.program.stderr.read()

    def ends_right(self):
        output, errors = self.program.communicate(timeout=ENDS_WITHIN_S)
        assert self.program.returncode == 0, f"ended with {self.program.returncode}: {output} {errors}"
        assert re.search("^right: ", output, re.M), output
        return errors


def cut_again_and_again(arguments):
    with World(arguments) as world:
        world.set(cut_after=(5_000, 4_000_000))
        world.start(30)
        errors = world.ends_right()
        assert world.ended() >= 10, f"only {world.ended()} connections ended"
        assert "trying again" not in errors or "is back" in errors, errors


def cut_while_encrypted(arguments):
    with World(arguments, encrypted=True) as world:
        world.set(cut_after=(5_000, 4_000_000))
        world.start(10)
        world.ends_right()
        assert world.ended() >= 3, f"only {world.ended()} connections ended"


def cut_while_striped(arguments):
    """Each connection ends by itself, also while others are being dialled."""
    with World(arguments, encrypted=True, lanes=2) as world:
        world.start(12)
        world.round()
        assert max(one.most_at_once for one in world.proxies) == 3, "there were no lanes"
        world.set(cut_after=(50_000, 6_000_000))
        world.cut()
        world.ends_right()
        assert world.ended() >= 6, f"only {world.ended()} connections ended"


def slow_and_cut(arguments):
    with World(arguments) as world:
        world.set(delay_s=0.06)
        world.start(3)
        world.round()
        world.cut()
        world.round()
        world.cut()
        world.ends_right()


def reset_for_a_moment(arguments):
    """As by a router that begins anew: whoever comes is reset. The worker waits only so long for somebody to come, so that
    the program comes often."""
    with World(arguments, TNR_WORKER_KNOCK_MS="4000") as world:
        world.start(2)
        world.round()
        world.set(turned_away=2 * ATTEMPTS_IN_VAIN)
        world.cut()
        world.ends_right()
        assert min(one.turned_away for one in world.proxies) == 0, "nobody was turned away"


def silent_for_less_than_the_grace_period(arguments):
    with World(arguments) as world:
        world.start(4)
        world.round()
        world.silence(True)
        world.wait_until_left()  # heartbeats give up after 10 s
        world.wait_until_said("trying again")
        world.silence(False)
        errors = world.ends_right()
        assert "is back" in errors, errors


def silent_for_longer(arguments):
    with World(arguments, TNR_GRACE_MS="1500", TNR_WORKER_GRACE_MS="1500") as world:
        world.start(4)
        world.round()
        world.silence(True)
        output, errors = world.program.communicate(timeout=ENDS_WITHIN_S)
        assert world.program.returncode == 3 and "failed" in output, output
        assert "did not come back" in errors, errors
        world.wait_for_log("the client is gone")
        world.silence(False)
        world.start(1)
        world.ends_right()


def leave_while_disconnected(arguments):
    with World(arguments) as world:
        program = world.start(1, "leave")
        world.round()
        world.silence(True)
        world.cut()
        program.stdin.write("\n")
        program.stdin.flush()
        program.wait(timeout=LEAVES_WITHIN_S)
        assert program.returncode == 0, program.returncode


def kill(world, straight):
    world.start(1, "leave", straight=straight)
    world.round()
    world.program.kill()
    world.program.wait()


def killed_on_a_straight_way(arguments):
    """Nobody waits for a program that its own kernel says has ended: a living one might knock for 20 s here. The kernel
    says something else (a reset, as of a cut connection) where something had come that the program had not read yet, which
    is rare: then it is killed once more."""
    for encrypted, lanes in ((False, 0), (True, 2)):
        with World(arguments, encrypted=encrypted, lanes=lanes) as world:
            for attempt in range(KILLS):
                kill(world, straight=True)
                if world.wait_for_log("the client has ended", "the client is gone", count=attempt + 1) == 0:
                    break
            else:
                raise AssertionError("it was waited for each time")


def killed_behind_a_proxy(arguments):
    """What is closed there may have been closed by the proxy, and the program live on."""
    with World(arguments, TNR_WORKER_KNOCK_MS="300") as world:
        kill(world, straight=False)
        world.wait_for_log("the client is gone")
        assert "the client has ended" not in world.log()


CASES = (cut_again_and_again, cut_while_encrypted, cut_while_striped, slow_and_cut, reset_for_a_moment,
         silent_for_less_than_the_grace_period, silent_for_longer, leave_while_disconnected, killed_on_a_straight_way,
         killed_behind_a_proxy)

# These wait for heartbeats to give up: each in a process of its own, beside the others.
WAITING = (silent_for_less_than_the_grace_period, silent_for_longer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("case", nargs="*", help="all, unless named")
    arguments = parser.parse_args()
    cases, beside = [case for case in CASES if case.__name__ in arguments.case], []
    if not arguments.case:
        cases = [case for case in CASES if case not in WAITING]
        beside = [subprocess.Popen([sys.executable, *sys.argv, case.__name__]) for case in WAITING]
    try:
        for case in cases:
            begun = time.monotonic()
            case(arguments)
            print(f"{case.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    finally:
        statuses = [one.wait() for one in beside]
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
