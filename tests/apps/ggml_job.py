"""ggml, which llama.cpp computes with: its own comparison of each operation on the GPU with the CPU, and a training of its own.
A part of its CUDA sources is compiled to PTX; what is not compiled is not called."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LLAMA_CPP = next(pathlib.Path(sys.prefix).glob("sources/llama_cpp_python-*")) / "vendor/llama.cpp"
GGML = LLAMA_CPP / "ggml"
CUDA = GGML / "src/ggml-cuda"
BUILD = pathlib.Path(os.environ["TNR_BUILD"]).resolve()
TOOLKIT = pathlib.Path((BUILD / "cuda_root").read_text())
CUBLAS = next(pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/cu13"))  # the programs are linked with it
LIMIT_S = 600

HOST = """ggml.c ggml.cpp ggml-alloc.c ggml-backend.cpp ggml-backend-meta.cpp ggml-backend-dl.cpp ggml-backend-reg.cpp
    ggml-opt.cpp ggml-quants.c ggml-threading.cpp gguf.cpp ggml-cpu/*.c ggml-cpu/*.cpp ggml-cpu/amx/*.cpp ggml-cpu/tiled/*.cpp
    ggml-cpu/arch/x86/*.c ggml-cpu/arch/x86/*.cpp""".split()
KERNELS = """allreduce argmax binbcast clamp concat conv3d convert count-equal cpy cross-entropy-loss cumsum fattn fattn-tile
    fill fwht gated_delta_net getrows ggml-cuda im2col mmf mmid mmq mmvf mmvq norm opt-step-adamw opt-step-sgd out-prod pad
    quantize rope scale set-rows softmax ssm-conv sum sumrows unary""".split()
# Kinds of kernels that ggml has for many types and shapes, here for one or two each.
INSTANCES = {
    "fattn-vec": [f"DECL_FATTN_VEC_CASE({size}, GGML_TYPE_F16, GGML_TYPE_F16)" for size in (64, 128, 256)],
    "fattn-tile": ["DECL_FATTN_TILE_CASE(40, 40)"],
    "fattn-mma-f16": [f"DECL_FATTN_MMA_F16_CASE(64, 64, {columns}, 1)" for columns in (8, 32)],
    "mmq": ["DECL_MMQ_CASE(GGML_TYPE_Q4_0)"],
    "mmf": ["DECL_MMF_CASE(16)"],
}
KINDS = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0".split()  # of keys and values that attention is compiled for: 16 bits alone
EXPERTS = r"n_mats=4,n_used=2,b=0,m=512"
PRODUCT = r"k=256,bs=\[1,1\],nr=\[1,1\],per=\[0,1,2,3\]"
ATTENTION = r"nh=4,nr23=\[1,1\],kv=113"
# An operation, which of its cases, and how many these are.
OPERATIONS = [
    ("SOFT_MAX", r"ne=\[16,2,32,1\]", 11),
    ("RMS_NORM", "", 51),
    ("ROPE", r"ne_a=\[128,32,2,1\]", 114),
    ("SILU", "", 6),
    ("SWIGLU", "", 36),
    ("CPY", r"ne_src=\[256,2,3,4\]", 40),
    ("GET_ROWS", r"type=(f32|f16|q4_0|q8_0|q4_K),n=256,m=5,r=4,be1=(1|7),be2=1,", 40),
    ("SET_ROWS", "", 159),
    ("CUMSUM", "", 15),
    ("SSM_CONV", "", 45),
    ("GATED_DELTA_NET", "", 36),
    ("CONV_3D", r"KD=3,KH=1|KD=0", 132),
    ("MUL_MAT", rf"type_a=(f32|f16|bf16|q4_0|q8_0|q4_K|iq4_nl),type_b=f32,m=16,n=1,{PRODUCT}", 15),
    ("MUL_MAT", rf"type_a=q4_0,type_b=f32,m=16,n=(8|16),{PRODUCT}", 2),
    ("MUL_MAT_ID", f"type_a=q4_0,type_b=f32,{EXPERTS},n=(1|4|17),k=256", 3),
    ("MUL_MAT_ID", f"type_a=f16,type_b=f32,{EXPERTS},n=17,k=256", 1),
    ("FLASH_ATTN_EXT", rf"hsk=64,hsv=64,{ATTENTION},nb=(1|3|32),.*type_K=f16", 18),
    ("FLASH_ATTN_EXT", rf"hsk=40,hsv=40,{ATTENTION},nb=(1|32),", 12),
]


def compile_one(source, folder):
    target = folder / f"{source.name}.{source.parent.name}.o"
    includes = (GGML / "include", GGML / "src", GGML / "src/ggml-cpu", CUDA, CUBLAS / "include", folder)
    options = [f"-I{path}" for path in includes]
    options += [f"-DGGML_CUDA_FA_{key}_{value}={int(key == value == 'F16')}" for key in KINDS for value in KINDS]
    options += ["-w", "-DNDEBUG", "-D_GNU_SOURCE", "-DGGML_USE_CPU", "-DGGML_USE_CUDA", "-DGGML_CUDA_USE_GRAPHS",
                "-DGGML_CUDA_FORCE_MMQ", "-DGGML_SCHED_MAX_COPIES=4", "-c", source, "-o", target]
    if source.suffix == ".cu":
        compiler = [TOOLKIT / "bin/nvcc", "-O1", "-std=c++17", "-use_fast_math", "-extended-lambda", "-Xcompiler", "-fPIC",
                    "-gencode", "arch=compute_120a,code=compute_120a"]
    else:
        compiler = (["gcc", "-std=gnu11"] if source.suffix == ".c" else ["g++", "-std=gnu++17"]) + ["-O2", "-fPIC"]
    subprocess.run([*compiler, *options], check=True)
    return target


def compile_all(folder):
    """Objects of ggml, and those of its two programs."""
    sources = [path for pattern in HOST for path in sorted((GGML / "src").glob(pattern))]
    sources += [CUDA / f"{name}.cu" for name in KERNELS]
    (folder / "ggml-version.h").write_text('#define GGML_VERSION "0"\n#define GGML_COMMIT "0"\n')
    for name, instances in INSTANCES.items():
        (folder / f"{name}-instance.cu").write_text(f'#include "{name}.cuh"\n' + ";\n".join(instances) + ";\n")
        sources.append(folder / f"{name}-instance.cu")
    programs = [LLAMA_CPP / f"tests/{name}.cpp" for name in ("test-backend-ops", "test-opt")]
    # The longest first.
    sources.sort(key=lambda path: path.suffix != ".cu")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: compile_one(source, folder), programs + sources))
    return objects[2:], objects[:2]


def link_library(objects, folder):
    """Functions of kernels that are not there are looked up when they are called."""
    library = folder / "libggml.so"
    subprocess.run([TOOLKIT / "bin/nvcc", "-shared", "-cudart", "static", *objects, f"-L{BUILD}/lib", "-lcuda",
                    f"-L{CUBLAS}/lib", "-l:libcublas.so.13", "-Xlinker", f"-rpath={CUBLAS}/lib,-z,lazy",
                    "-o", library], check=True)
    return library


def link(main, library):
    program = library.with_name(main.name.split(".")[0])
    subprocess.run(["g++", main, library, "-Wl,--allow-shlib-undefined", "-o", program], check=True)
    return program


def says(program, *arguments):
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S)
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert done.returncode == 0, (arguments, done.returncode, text[-3000:])
    return text


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        objects, (operations, training) = compile_all(folder)
        library = link_library(objects, folder)
        program = link(operations, library)
        for operation, cases, wanted in OPERATIONS:
            text = says(program, "test", "-b", "CUDA0", "-o", operation, "-p", cases or ".")
            right = len(re.findall(rf"^ +{operation}\(.*\): OK$", text, re.M))
            print(operation, cases, right, flush=True)
            assert right == wanted and re.search(r"Backend CUDA0: OK", text), text[-3000:]
        text = says(link(training, library))
        trained = len(re.findall("Backend CUDA0 (?:adamw|sgd): OK", text))
        print("trainings", trained)
        assert trained == 2, text[-3000:]
    print("ggml is right")


main()
