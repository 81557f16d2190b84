"""Ports that a test may use on several addresses of loopback at once, as a proxy in front of a server needs them."""
import socket

INSIDE, OUTSIDE = "127.0.0.1", "127.0.0.2"  # where servers listen; where a proxy stands in front of them


BLOCK = 64  # ports that are kept together, whoever needs how many of them


class Ports:
    """`count` successive ports that nobody uses, the first of them `first`. Ours until close(): a name that only one
    socket can have keeps another run of a test away, whether or not somebody listens there at the moment."""

    def __init__(self, count):
        assert count <= BLOCK
        self.count = count
        for self.first in range(21000, 32000, BLOCK):
            try:
                self.lock = socket.socket(socket.AF_UNIX)
                self.lock.bind(f"\0tnr-test-ports-{self.first}")  # in the network's namespace, as ports are
                for port in self.all():
                    for host in (INSIDE, OUTSIDE):
                        with socket.socket() as one:
                            one.bind((host, port))
                return
            except OSError:
                self.lock.close()
        raise RuntimeError("no free ports")

    def all(self):
        return range(self.first, self.first + self.count)

    def close(self):
        self.lock.close()
