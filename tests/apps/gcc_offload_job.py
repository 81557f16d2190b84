"""GCC's offloading: OpenMP, OpenACC, C++ and Fortran, compiled here by Debian's compilers and run by libgomp's plugin."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCES = pathlib.Path(__file__).resolve().parent / "offload"
# The assembler would have ptxas of the machine's toolkit look at the code, and toolkits have given up sm_35.
TO_PTX = ["-foffload=nvptx-none", "-foffload-options=nvptx-none=-Wa,--no-verify", "-foffload-options=-lm"]
# Without a GPU these end the program, where the default is to run on the CPU.
ON_GPU = {"OMP_TARGET_OFFLOAD": "mandatory", "ACC_DEVICE_TYPE": "nvidia"}

failed = []
with tempfile.TemporaryDirectory() as folder:
    for compiler, source, *flags in (("gcc", "openmp.c", "-fopenmp"), ("gcc", "openacc.c", "-fopenacc"),
                                     ("g++", "classes.cpp", "-fopenmp"),
                                     ("gfortran", "arrays.f90", "-fopenmp", "-foffload-options=-lgfortran")):
        program = os.path.join(folder, source + ".program")
        subprocess.run([compiler, "-O2", "-w", *flags, *TO_PTX, SOURCES / source, "-o", program, "-lm"], check=True)
        done = subprocess.run([program], env={**os.environ, **ON_GPU}, stdout=subprocess.PIPE, text=True)
        print(f"{source}: {done.stdout}", end="")
        if done.returncode != 0 or done.stdout.split()[-1:] != ["PASS"]:
            failed.append(source)
sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
