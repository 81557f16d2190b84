#!/usr/bin/env python3
"""Runs one CUDA program with a time limit and believes it only when it says PASS and exits 0.

    run_program.py [--limit-s 60] PROGRAM [ARGUMENT...]

The environment (LD_LIBRARY_PATH, TNR_POOL, TNR_GPU) comes from the caller; tests/support/with_server.py makes one.
"""
import argparse
import os
import signal
import subprocess
import sys


def run(command, limit_s):
    """The exit status and output; the status is None when the time ran out."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its children too: exit_paths starts some
        output, _ = process.communicate()
        return None, output.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit-s", type=float, default=60)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("no program given")
    status, output = run(arguments.command, arguments.limit_s)
    sys.stdout.write(output)
    if status is None:
        print(f"run_program: stopped after {arguments.limit_s:g} s")
    elif status < 0:
        print(f"run_program: ended by {signal.Signals(-status).name}")
    elif status != 0:
        print(f"run_program: exit status {status}")
    elif output.splitlines()[-1:] != ["PASS"]:
        print("run_program: exit status 0, but the last line is not PASS")
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
