#!/usr/bin/env python3
"""Behind a mock cloud's machine: boots a local one with the user data on stdin, and lets port 22 of ADDRESS lead to it.
Ends, and destroys the machine, when it is told to.

    machine_behind.py PROGRAM NAME ADDRESS     PROGRAM: see machine_behind.cpp
"""
import signal
import socket
import subprocess
import sys
import threading

PROGRAM, NAME, ADDRESS = sys.argv[1:]


def copy(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one side has gone
        source.close()
        target.close()


def forward(listener, port):
    while True:
        client, _ = listener.accept()
        try:
            machine = socket.create_connection(("127.0.0.1", port))
        except OSError:
            client.close()
            continue
        for one, other in ((client, machine), (machine, client)):
            threading.Thread(target=copy, args=(one, other), daemon=True).start()


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    made = subprocess.run([PROGRAM, "create", NAME], stdin=sys.stdin, stdout=subprocess.PIPE, text=True, check=True)
    subprocess.run(["ip", "address", "replace", ADDRESS + "/32", "dev", "lo"], check=True)
    forward(socket.create_server((ADDRESS, 22)), int(made.stdout))
finally:
    subprocess.run([PROGRAM, "destroy", NAME])
