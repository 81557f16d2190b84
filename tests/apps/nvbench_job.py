"""NVBench (cuda.bench): a kernel is timed cold and in batches. Each cold measurement is held back by a kernel that polls a
registered word, until the program has submitted all of it and writes that word."""
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile

SOURCE = """
extern "C" __global__ void count(unsigned long long* runs, int n) {
    if (blockIdx.x * blockDim.x + threadIdx.x < n) atomicAdd(runs, 1ull);
}"""
THREADS = (500, 2000)


def measure(arguments):
    import cuda.bench as bench
    from cuda import core

    class Theirs:  # NVBench's stream, for cuda.core
        def __init__(self, stream):
            self.address = stream.addressof()

        def __cuda_stream__(self):
            return 0, self.address

    def count(state):
        device = core.Device(state.get_device())
        device.set_current()
        threads = state.get_int64("threads")
        module = core.Program(SOURCE, "c++", core.ProgramOptions(arch="compute_90")).compile("ptx")
        kernel = module.get_kernel("count")
        memory = core.LegacyPinnedMemoryResource().allocate(8)
        runs = ctypes.c_uint64.from_address(int(memory.handle))
        runs.value = launches = 0
        state.set_blocking_kernel_timeout(10)

        def launch_one(launch):
            nonlocal launches
            launches += 1
            core.launch(device.create_stream(Theirs(launch.get_stream())),
                        core.LaunchConfig(grid=(threads + 255) // 256, block=256), kernel, memory, ctypes.c_int32(threads))

        state.exec(launch_one)
        device.sync()
        assert runs.value == launches * threads, (runs.value, launches, threads)
        print(f"{threads} threads were counted in each of {launches} launches", flush=True)

    bench.register(count).add_int64_axis("threads", list(THREADS))
    bench.run_all_benchmarks([sys.argv[0], *arguments])


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results.json"
        command = [sys.executable, __file__, "--devices", "0", "--min-samples", "20", "--timeout", "4", "--json", results]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        print(said)
        assert "Deadlock" not in said and said.count("threads were counted") == len(THREADS)
        for state in json.loads(results.read_text())["benchmarks"][0]["states"]:
            measured = {summary["tag"]: summary["data"] for summary in state["summaries"]}
            samples, seconds = (next(float(one["value"]) for one in measured[tag] if one["name"] == "value")
                                for tag in ("nv/cold/sample_size", "nv/cold/time/gpu/mean"))
            assert samples >= 20 and seconds > 0, (state["name"], samples, seconds)
    print("NVBench has measured", len(THREADS), "cases")


measure(sys.argv[1:]) if len(sys.argv) > 1 else main()
