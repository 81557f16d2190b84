#!/usr/bin/env python3
"""Runs a command beside a GPU server of its own, with our libcuda.so.1 in front of it.

    with_server.py --server bin/tnr-gpu-server --client lib [--emulate h100:2] [--gpu h100] -- ./saxpy

The server listens on a port of the kernel's choice and keeps its state in a temporary folder; both are gone when the
command has ended. The exit status is the command's own; 125 says that the server did not come up, died on the way, or
that a sanitizer found something in it or in one of its workers. What the server logged is shown when anything failed.
"""
import argparse
import json
import os
import select
import selectors
import shlex
import signal
import subprocess
import sys
import tempfile

START_LIMIT_S = 60  # a loaded machine with sanitizers needs 10
STOP_LIMIT_S = 10
SERVER_FAILED = 125
# How sanitizers begin their reports.
FINDINGS = ("ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "runtime error:", "ERROR: LeakSanitizer")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the tnr-gpu-server program")
    parser.add_argument("--client", required=True, help="folder with our libcuda.so.1")
    parser.add_argument("--emulate", default="h100:2", help="GPUs to emulate")
    parser.add_argument("--memory-mib", default="2048", help="memory of each emulated GPU")
    parser.add_argument("--driver", help="use this libcuda.so.1 instead of emulating")
    parser.add_argument("--gpu", default="h100", help="what the command asks for: TNR_GPU")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    arguments.command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not arguments.command:
        parser.error("no command given")
    return arguments


def environment_for_sanitizers():
    """LeakSanitizer works from a process of its own that stops ours, which a worker's sandbox does not allow; a run of the
    driver suite with it on did not end. The suites without a server look for leaks."""
    options = os.environ.get("ASAN_OPTIONS", "")
    return dict(os.environ, ASAN_OPTIONS="detect_leaks=0" + (":" + options if options else ""))


def log_of(folder):
    return os.path.join(folder, "server.log")


def start_server(arguments, folder, encrypted=False, more=()):
    gpus = ["--driver", arguments.driver] if arguments.driver else [
        "--emulate", arguments.emulate, "--emulated-memory", arguments.memory_mib]
    command = [arguments.server, "serve", "--listen", "tcp://127.0.0.1:0", "--linger-ms", "0",
               "--state", os.path.join(folder, "server"), *gpus, *more, *([] if encrypted else ["--plain"])]
    with open(log_of(folder), "w") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, stderr=log,
                                env=environment_for_sanitizers())


def address_of(server):
    """What the server says it listens on; None when it says nothing in time or ends."""
    waiting = selectors.DefaultSelector()
    waiting.register(server.stdout, selectors.EVENT_READ)
    if not waiting.select(START_LIMIT_S):
        return None
    for line in server.stdout:
        if line.startswith(b"listening on "):
            return line.split()[2].decode()
    return None


def client_environment(arguments, address, folder):
    environment = dict(environment_for_sanitizers(), TNR_POOL=address, TNR_GPU=arguments.gpu, HOME=folder,
                       TNR_TEST_DRIVER=os.path.join(os.path.abspath(arguments.client), "libcuda.so.1"))
    before = environment.get("LD_LIBRARY_PATH")
    environment["LD_LIBRARY_PATH"] = os.path.abspath(arguments.client) + (":" + before if before else "")
    environment.pop("TNR_CONFIG", None)  # a configured machine must not lend its own pool to the test
    return environment


def enrolled(arguments, folder, address, name="tester", **more):
    """The file for TNR_CONFIG of an account, a new one or one with a new key, that an encrypted server lets in; `more` goes
    into the file."""
    def ask(*words):
        return subprocess.run([arguments.server, *words, "--state", os.path.join(folder, "server")], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
    path = os.path.join(folder, f"enrolled-{name}.json")
    words = shlex.split(ask("user", "add", name, *(["--replace"] if os.path.exists(path) else [])))
    secret_key, server_key = words[1], words[-1]  # echo SECRET | tnr login pool ADDRESS KEY
    public_key = next(line.split()[-1] for line in ask("user", "list").splitlines() if line.startswith(name + " "))
    config = {"pool": address, "gpu": arguments.gpu, "server_key": server_key,
              "machine": {"name": "", "public_key": public_key, "secret_key": secret_key}}
    with open(path, "w") as file:
        json.dump({**config, **more}, file)
    return path


def stop(server):
    """Asks first, so that the server can end its workers; then ends its whole process group. Its number, and with it the
    group's, is its own until it has been waited for: one that was waited for already has left nothing that we may signal."""
    if server.returncode is not None:
        return
    ended = os.pidfd_open(server.pid)
    try:
        signal.pidfd_send_signal(ended, signal.SIGTERM)  # terminate() would wait for one that has died
        if not select.select([ended], [], [], STOP_LIMIT_S)[0]:
            print("with_server: the server did not stop when asked", file=sys.stderr)
        os.killpg(server.pid, signal.SIGKILL)
    finally:
        os.close(ended)
    server.wait()


def run_command(command, environment):
    """The command's status. SIGTERM ends the command and then us: an exception raised while subprocess waits would leave
    its lock taken, and us waiting for ever."""
    process = subprocess.Popen(command, env=environment)
    ended = os.pidfd_open(process.pid)
    asked = []

    def end(*_):
        asked.append(True)
        signal.pidfd_send_signal(ended, signal.SIGKILL)

    before = signal.signal(signal.SIGTERM, end)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(ended)
    if asked:
        sys.exit(128 + signal.SIGTERM)
    return status


def run(arguments, folder):
    server = start_server(arguments, folder)
    try:
        address = address_of(server)
        if address is None:
            print("with_server: the server did not start", file=sys.stderr)
            return SERVER_FAILED
        status = run_command(arguments.command, client_environment(arguments, address, folder))
        if server.poll() is not None:
            print(f"with_server: the server died (status {server.returncode})", file=sys.stderr)
            return SERVER_FAILED
    finally:
        stop(server)
    return status if status >= 0 else 128 - status


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the server is ended, too
    with tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True) as folder:
        status = run(arguments, folder)
        with open(log_of(folder), errors="replace") as file:
            log = file.read()
        if status == 0 and any(finding in log for finding in FINDINGS):
            status = SERVER_FAILED
        if status != 0:
            print("with_server: the server's log:\n" + log[-20_000:], file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
