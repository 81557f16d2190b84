"""A TCP proxy that fails in all the ways a network does: for tests of what survives a broken connection.

    proxy = Proxy(("127.0.0.2", port), ("127.0.0.1", port))
    proxy.cut()              # ends all connections, what is on the way is lost
    proxy.cut_after = (20_000, 3_000_000)   # each new connection ends by itself after a random number of bytes
    proxy.delay_s = 0.05     # each way
    proxy.change = lambda connection, target, data: data   # what is passed on instead of what came
    proxy.flows.clear()      # forwards nothing until it is set again: connections stay open and are silent
    proxy.turned_away = 5    # so many of those that come are reset at once
    proxy.wait_until_left(60)   # until both sides have given up the connections that there are
"""
import queue
import random
import socket
import struct
import threading
import time

CHUNK_BYTES = 1 << 16


def reset(sock):
    """Ends a connection so that nothing that is still queued is delivered."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:  # it has gone from the other side
        pass
    sock.close()


class Connection:
    def __init__(self, proxy, client):
        self.proxy, self.client = proxy, client
        self.server = socket.create_connection(proxy.target)
        self.left = random.randint(*proxy.cut_after) if proxy.cut_after else None
        self.lock = threading.Lock()
        self.ended = False
        self.left_by = {self.client: threading.Event(), self.server: threading.Event()}  # who has closed its side
        for one in (self.client, self.server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self):
        """By itself: the first thread may end the connection before the last one runs."""
        for source, target in ((self.client, self.server), (self.server, self.client)):
            late = queue.Queue()
            threading.Thread(target=self.read, args=(source, late), daemon=True).start()
            threading.Thread(target=self.write, args=(target, late), daemon=True).start()

    def read(self, source, late):
        while True:
            try:
                data = source.recv(CHUNK_BYTES)
            except OSError:
                data = b""
            if not data:
                self.left_by[source].set()
            late.put((time.monotonic() + self.proxy.delay_s, data))
            if not data:
                return

    def write(self, target, late):
        while True:
            when, data = late.get()
            time.sleep(max(0.0, when - time.monotonic()))  # the delay is what is tested
            if not data:
                return self.end()
            self.proxy.flows.wait()
            data = self.proxy.change(self, target, data)
            try:
                target.sendall(data[:self.allowed(len(data))])
            except OSError:
                return self.end()
            if self.left == 0:
                return self.end()

    def allowed(self, size):
        with self.lock:
            if self.left is None:
                return size
            size = min(size, self.left)
            self.left -= size
            return size

    def end(self):
        with self.lock:
            if self.ended:
                return
            self.ended = True
        for one in (self.client, self.server):
            reset(one)
        self.proxy.connections.discard(self)
        self.proxy.ended += 1


class Proxy:
    def __init__(self, address, target):
        self.target = target
        self.change = lambda connection, target, data: data
        self.cut_after, self.delay_s, self.ended, self.turned_away = None, 0.0, 0, 0
        self.flows = threading.Event()
        self.flows.set()
        self.connections, self.most_at_once = set(), 0
        self.listener = socket.create_server(address)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.turned_away > 0:
                self.turned_away -= 1
                reset(client)
                continue
            try:
                connection = Connection(self, client)
            except OSError:  # nobody listens there: so it looks from here, too
                reset(client)
                continue
            self.connections.add(connection)
            self.most_at_once = max(self.most_at_once, len(self.connections))
            connection.start()

    def wait_until_left(self, limit_s):
        give_up = time.monotonic() + limit_s
        for one in list(self.connections):
            for event in one.left_by.values():
                assert event.wait(give_up - time.monotonic()), "a connection is still held"

    def cut(self):
        for one in list(self.connections):
            one.end()

    def close(self):
        self.listener.close()
        self.cut()
