#!/usr/bin/env python3
"""Behind a mock cloud's machine: boots a local one with the user data on stdin, and lets port 22 of ADDRESS lead to it.
Ends, and destroys the machine, when it is told to.

    machine_behind.py PROGRAM NAME ADDRESS           PROGRAM: see machine_behind.cpp
    machine_behind.py --own-gpu TNR NAME ADDRESS     a cloud whose machines bring GPUs: on stdin is the public key of their user,
                                                     `ubuntu`; the GPU is one that TNR, in the home folder TNR_BEHIND_HOME, gives it
"""
import json
import os
import signal
import socket
import subprocess
import sys
import threading

*KIND, PROGRAM, NAME, ADDRESS = sys.argv[1:]
ADD_USER = """set -e; useradd --create-home --shell /bin/bash ubuntu
echo 'ubuntu ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/ubuntu; chmod 0440 /etc/sudoers.d/ubuntu
install -d -m 0700 -o ubuntu -g ubuntu ~ubuntu/.ssh; cat >~ubuntu/.ssh/authorized_keys; chown ubuntu: ~ubuntu/.ssh/authorized_keys"""


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


def created():
    """The port of 127.0.0.1 that leads to its SSH server."""
    if not KIND:
        made = subprocess.run([PROGRAM, "create", NAME], stdin=sys.stdin, stdout=subprocess.PIPE, text=True, check=True)
        return int(made.stdout)
    key = sys.stdin.read() + "\n"
    tnr("start", NAME, "--gpu", "h100")
    tnr("connect", NAME, "--", "sudo", "sh", "-c", ADD_USER, given=key)
    return json.loads(tnr("status", NAME, "--json"))["machines"][0]["ssh_port"]


def tnr(*words, given=None):
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["TNR_BEHIND_HOME"], "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
    done = subprocess.run([PROGRAM, *words], input=given, stdin=None if given else subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, check=True, env=environment)
    return done.stdout


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    port = created()
    subprocess.run(["ip", "address", "replace", ADDRESS + "/32", "dev", "lo"], check=True)
    forward(socket.create_server((ADDRESS, 22)), port)
finally:
    if KIND:
        tnr("delete", NAME, "--yes")
    else:
        subprocess.run([PROGRAM, "destroy", NAME])
