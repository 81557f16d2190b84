#!/usr/bin/env python3
"""What the README says does not run yet, and what the call table refuses, are the same, to the last call. (Its first
sentence is support.md's: callgen_test.py.)

    refused_test.py CUDA.CALLS README.md
"""
import pathlib
import re
import sys
import unittest

CALLS, README = (pathlib.Path(argument) for argument in sys.argv[1:3])

# The README's words for calls, and the calls. Whoever adds to either side adds here.
WORDS = {
    "graphics": r"cuGraphics|cuGL|EGL|VDPAU",
    "external memory": r"External(Memory|Semaphore)(?!s\w*Node)",
    "checkpoints": r"cuCheckpoint",
    "core dumps": r"cuCoredump",
    "external semaphores": r"ExternalSemaphores\w*Node",
    "decompression": r"cuMemBatchDecompress",
    "profilers": r"cuProfilerInitialize",
}


def refused():
    """Calls whose newest form is unsupported; older ones are what programs of long ago were built with."""
    newest = {}
    for line in CALLS.read_text().splitlines():
        words = line.split()
        if not words or not words[0].startswith("0x"):
            continue
        base, version = re.fullmatch(r"(\w+?)(?:_v(\d+))?", words[2]).groups()
        newest[base] = max(newest.get(base, (0, "")), (int(version or 1), words[1]))
    return {base for base, (_, how) in newest.items() if how == "unsupported"}


def section():
    text = README.read_text().split("## What does not run yet\n")[1].split("\n## ")[0]
    return " ".join(text.split())


class Refused(unittest.TestCase):
    def test_every_refused_call_is_told(self):
        untold = {call for call in refused() if not any(re.search(calls, call) for calls in WORDS.values())}
        self.assertEqual(untold, set())

    def test_what_is_told_is_refused(self):
        calls = refused()
        self.assertGreater(len(calls), 20)
        for words, pattern in WORDS.items():
            with self.subTest(words):
                self.assertIn(words, section())
                self.assertTrue(any(re.search(pattern, call) for call in calls), "all of that runs")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
