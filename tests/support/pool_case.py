"""A pool of two nodes on one etcd, and programs in it: what the tests of such pools have in common."""
import json
import sys
import tempfile
import unittest
import urllib.request

import nodes

# Says which GPU it has, then uses it all the time, or until it is asked to end.
PROGRAM = """
import ctypes, signal, sys, time
cuda, at, buffer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), bytes(1 << 20)
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} returned {code}")
context, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(16)
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(1 << 20))
call("cuMemcpyHtoD_v2", at, buffer, ctypes.c_size_t(len(buffer)))
call("cuDeviceGetUuid", uuid, 0)
print(uuid.raw.hex(), flush=True)
end, asked = time.time() + float(sys.argv[1]), []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
while time.time() < end and not asked:
    call("cuMemcpyHtoD_v2", at, buffer, ctypes.c_size_t(len(buffer)))
    call("cuMemcpyDtoH_v2", buffer, at, ctypes.c_size_t(len(buffer)))
    time.sleep(0.05)
print("done", flush=True)
"""


class PoolCase(unittest.TestCase):
    folders = None  # of the programs and of the library, as (BIN, LIB)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.pool = nodes.Pool(*self.folders, folder.name)
        self.folder = folder.name
        self.pool.__enter__()
        self.addCleanup(self.pool.__exit__)
        self.etcd, self.servers, self.addresses = self.pool.etcd, self.pool.servers, self.pool.addresses
        self.serve, self.node, self.operator = self.pool.serve, self.pool.node, self.pool.operator
        self.log, self.user = self.pool.log, self.pool.user

    def program(self, user, gpu, seconds, count=1, **environment):
        config, command = dict(user, gpu=gpu, count=count), [sys.executable, "-c", PROGRAM, str(seconds)]
        program = self.pool.start(config, command, **environment)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.stderr.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        return program

    def runs(self, user, gpu, seconds=0.1):
        """The GPU that it had."""
        program = self.program(user, gpu, seconds)
        out, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 0, errors + self.log("a") + self.log("b"))
        return out.split()[0]

    def ends(self, program):
        """As soon as it is asked to, and well."""
        program.terminate()
        out, errors = program.communicate(timeout=60)
        self.assertIn("done", out, errors)

    def refused(self, user, gpu, count=1, **environment):
        program = self.program(user, gpu, 0.1, count, **environment)
        out, errors = program.communicate(timeout=60)
        self.assertNotEqual(program.returncode, 0, out)
        return errors

    def ask_etcd(self, path, **body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.etcd.port}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())
