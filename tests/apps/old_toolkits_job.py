"""Programs of tests/cuda_programs as the compilers of CUDA 11.8 and 12.4 make them, with those versions' static runtimes inside.
PyPI has neither, Debian's non-free part has both; apt is asked in folders of its own, and nothing is installed.

    old_toolkits_job.py [VERSION...]
"""
import os
import pathlib
import subprocess
import sys
import tempfile

from runtime_programs_job import PROGRAMS, passes

MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
RELEASES = {"11.8": "bookworm", "12.4": "trixie"}
# They need neither newer functions nor the headers of libcu++, which are packages of their own.
NAMES = """async_allocation bitonic_sort black_scholes copies_2d device_printf double_precision dynamic_shared event_timing exit_paths
    function_pointers half_precision histogram host_threads illegal_address large_copies managed_variables mandelbrot
    mapped_memory matrix_product memsets nbody occupancy pinned_async pointer_attributes recursion reduction registered_memory
    saxpy scan stencil streams_events struct_arguments symbols textures warp_intrinsics zero_copy""".split()
# Of nvidia-cuda-dev, most of a gigabyte, only this is taken.
PARTS = ["*cudart*", "*cudadevrt*", "*/include/*"]


def apt(folder, *words):
    own = {"Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::State::lists": folder / "lists",
           "Dir::Cache": folder / "cache", "APT::Sandbox::User": "root"}
    subprocess.run(["apt-get", "-q", *[f"-o{name}={value}" for name, value in own.items()], *words], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)


def unpack(archive, folder, *parts):
    contents = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", folder, *(["--wildcards", *parts] if parts else [])], stdin=contents.stdout, check=True)
    if contents.wait() != 0:
        raise RuntimeError(f"{archive} does not unpack")


def fetch(version, folder):
    """The toolkit's folder, as it would be below /usr."""
    for name in ("lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {RELEASES[version]} non-free\n")
    apt(folder, "update")
    apt(folder, "download", "nvidia-cuda-toolkit", "nvidia-cuda-dev")
    root = folder / "root"
    for archive in folder.glob("*.deb"):
        unpack(archive, root, *(PARTS if archive.name.startswith("nvidia-cuda-dev_") else []))
        archive.unlink()
    toolkit = root / "usr/lib/nvidia-cuda-toolkit"
    profile = (root / "etc/nvcc.profile").read_text()
    link = toolkit / "bin/nvcc.profile"
    link.unlink()  # it leads to /etc
    link.write_text(profile.replace("/usr/lib/", f"{root}/usr/lib/"))
    return root / "usr"


def compile_program(usr, name, folder):
    program = folder / name
    subprocess.run([usr / "lib/nvidia-cuda-toolkit/bin/nvcc", "-O1", "-std=c++17", "-ccbin", "/usr/bin/g++",
                    "-allow-unsupported-compiler", f"-I{usr}/include", f"-L{usr}/lib/x86_64-linux-gnu", "-cudart", "static",
                    "-gencode", "arch=compute_75,code=compute_75", PROGRAMS / f"{name}.cu", "-o", program], check=True)
    return program


def main():
    client = pathlib.Path(os.environ["TNR_BUILD"]).resolve() / "lib"
    wrong = False
    for version in sys.argv[1:] or RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            usr = fetch(version, folder)
            failed = [name for name in NAMES if not passes(compile_program(usr, name, folder), str(client))]
        print(f"toolkit {version}: {len(NAMES) - len(failed)} programs passed" +
              (f", FAILED: {' '.join(failed)}" if failed else ""), flush=True)
        wrong |= bool(failed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
