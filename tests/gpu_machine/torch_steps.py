#!/usr/bin/env python3
"""Training and inference steps of a small transformer in PyTorch. For test-gpu, which compares the same loop local and
remoted.

    torch_steps.py --mode train-eager --seconds 5    prints one line of JSON
    torch_steps.py --list

Exit status 77: PyTorch, or what the mode needs of it, is not there; the last line on stderr says what.
"""
import argparse
import ctypes
import json
import time

from checks import lacks

MODES = [f"{kind}-{way}" for kind in ("train", "infer") for way in ("eager", "compiled", "graph")]
BATCH, LENGTH, WIDTH, LAYERS, HEADS = 16, 128, 512, 4, 8
WARM_STEPS = 5


def round_trips():
    """How often our library has waited for the network; None with any other."""
    try:
        count = ctypes.CDLL("libcuda.so.1").cuTnrRoundTrips
    except (OSError, AttributeError):
        return None
    count.restype = ctypes.c_ulonglong
    return count()


class Loop:
    def __init__(self, torch, mode):
        self.torch = torch
        self.kind, self.way = mode.split("-")
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = False
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).cuda()
        self.host = torch.randn(BATCH, LENGTH, WIDTH).pin_memory()
        self.input = self.host.cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.model.train(self.kind == "train")
        self.work = self.train if self.kind == "train" else self.infer
        if self.way == "compiled":
            self.model = torch.compile(self.model)
        self.graph = self.captured() if self.way == "graph" else None

    def train(self):
        self.optimizer.zero_grad(set_to_none=self.way != "graph")
        loss = self.model(self.input).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def infer(self):
        with self.torch.no_grad():
            return self.model(self.input).square().mean()

    def captured(self):
        """As PyTorch's manual does it: warm on a stream aside, then captured."""
        torch = self.torch
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self.work()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.output = self.work()
        return graph

    def step(self):
        """A batch in, the work, a number out: one wait."""
        self.input.copy_(self.host, non_blocking=True)
        if self.graph is None:
            return self.work().item()
        self.graph.replay()
        return self.output.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(MODES))
        return
    if not options.mode:
        parser.error("--mode is needed")
    try:
        import torch
    except ImportError:
        lacks("torch_steps", "PyTorch is not installed")
    if not torch.cuda.is_available():
        lacks("torch_steps", "PyTorch finds no GPU")
    loop = Loop(torch, options.mode)
    first = [loop.step() for _ in range(WARM_STEPS)]
    steps, begin, trips = 0, time.perf_counter(), round_trips()
    while steps == 0 or time.perf_counter() - begin < options.seconds:
        loop.step()
        steps += 1
    took = time.perf_counter() - begin
    print(json.dumps({"steps_per_s": steps / took, "result": first[-1], "torch": torch.__version__,
                      "round_trips_per_step": None if trips is None else (round_trips() - trips) / steps}))


if __name__ == "__main__":
    main()
