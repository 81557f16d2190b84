"""ONNX Runtime: its CUDA provider starts (cuBLASLt, cuDNN, streams), takes memory and copies; its kernels, machine code only,
fail with "no kernel image", as its cuDNN's do."""
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

onnxruntime.preload_dlls()
assert "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def answer(operator, *inputs):
    names = [f"in{i}" for i in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["out"])], "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in zip(names, inputs)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CUDAExecutionProvider"])
    assert session.get_providers()[0] == "CUDAExecutionProvider", "ONNX Runtime does without CUDA"
    return session.run(None, dict(zip(names, inputs)))[0]


data = np.arange(12, dtype=np.float32).reshape(3, 4)
there = onnxruntime.OrtValue.ortvalue_from_numpy(data, "cuda", 0)
assert there.device_name() == "cuda"
np.testing.assert_array_equal(there.numpy(), data)
np.testing.assert_array_equal(answer("Identity", data), data)  # a copy

for operator, inputs in (("Add", (data, data)), ("Softmax", (data,)), ("Relu", (data,))):
    try:
        answer(operator, *inputs)
    except Exception as error:  # its own kind, which has no public name
        assert "no kernel image" in str(error) or "CUDNN" in str(error), (operator, error)
    else:
        raise AssertionError(f"{operator} ran")
print("onnxruntime: memory and copies work, kernels fail loudly")
