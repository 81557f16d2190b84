"""A server behind a network with a delay: our GPU server, the delaying proxy (tests/bench/delaying_proxy.cpp) in front of
its control port and its workers' ports, and the environment of programs that reach it through there.

    with delays.Pool(tools, driver="lib/libcuda.so.1") as pool:
        with pool.through(delay_ms=0.5) as way:
            subprocess.run(command, env=way.environment())
"""
import argparse
import os
import subprocess
import tempfile
import time

import with_server
from ports import INSIDE, OUTSIDE, Ports

WORKERS = 24  # ports for them: those of several claims serve, are warm or are ending
SPARE = 3     # ports for servers of a program's own: way.spare


def cpu_ticks(pid):
    """What a process and its descendants have used of the processor; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        children = "".join(open(f"/proc/{pid}/task/{task}/children").read() + " " for task in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12]) + sum(map(cpu_ticks, children.split()))


class Way:
    """To a pool: directly (delay 0), or through a proxy for as long as it is entered. `delay_ms` is the round trip."""

    def __init__(self, pool, delay_ms):
        self.pool, self.delay_ms, self.proxy = pool, delay_ms, None
        self.host = OUTSIDE if delay_ms else INSIDE
        self.spare = pool.spare
        self.counts_port = pool.spare[-1] if delay_ms else 0

    def __enter__(self):
        if self.delay_ms:
            ports = [self.pool.port, *self.pool.ports.all()]
            ports.remove(self.counts_port)
            self.proxy = subprocess.Popen(
                [self.pool.tools.proxy, "--from", OUTSIDE, "--to", INSIDE, "--delay-us", str(round(self.delay_ms * 500)),
                 "--control", str(self.counts_port), *map(str, ports)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self.proxy.stdout.readline() != "ready\n":
                raise RuntimeError("the delaying proxy did not start")
        return self

    def __exit__(self, *_):
        if self.proxy:
            self.proxy.stdin.close()  # which is how it learns that it may go
            self.proxy.stdout.close()
            self.proxy.wait()

    def environment(self, gpu="h100", lanes=0):
        address = f"tcp://{self.host}:{self.pool.port}"
        environment = with_server.client_environment(
            argparse.Namespace(client=self.pool.tools.client, gpu=gpu), address, self.pool.folder.name)
        environment["TNR_LANES"] = str(lanes)
        if self.pool.encrypted:  # the keys; TNR_POOL and TNR_GPU go before what the file says of them
            environment["TNR_CONFIG"] = self.pool.config
        return environment


class Pool:
    """`tools`: has server, client (a folder) and proxy. Without `driver` GPUs are emulated. `lanes`: that the server offers;
    how many a program takes is TNR_LANES."""

    def __init__(self, tools, driver=None, emulate="h100:2", memory_mib="2048", encrypted=False, lanes=0):
        self.tools, self.encrypted, self.lanes = tools, encrypted, lanes
        self.arguments = argparse.Namespace(server=tools.server, driver=driver, emulate=emulate, memory_mib=memory_mib)

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.ports = Ports(WORKERS + SPARE)
        self.spare = list(self.ports.all())[WORKERS:]
        first = self.ports.first
        self.server = with_server.start_server(self.arguments, self.folder.name, encrypted=self.encrypted,
                                               more=["--worker-ports", f"{first}-{first + WORKERS - 1}",
                                                     "--lanes", str(self.lanes)])
        address = with_server.address_of(self.server)
        if not address:
            log = self.log()
            self.__exit__()
            raise RuntimeError("the server did not start:\n" + log)
        self.port = int(address.rsplit(":", 1)[1])
        self.config = with_server.enrolled(
            argparse.Namespace(server=self.tools.server, gpu="h100"), self.folder.name, address) if self.encrypted else None
        return self

    def __exit__(self, *_):
        with_server.stop(self.server)
        self.server.stdout.close()
        self.ports.close()
        self.folder.cleanup()

    def log(self):
        with open(with_server.log_of(self.folder.name), errors="replace") as file:
            return file.read()

    def settle(self, limit_s=5):
        """Waits until the server and its workers do nothing: memory is overwritten after each claim."""
        end, last = time.monotonic() + limit_s, None
        while time.monotonic() < end:
            now = cpu_ticks(self.server.pid)
            if now == last:
                return
            last = now
            time.sleep(0.1)

    def through(self, delay_ms):
        return Way(self, delay_ms)
