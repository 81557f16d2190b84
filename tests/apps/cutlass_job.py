"""CUTLASS: its own example programs, compiled to PTX. Each compares what it computes with a plain reference on the host or the
GPU and says so."""
import importlib.util
import pathlib
import subprocess
import tempfile

SOURCES = pathlib.Path(importlib.util.find_spec("cutlass_library").submodule_search_locations[0]) / "source"
NVCC = "/usr/local/cuda/bin/nvcc"
PRODUCT = ["--m=256", "--n=256", "--k=128"]
IMAGE = ["--n=1", "--h=8", "--w=8", "--c=32", "--k=32", "--ref-check", "--iterations=1"]
# Example, compute capability, arguments, how often it says that a result was right.
EXAMPLES = [
    ("04_tile_iterator/tile_iterator", 80, [], 1),
    ("14_ampere_tf32_tensorop_gemm/ampere_tf32_tensorop_gemm", 80, PRODUCT, 1),
    ("15_ampere_sparse_tensorop_gemm/ampere_sparse_tensorop_gemm", 80, [], 1),
    ("16_ampere_tensorop_conv2dfprop/ampere_tensorop_conv2dfprop", 80, IMAGE, 1),
    ("24_gemm_grouped/gemm_grouped", 80, ["--groups=3", "--iterations=1", "--m=64", "--n=64", "--k=64"], 1),
    ("32_basic_trmm/basic_trmm", 80, [], 1),
    ("41_fused_multi_head_attention/fused_multihead_attention_fixed_seqlen", 80,
     ["--head_number=2", "--batch_size=1", "--head_size=64", "--head_size_v=64", "--seq_length=64", "--seq_length_kv=64",
      "--iterations=1"], 1),
    ("46_depthwise_simt_conv2dfprop/depthwise_simt_conv2dfprop", 80, IMAGE, 1),
    ("47_ampere_gemm_universal_streamk/ampere_gemm_universal_streamk", 80, [*PRODUCT, "--iterations=1"], 4),
    ("58_ada_fp8_gemm/ada_fp8_gemm", 89, [*PRODUCT, "--iterations=1", "--warmup-iterations=0", "--reference-check=true"], 2),
]


def run(example, capability, arguments, right, folder):
    source = SOURCES / "examples" / f"{example}.cu"
    program = pathlib.Path(folder) / source.stem
    includes = [f"-I{path}" for path in (SOURCES / "include", SOURCES / "tools/util/include", SOURCES / "examples/common",
                                         source.parent)]
    architecture = f"arch=compute_{capability},code=compute_{capability}"
    subprocess.run([NVCC, "-std=c++17", "-w", "-O1", "--expt-relaxed-constexpr", "-gencode", architecture, *includes,
                    "-o", program, source], check=True)
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout[-2000:])
    assert done.returncode == 0 and done.stdout.count("Passed") >= right, (example, done.returncode)


with tempfile.TemporaryDirectory() as temporary:
    for example in EXAMPLES:
        run(*example, temporary)
print(f"cutlass: {len(EXAMPLES)} examples are right")
