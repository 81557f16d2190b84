#!/usr/bin/env python3
"""packaging/test-gpu, packed and run from its bundle, with the emulated GPU in the driver's place.

    test_gpu_test.py --build build/release
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEST_GPU = os.path.join(ROOT, "packaging", "test-gpu")


class TestGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        cls.bundle = os.path.join(cls.folder.name, "bundle.tar.gz")
        subprocess.run([TEST_GPU, "--build", ARGUMENTS.build, "--pack", cls.bundle], check=True, stdout=subprocess.DEVNULL)
        # What is tested is the bundle: nothing of the source tree or the build folder.
        shutil.unpack_archive(cls.bundle, cls.folder.name)
        cls.unpacked = os.path.join(cls.folder.name, "tnr-gpu-tests")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_it(self, *arguments):
        out = os.path.join(self.folder.name, "out")
        done = subprocess.run([os.path.join(self.unpacked, "packaging", "test-gpu"), "--emulated", "--quick", "--out", out,
                               *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder.name)
        return done, out

    def test_everything_runs_from_the_bundle(self):
        done, out = self.run_it("--only", "driver_suite,differential,libraries,frameworks,starts,steps", "--delay", "0,1")
        self.assertEqual(done.returncode, 0, done.stdout)
        for line in ("passed   driver suite, local", "passed   driver suite, remoted", "passed   differential, remoted",
                     "measured starts: init", "measured driver: 0 ms"):
            self.assertIn(line, done.stdout)
        for what in ("cublas", "cufft", "cudnn", "torch", "jax", "torch train-eager", "torch infer-graph"):  # skipped, mostly, but never silently
            self.assertRegex(done.stdout, rf"(?m)^(passed|skipped|measured) +{what}\b")
        with open(os.path.join(out, "steps.json")) as file:
            loop = json.load(file)["loops"][0]
        self.assertEqual(set(loop["remoted"]), {"0", "1"})
        self.assertLessEqual(loop["remoted"]["1"]["round_trips_per_step"], 1)

    def test_what_does_not_work_fails_it(self):
        proxy = os.path.join(self.unpacked, "build", "release", "bin", "delaying_proxy")
        os.rename(proxy, proxy + ".away")
        try:
            done, _ = self.run_it("--only", "steps", "--delay", "1")
        finally:
            os.rename(proxy + ".away", proxy)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("FAILED   steps", done.stdout)

    def test_a_check_with_other_bits_is_named(self):
        script = os.path.join(self.unpacked, "tests", "gpu_machine", "torch_checks.py")
        os.rename(script, script + ".away")
        with open(script, "w") as file:
            file.write("import ctypes, json\n"
                       "ours = hasattr(ctypes.CDLL('libcuda.so.1'), 'cuTnrRoundTrips')\n"
                       "for name, found in {'same': 'a', 'other': 'b' if ours else 'c', 'gone': 'd'}.items():\n"
                       "    if not (ours and name == 'gone'): print(json.dumps({'check': name, 'result': found}))\n"
                       "print(json.dumps({'check': 'broken', 'error': 'by itself'}))\n")
        try:
            done, _ = self.run_it("--only", "frameworks")
        finally:
            os.rename(script + ".away", script)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("FAILED   torch: 1 of 3 checks give the same bits", done.stdout)
        self.assertIn("other: b, c by itself", done.stdout)
        self.assertIn("gone: not reached", done.stdout)
        self.assertNotIn("broken", done.stdout)

    def test_without_a_driver_it_says_so(self):
        done = subprocess.run([TEST_GPU, "--build", ARGUMENTS.build, "--driver", "/nowhere/libcuda.so.1", "--only", "driver_suite",
                               "--out", os.path.join(self.folder.name, "none")], stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED", done.stdout)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--build", required=True)
ARGUMENTS, REST = parser.parse_known_args()
if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *REST])
