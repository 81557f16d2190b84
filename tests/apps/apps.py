#!/usr/bin/env python3
"""Runs programs from PyPI over client, server and emulated GPU: `packaging/test --apps` calls this.

    apps.py --build build/release --venvs build/apps [--keep] [NAME...]
    apps.py --list

Each program gets a Python environment of its own with fixed versions, made when it is missing and removed when its jobs
have run (--keep keeps it). A job is a script here that checks its own numbers, or a program's own test suite.
`expected/failures.txt` names the jobs that are known to fail, each with its reason; one that passes must leave the list.
"""
import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
JOB_LIMIT_S = 3600  # numba-cuda's suite takes half an hour on a busy machine
FREE_MARGIN_GB = 5

# Runs a command where the machine's CUDA toolkit is out of sight: programs that find its compilers make machine code with
# them, and the emulated GPU runs PTX. Needs no root: the mount is seen by the command alone.
WITHOUT_TOOLKIT = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                   'at=$(readlink -f /usr/local/cuda) && [ -d "$at" ] && mount -t tmpfs none "$at"; '
                   'unset CUDA_HOME CUDA_PATH; exec "$@"', "sh"]


@dataclasses.dataclass
class Program:
    packages: list
    jobs: dict  # name: command after `python`
    sources: list = dataclasses.field(default_factory=list)  # of these the sources, too: wheels have no tests
    disk_gb: float = 1
    gpus: str = "h100"  # what the jobs ask for: TNR_GPU
    memory_mib: int = 2048  # of each GPU
    hide_toolkit: bool = False
    environment: dict = dataclasses.field(default_factory=dict)
    remove: list = dataclasses.field(default_factory=list)  # installed files, as globs
    debian: list = dataclasses.field(default_factory=list)  # packages of the distribution; these stay


def suite(package, expected, *options):
    return [str(HERE / "suite.py"), "--expected", str(HERE / "expected" / expected), *options, package]


def job(name, *arguments):
    return [str(HERE / f"{name}_job.py"), *arguments]


TOOLKIT = "cuda-toolkit[cudart,nvcc,nvrtc,cccl]==13.5.0"
WARP_MODULES_LEFT_OUT = ["cuda.test_async", "test_array", "test_examples", "test_fem", "test_large", "test_linear_solvers",
                         "test_mat_scalar_ops", "test_vec_scalar_ops"]
PROGRAMS = {
    # Without nvJitLink, cuda.core links with the driver, which takes PTX.
    "numba-cuda": Program(
        ["numba-cuda==0.30.4", "numba==0.68.1", "cuda-core==1.2.2", "cuda-bindings==13.5.0", TOOLKIT, "pytest==9.2.0",
         "filecheck==1.0.6", "psutil==7.2.2", "cffi==2.1.1", "ml_dtypes==0.6.0"],
        {"numba-cuda": job("numba_cuda"), "numba-cuda-suite": suite("numba.cuda.tests", "numba_cuda.txt")},
        hide_toolkit=True),
    "cupy": Program(["cupy-cuda13x==14.2.0", TOOLKIT], {"cupy": job("cupy")},
                    environment={"CUPY_COMPILE_WITH_PTX": "1"}),
    "nccl": Program(["cupy-cuda13x==14.2.0", "nvidia-nccl-cu13==2.28.9", TOOLKIT],
                    {**{f"nccl-{processes}": job("nccl", processes) for processes in ("one", "each", "hidden")},
                     **{f"nccl-{processes}-of-4": job("nccl", processes, "4") for processes in ("one", "each", "hidden", "nvls")}},
                    disk_gb=2, gpus="h100:4",
                    environment={"CUPY_COMPILE_WITH_PTX": "1"}),
    # Its memory tests fill the GPU: one module at a time. cuRAND has no PTX: random numbers are the host's.
    "cupy-suite": Program(["cupy-cuda12x==13.6.0", "nvidia-cuda-nvrtc-cu12==12.9.86",
                           "nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-cccl-cu12==12.9.27", "nvidia-nccl-cu12==2.28.9", "nvidia-cublas-cu12==12.9.1.4",
                           "nvidia-cusparse-cu12==12.5.10.65", "nvidia-cusolver-cu12==11.7.5.82",
                           "nvidia-cufft-cu12==11.4.1.4", "nvidia-curand-cu12==10.3.10.19", "pytest==9.2.0"],
                          {"cupy-suite": suite("cupy_tests.cuda_tests", "cupy.txt", "--pytest", "cupy-13.6.0/tests",
                                               "--plugin", "cupy_host_random", "--jobs", "1")},
                          sources=["cupy==13.6.0"], disk_gb=5, gpus="h100:2", hide_toolkit=True,
                          environment={"CUPY_COMPILE_WITH_PTX": "1"}),
    # Newer versions compile PTX with a library of their own where the driver is older than they are.
    "warp": Program(["warp-lang==1.10.1", "numpy==2.2.6"],
                    # Left out of its suite: 6,317 copies (an hour), grids of 2^31 threads, whole example programs, and modules
                    # for which NVRTC or the emulated GPU needs many minutes.
                    {"warp": job("warp"), "warp-suite": suite(
                        "warp.tests", "warp.txt", "--plugin", "warp_on_gpu", "--limit", "1800", *(
                            word for module in WARP_MODULES_LEFT_OUT for word in ("--without", module)))},
                    gpus="h100:2", memory_mib=4096),
    "taichi": Program(["taichi==1.7.4"], {"taichi": job("taichi")}),
    "taichi-forks": Program(["gstaichi==4.6.0", "quadrants==1.3.3"],
                            {name: job("taichi", name) for name in ("gstaichi", "quadrants")}, disk_gb=2),
    "aer": Program(["qiskit==2.6.2", "qiskit-aer-gpu==0.18.2"], {"aer": job("aer")}, disk_gb=6),
    "cuda-python": Program(["cuda-bindings==13.5.0", "cuda-core==1.2.2", "numpy==2.4.6", TOOLKIT],
                           {"cuda-python": job("cuda_python")}),
    "pycuda": Program(["pycuda==2026.1", "numpy==2.4.6", "pytest==9.2.0"],
                      {"pycuda": job("pycuda"),
                       "pycuda-suite": suite("test", "pycuda.txt", "--pytest", "pycuda-2026.1", "--plugin", "pycuda_as_ptx",
                                             "--jobs", "1", "--limit", "1800")},
                      # Its sources have a folder of the package's name beside the tests.
                      sources=["pycuda==2026.1"], memory_mib=4096, environment={"PYTHONSAFEPATH": "1"}),
    "drjit": Program(["drjit==1.5.0", "numpy==2.4.6"], {"drjit": job("drjit")}),
    # It looks for nvrtc's library by name.
    "tinygrad": Program(["tinygrad==0.14.0", "numpy==2.4.6", TOOLKIT],
                        {f"tinygrad-{way}": job("tinygrad", device) for way, device in (
                            ("nvrtc", "CUDA"), ("ptx", "CUDA:PTX"))}),
    "triton": Program(["triton==3.9.0", "cuda-bindings==13.5.0", "numpy==2.4.6"], {"triton": job("triton")},
                      environment={"TRITON_DEFAULT_FP_FUSION": "1"}),
    "halide": Program(["halide==21.0.0", "numpy==2.4.6"], {"halide": job("halide")}),
    "openmm": Program(["openmm==8.6.1", "openmm-cuda-12==8.6.1", "numpy==2.4.6"], {"openmm": job("openmm")}),
    "slangpy": Program(["slangpy==0.43.1", "numpy==2.4.6"], {"slangpy": job("slangpy")}),
    "kernel-tuner": Program(["kernel-tuner==1.5.0", "cupy-cuda13x==14.2.0", "numpy==2.4.6", TOOLKIT],
                            {"kernel-tuner": job("kernel_tuner")}, environment={"CUPY_COMPILE_WITH_PTX": "1"}),
    "stumpy": Program(["stumpy==1.14.1", "numba-cuda==0.30.4", "numba==0.68.1", "cuda-core==1.2.2", "cuda-bindings==13.5.0",
                       "numpy==2.4.6", TOOLKIT], {"stumpy": job("stumpy")}, hide_toolkit=True),
    "rmm": Program(["rmm-cu13==26.10.0", "cupy-cuda13x==14.2.0", TOOLKIT], {"rmm": job("rmm")}, disk_gb=2, gpus="h100:2",
                   memory_mib=4096, environment={"CUPY_COMPILE_WITH_PTX": "1"}),
    "rapids": Program(["cudf-cu13==26.10.2", "cugraph-cu13==26.10.0", "networkx==3.6.1", "pandas==3.0.6", "scipy==1.17.1",
                       "numpy==2.4.6"],
                      {"rapids": job("rapids")}, disk_gb=8, environment={"CUPY_COMPILE_WITH_PTX": "1"}),
    "dali": Program(["nvidia-dali-cuda130==2.4.0", "numpy==2.3.5"], {"dali": job("dali")}, disk_gb=2),
    "iree": Program(["iree-base-compiler==3.13.0", "iree-base-runtime==3.13.0", "numpy==2.4.6"], {"iree": job("iree")}),
    "astra": Program(["astra-toolbox==2.5.0", "numpy==2.4.6", "scipy==1.17.1"], {"astra": job("astra")}),
    "xgboost": Program(["xgboost==3.2.0", "numpy==2.4.6"], {"xgboost": job("xgboost")}, disk_gb=2),
    # It takes 95 % of the GPU's memory, and then 100 MiB of it for its pinned memory.
    "catboost": Program(["catboost==1.2.10"], {"catboost": job("catboost")}, memory_mib=8192),
    # Without NVIDIA's ptxas XLA finds the one that stands in for it.
    "jax": Program(["jax[cuda13]==0.10.2", "numpy==2.4.6"], {"jax": job("jax")}, disk_gb=10, gpus="h100:2", hide_toolkit=True,
                   remove=["nvidia/cu13/bin/ptxas"]),
    "cccl": Program(["cuda-cccl[cu13]==1.2.1", "cupy-cuda13x==14.2.0", "numpy==2.4.6", TOOLKIT], {"cccl": job("cccl")}, disk_gb=2,
                    environment={"CUPY_COMPILE_WITH_PTX": "1"}),
    "nvbench": Program(["cuda-bench[cu13]==0.3.0", "cuda-core==1.2.2", "cuda-bindings==13.5.0", TOOLKIT],
                       {"nvbench": job("nvbench")}),
    "nvmath": Program(["nvmath-python[cu13]==1.0.0", "nvidia-libmathdx-cu13==0.4.1.15", "nvidia-cufft==12.5.0.14",
                       "numba-cuda==0.30.4", "numba==0.68.1", "cupy-cuda13x==14.2.0", "numpy==2.4.6", TOOLKIT],
                      {"nvmath": job("nvmath")}, disk_gb=5, environment={"CUPY_COMPILE_WITH_PTX": "1"}),
    # It brings PyTorch along, whose memory it works on.
    "tilelang": Program(["tilelang==0.1.15", "torch==2.15.0", "numpy==2.4.6"], {"tilelang": job("tilelang")}, disk_gb=12),
    "tensorflow": Program(["tensorflow[and-cuda]==2.21.0"], {"tensorflow": job("tensorflow")}, disk_gb=8, hide_toolkit=True,
                          remove=["nvidia/cuda_nvcc/bin/ptxas"]),
    "torch": Program(["torch==2.15.0", "numpy==2.4.6"],
                     {f"torch-{step}": job("torch", step) for step in (
                         "counts_memory", "orders_streams", "loads_pinned_batches", "kernels_fail_loudly", "profiles",
                         "shares_with_a_process")}, disk_gb=12),
    # OpenMP's threads have stacks of 2.1 GB together.
    "gcc-offload": Program([], {"gcc-offload": job("gcc_offload")}, memory_mib=4096,
                           debian=["gcc-offload-nvptx", "g++", "gfortran"]),
    "ffmpeg": Program([], {"ffmpeg": job("ffmpeg")}, debian=["ffmpeg"]),
    # It is linked with the distribution's loader of OpenCL, which brings pocl along; the job keeps to CUDA.
    "hashcat": Program(["nvidia-cuda-nvrtc==13.0.88"], {"hashcat": job("hashcat")}, hide_toolkit=True, debian=["hashcat"]),
    "onnxruntime": Program(["onnxruntime-gpu[cuda,cudnn]==1.31.1", "onnx==1.23.2", "numpy==2.4.6"],
                           {"onnxruntime": job("onnxruntime")}, disk_gb=4),
    "cublas": Program(["nvidia-cublas==13.1.2.11", "nvidia-cuda-runtime==13.0.96", "numpy==2.4.6"], {"cublas": job("cublas")},
                      disk_gb=2),
    "cutlass": Program(["nvidia-cutlass==4.2.0.0"], {"cutlass": job("cutlass")}, disk_gb=3),
    "ggml": Program(["nvidia-cublas==13.1.2.11"], {"ggml": job("ggml")}, sources=["llama-cpp-python==0.3.36"], disk_gb=2,
                    memory_mib=4096),
    "old-toolkits": Program([], {"old-toolkits": job("old_toolkits")}, disk_gb=6),  # Debian's packages, unpacked
    "runtimes": Program([], {"runtimes": job("runtimes"), "runtime-programs": job("runtime_programs")}, disk_gb=1,
                        gpus="h100:4"),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, help="build folder with the server and the client libraries")
    parser.add_argument("--venvs", type=pathlib.Path, help="where the programs are installed")
    parser.add_argument("--keep", action="store_true", help="keep what was installed")
    parser.add_argument("--list", action="store_true", help="print the programs and their jobs")
    parser.add_argument("name", nargs="*", help="only these programs")
    arguments = parser.parse_args()
    unknown = set(arguments.name) - set(PROGRAMS)
    if unknown:
        parser.error(f"there is no program {' or '.join(sorted(unknown))}; --list names them")
    if not arguments.list and not (arguments.build and arguments.venvs):
        parser.error("--build and --venvs are needed")
    return arguments


def read_expected():
    lines = (HERE / "expected" / "failures.txt").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def install_debian(packages):
    subprocess.run(["bash", "-c", 'source "$0" && install_packages "$@"', HERE.parents[1] / "packaging" / "lib.sh",
                    *packages], check=True)


def installed(folder, program):
    """The program's Python; None when it could not be installed."""
    python = folder / "bin" / "python"
    done = folder / "installed"
    wanted = "\n".join(program.packages + program.sources + program.debian)
    if done.exists() and done.read_text() == wanted:
        return python
    free_gb = shutil.disk_usage(folder.parent).free / 1e9
    if free_gb < program.disk_gb + FREE_MARGIN_GB:
        print(f"apps: {folder.name} needs {program.disk_gb + FREE_MARGIN_GB} GB, there are {free_gb:.0f}", flush=True)
        return None
    if program.debian:
        install_debian(program.debian)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    if program.packages:
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *program.packages], check=True)
    for source in program.sources:
        subprocess.run([python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                        "--no-binary", source.split("==")[0], "-d", folder / "sources", source], check=True)
    for archive in folder.glob("sources/*.tar.gz"):
        shutil.unpack_archive(archive, archive.parent)
        archive.unlink()
    for pattern in program.remove:
        for path in folder.glob("lib/python3*/site-packages/" + pattern):
            path.unlink()
    done.write_text(wanted)
    return python


def passes(build, python, program, command):
    line = [*(WITHOUT_TOOLKIT if program.hide_toolkit else []), str(python), *command]
    with_server = [sys.executable, str(HERE.parent / "support" / "with_server.py"), "--server",
                   str(build / "bin" / "tnr-gpu-server"), "--client", str(build / "lib"), "--gpu", program.gpus,
                   "--emulate", program.gpus if ":" in program.gpus else "h100:2",
                   "--memory-mib", str(program.memory_mib), "--", *line]
    job = subprocess.Popen(with_server, env={**os.environ, "TNR_BUILD": str(build), **program.environment})
    try:
        return job.wait(JOB_LIMIT_S) == 0
    except subprocess.TimeoutExpired:
        print(f"apps: more than {JOB_LIMIT_S} s", flush=True)
        job.terminate()  # it ends its server; kill() would leave that behind
        job.wait()
        return False


def main():
    arguments = parse_arguments()
    if arguments.list:
        for name, program in PROGRAMS.items():
            print(name, *program.jobs, sep="\n    ")
        return 0
    expected, verdicts = read_expected(), []
    arguments.venvs.mkdir(parents=True, exist_ok=True)
    for name, program in PROGRAMS.items():
        if arguments.name and name not in arguments.name:
            continue
        folder = arguments.venvs.resolve() / name
        try:
            python = installed(folder, program)
        except subprocess.CalledProcessError:
            python = None
        for title, command in program.jobs.items():
            print(f"=== {title}", flush=True)
            good = python is not None and passes(arguments.build.resolve(), python, program, command)
            if title in expected:
                verdicts.append((title, "passes now: take it out of expected/failures.txt" if good else "fails as expected"))
            else:
                verdicts.append((title, "passed" if good else "FAILED"))
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    for title, verdict in verdicts:
        print(f"{verdict:>18}  {title}" + (f": {expected[title]}" if verdict == "fails as expected" else ""))
    return 0 if all(verdict in ("passed", "fails as expected") for _, verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
