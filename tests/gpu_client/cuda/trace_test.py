#!/usr/bin/env python3
"""What TNR_LOG=trace prints: every call of a program with its arguments, one line each.

    trace_test.py --server bin/tnr-gpu-server --client lib --program bin/profile_program
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import with_server  # noqa: E402

HEX = "0x[0-9a-f]+"
# In this order; other lines may stand between them.
EXPECTED = (
    r"cuInit\(Flags=0\) = CUDA_SUCCESS",
    rf"cuDevicePrimaryCtxRetain\(\*pctx={HEX}, dev=0\) = CUDA_SUCCESS",
    rf"cuModuleLoadData\(\*module=(?P<module>{HEX}), image={HEX}\) = CUDA_SUCCESS",
    rf'cuModuleGetFunction\(\*hfunc=(?P<kernel>{HEX}), hmod=(?P=module), name="spin"\) = CUDA_SUCCESS',
    rf"cuStreamCreate\(\*phStream=(?P<stream>{HEX}), Flags=1\) = CUDA_SUCCESS",
    rf"cuMemAlloc_v2\(\*dptr=(?P<memory>{HEX}), bytesize=1048576\) = CUDA_SUCCESS",
    rf"cuMemcpyHtoD_v2\(dstDevice=(?P=memory), srcHost={HEX}, ByteCount=1048576\) = CUDA_SUCCESS",
    rf"cuLaunchKernel\(f=(?P=kernel), gridDimX=1, .*, sharedMemBytes=0, hStream=(?P=stream), kernelParams={HEX}, extra=null\)"
    r" = CUDA_SUCCESS",
    r"cuCtxSynchronize\(\) = CUDA_SUCCESS",
    # What a failed call would have written is not shown: nobody knows whether it has.
    rf"cuMemAlloc_v2\(dptr={HEX}, bytesize=0\) = CUDA_ERROR_INVALID_VALUE",
    r"cuMemAlloc_v2\(dptr=null, bytesize=4096\) = CUDA_ERROR_INVALID_VALUE",
    r"cuStreamSynchronize\(hStream=0x1234\) = CUDA_ERROR_INVALID_HANDLE",
    r"cuGraphicsUnregisterResource\(resource=null\) = CUDA_ERROR_NOT_SUPPORTED",
    r'cuGetErrorName\(error=1, \*pStr="CUDA_ERROR_INVALID_VALUE"\) = CUDA_SUCCESS',
    rf'cuModuleGetFunction\(hfunc={HEX}, hmod=(?P=module), name="\\"{"n" * 59}\.\.\."\) = CUDA_ERROR_NOT_FOUND',
    r'cuDeviceGetName\(\*name=".*\(emulated\)", len=100, dev=0\) = CUDA_SUCCESS',
    r"cuEventElapsedTime(_v2)?\(\*pMilliseconds=[0-9.e+-]+, hStart=.*\) = CUDA_SUCCESS",
    r"cuStreamSynchronize_ptsz\(hStream=null\) = CUDA_SUCCESS",
    r"cuDeviceGetAttribute\(\*pi=-?\d+, attrib=1, dev=0\) = CUDA_SUCCESS",
)


def check(log):
    begun, known = 0, {}
    lines = [line[len("tnr: "):] for line in log.splitlines() if line.startswith("tnr: ")]
    for pattern in EXPECTED:
        # A named value is what the line that first showed it said.
        for name, value in known.items():
            pattern = pattern.replace(f"(?P={name})", value)
        for at in range(begun, len(lines)):
            if match := re.fullmatch(pattern, lines[at]):
                known.update(match.groupdict())
                begun = at + 1
                break
        else:
            sys.exit(f"there is no line `{pattern}` behind line {begun} of\n" + "\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("server", "client", "program"):
        parser.add_argument("--" + name)
    arguments = parser.parse_args()
    arguments.driver, arguments.emulate, arguments.memory_mib, arguments.gpu = None, "h100", "256", "h100"
    with tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True) as folder:
        server = with_server.start_server(arguments, folder)
        try:
            environment = with_server.client_environment(arguments, with_server.address_of(server), folder)
            def run(**more):
                return subprocess.run([arguments.program, "1", "calls"], env=dict(environment, **more), text=True, check=True,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60).stderr
            check(run(TNR_LOG="trace"))
            assert "(" not in run(TNR_LOG="error"), "calls are traced though nobody asked"
        finally:
            with_server.stop(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
