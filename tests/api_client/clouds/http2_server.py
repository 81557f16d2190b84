#!/usr/bin/env python3
"""nghttpd, which speaks HTTP/2 and nothing else: http2_server.py CERTIFICATE KEY FOLDER. Prints `port N`.

It serves the folder's files over TLS, and sends back what is uploaded. It takes no port from the kernel, so one is found
first, and another should somebody have been faster.
"""
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def answers(server, port):
    while server.poll() is None:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.02)
    return False


certificate, key, folder = sys.argv[1:]
while True:
    port = free_port()
    server = subprocess.Popen(["nghttpd", "-a", "127.0.0.1", "-d", folder, "--echo-upload", str(port), key, certificate],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if answers(server, port):
        break
print(f"port {port}", flush=True)
sys.stdin.read()
server.kill()
server.wait()
