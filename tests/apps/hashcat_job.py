"""hashcat of the distribution: it compiles its kernels with NVRTC, tests and tunes itself, and finds what is behind hashes."""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

LIMIT_S = 600
# The kind's number, a hash, and the mask of what is tried; each kind is another kernel.
TASKS = [
    ("0", hashlib.md5, "4711", "?d?d?d?d", ""),
    ("1400", hashlib.sha256, "XY7", "?u?u?d", ""),
    ("10", hashlib.md5, "42", "?d?d", "salt"),
]


def libraries():
    """Where NVRTC is among this Python's packages. hashcat looks for it by a name that ends in .so, as toolkits have it."""
    found = next(pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.*"))
    plain = found.with_name("libnvrtc.so")
    if not plain.exists():
        plain.symlink_to(found.name)
    return str(found.parent)


def crack(folder, kind, digest, mask):
    """What hashcat finds; None, with its output, if nothing or on another device."""
    found = folder / f"found-{kind}"
    environment = dict(os.environ, HOME=str(folder))
    environment["LD_LIBRARY_PATH"] = environment.get("LD_LIBRARY_PATH", "") + ":" + libraries()
    done = subprocess.run(["hashcat", "-m", kind, "-a", "3", "--potfile-disable", "--force", "-n", "1", "-u", "1",
                           "--backend-ignore-opencl", "--outfile", found, "--outfile-format", "2", digest, mask],
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=LIMIT_S)
    if done.returncode == 0 and found.exists() and "(emulated)" in done.stdout:
        return found.read_text().strip()
    print(done.stdout[-3000:])
    return None


def main():
    with tempfile.TemporaryDirectory() as folder:
        for kind, function, password, mask, salt in TASKS:
            digest = function((password + salt).encode()).hexdigest() + (":" + salt if salt else "")
            got = crack(pathlib.Path(folder), kind, digest, mask)
            assert got == password, f"kind {kind}: {got} for {password}"
    print("hashcat:", len(TASKS), "passwords found")


if __name__ == "__main__":
    main()
