"""IREE: compiles MLIR to PTX ahead of time and runs it on the driver from command buffers, which are CUDA graphs."""
import importlib.metadata

import iree.compiler
import iree.runtime
import numpy as np

PROGRAM = """
func.func @product(%a: tensor<64x96xf32>, %b: tensor<96x80xf32>) -> tensor<64x80xf32> {
  %zero = arith.constant 0.0 : f32
  %room = tensor.empty() : tensor<64x80xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%room : tensor<64x80xf32>) -> tensor<64x80xf32>
  %c = linalg.matmul ins(%a, %b : tensor<64x96xf32>, tensor<96x80xf32>) outs(%zeros : tensor<64x80xf32>) -> tensor<64x80xf32>
  return %c : tensor<64x80xf32>
}
func.func @softmax(%a: tensor<16x128xf32>) -> tensor<16x128xf32> {
  %room = tensor.empty() : tensor<16x128xf32>
  %b = linalg.softmax dimension(1) ins(%a : tensor<16x128xf32>) outs(%room : tensor<16x128xf32>) -> tensor<16x128xf32>
  return %b : tensor<16x128xf32>
}
func.func @curve(%a: tensor<1000xf32>, %b: tensor<1000xf32>) -> tensor<1000xf32> {
  %0 = arith.mulf %a, %b : tensor<1000xf32>
  %1 = math.tanh %0 : tensor<1000xf32>
  %2 = math.exp %1 : tensor<1000xf32>
  return %2 : tensor<1000xf32>
}
func.func @columns(%a: tensor<1000x33xf16>) -> tensor<33xf16> {
  %zero = arith.constant 0.0 : f16
  %room = tensor.empty() : tensor<33xf16>
  %zeros = linalg.fill ins(%zero : f16) outs(%room : tensor<33xf16>) -> tensor<33xf16>
  %b = linalg.reduce ins(%a : tensor<1000x33xf16>) outs(%zeros : tensor<33xf16>) dimensions = [0]
    (%in: f16, %sum: f16) { %0 = arith.addf %in, %sum : f16  linalg.yield %0 : f16 }
  return %b : tensor<33xf16>
}
"""
random = np.random.default_rng(1)


def normal(*shape):
    return random.standard_normal(shape, dtype=np.float32)


for target in ("sm_80", "sm_89"):
    code = iree.compiler.compile_str(f"module {{ {PROGRAM} }}", target_backends=["cuda"],
                                     extra_args=[f"--iree-cuda-target={target}"])
    context = iree.runtime.SystemContext(config=iree.runtime.Config("cuda"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))
    functions = context.modules.module

    a, b = normal(64, 96), normal(96, 80)
    # Its tensor cores take TF32: 10 bits of each factor.
    np.testing.assert_allclose(np.asarray(functions.product(a, b)), a @ b, rtol=2e-2, atol=5e-2)
    a = normal(16, 128)
    powers = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(np.asarray(functions.softmax(a)), powers / powers.sum(1, keepdims=True), rtol=1e-4)
    a, b = normal(2, 1000)
    np.testing.assert_allclose(np.asarray(functions.curve(a, b)), np.exp(np.tanh(a * b)), rtol=1e-4)
    counts = random.integers(0, 3, (1000, 33)).astype(np.float16)
    np.testing.assert_array_equal(np.asarray(functions.columns(counts)), counts.astype(np.float32).sum(0))
print("IREE", importlib.metadata.version("iree-base-runtime"))
