"""The programs of tests/cuda_programs, as nvcc 13.0 compiled them, on each of NVIDIA's runtimes of CUDA 13 from PyPI:
linked with the static one, and with the shared one in place of the toolkit's.

    runtime_programs_job.py [VERSION...]

PyPI has no static runtime before 13.0, nor the compiler that makes programs for the older shared ones: runtimes_job.py runs a
suite of its own on those, old_toolkits_job.py what Debian's older compilers make.
"""
import glob
import os
import pathlib
import subprocess
import sys
import tempfile

from runtimes_job import VERSIONS, install

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "cuda_programs"
LIMIT_S = 120
# Device code to link as well: as shared ones alone.
LINKED_BY_NVCC = {"conditional_graphs", "device_graphs", "dynamic_parallelism", "separate_units", "updatable_nodes"}


def link(name, objects, runtime, client, folder):
    """The program with the runtime inside."""
    program = folder / f"{name}_static"
    libraries = [runtime / "libcudart_static.a", f"-L{client}", "-lcuda", "-lpthread", "-ldl", "-lrt"]
    subprocess.run(["c++", *objects, *libraries, "-o", program], check=True)
    return program


def passes(program, path):
    done = subprocess.run([sys.executable, PROGRAMS / "run_program.py", "--limit-s", str(LIMIT_S), program], text=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(f"{program.name}: FAILED\n{done.stdout[-2000:]}", flush=True)
    return done.returncode == 0


def run_all(build, version):
    """How many passed, and which did not."""
    client, passed, failed = build / "lib", 0, []
    shared = sorted((build / "bin" / "cuda_programs").glob("*_shared"))
    with tempfile.TemporaryDirectory() as folder:
        install(VERSIONS[version], folder)
        library, = glob.glob(folder + "/nvidia/**/libcudart.so.*", recursive=True)
        runtime = pathlib.Path(library).parent
        for program in shared:
            name = program.name.removesuffix("_shared")
            programs = [program]
            if name not in LINKED_BY_NVCC:
                objects = glob.glob(str(build / "tests" / "cuda_programs" / f"{name}_*_cu.o"))
                objects = [o for o in objects if is_of(o, name, shared)]
                if not objects:
                    sys.exit(f"{build} has the program {name} but not its objects: it is no whole build folder")
                programs.append(link(name, objects, runtime, client, pathlib.Path(folder)))
            for one in programs:
                if passes(one, f"{runtime}:{client}"):
                    passed += 1
                else:
                    failed.append(one.name)
    return passed, failed


def is_of(path, name, programs):
    """Objects are called PROGRAM_SOURCE_cu.o, and one program's name may begin as another's."""
    longer = {p.name.removesuffix("_shared") for p in programs if p.name.startswith(name + "_")} - {name}
    return not any(os.path.basename(path).startswith(other + "_") for other in longer)


def main():
    build = pathlib.Path(os.environ["TNR_BUILD"]).resolve()
    wrong = False
    for version in sys.argv[1:] or [v for v in VERSIONS if v.startswith("13.")]:
        passed, failed = run_all(build, version)
        failures = f", FAILED: {' '.join(failed)}" if failed else ""
        print(f"runtime {version}: {passed} programs passed{failures}", flush=True)
        wrong |= bool(failed) or passed == 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
