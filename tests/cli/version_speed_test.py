#!/usr/bin/env python3
"""`tnr version` is there at once, as prompts and scripts want it: version_speed_test.py TNR"""
import subprocess
import sys
import time

LIMIT_S = 0.015
TRIES = 40  # the best one counts: on a busy machine most of them wait for a core


def once():
    begun = time.monotonic()
    subprocess.run([sys.argv[1], "version"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun


best = min(once() for _ in range(TRIES))
print(f"tnr version: {best * 1000:.1f} ms")
sys.exit(best > LIMIT_S)
