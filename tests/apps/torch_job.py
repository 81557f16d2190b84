"""PyTorch: the GPU, memory, streams, copies, pinned loading with forked workers, handles between processes, the profiler.

Its kernels are machine code for real GPUs: on the emulated one each must fail with "no kernel image", never silently."""
import os
import sys

import torch
import torch.multiprocessing


def loads_pinned_batches():
    data = torch.utils.data.TensorDataset(torch.arange(256, dtype=torch.float32).reshape(64, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=16, num_workers=2, pin_memory=True,
                                         multiprocessing_context="fork")
    batches = [batch for batch, in loader]
    assert all(batch.is_pinned() for batch in batches)
    moved = torch.empty(64, 4, device="cuda")
    for k, batch in enumerate(batches):
        moved[16 * k:16 * k + 16].copy_(batch, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(moved.cpu(), data.tensors[0])


def orders_streams():
    side, host = torch.cuda.Stream(), torch.arange(1 << 20, dtype=torch.int32).pin_memory()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(side):
        begin.record()
        device = host.to("cuda", non_blocking=True)
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    back = torch.empty_like(host).pin_memory()
    back.copy_(device, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, host) and begin.elapsed_time(end) >= 0


def counts_memory():
    before = torch.cuda.memory_allocated()
    tensor = torch.empty(1 << 22, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() - before == 1 << 22
    del tensor
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    try:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("32 TiB were allocated")


def kernels_fail_loudly():
    for call in (lambda: torch.ones(4, device="cuda"), lambda: torch.empty(4, device="cuda") + 1,
                 lambda: torch.empty(4, 4, device="cuda").sum()):
        try:
            call()
            torch.cuda.synchronize()
        except RuntimeError as error:
            assert "no kernel image" in str(error), error
        else:
            raise AssertionError("a kernel that cannot run failed silently")


def profiles():
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        torch.arange(100).to("cuda").cpu()
    assert any("copy" in event.key for event in profiler.key_averages())


def child(queue, answers):
    tensor = queue.get()
    answers.put(tensor.cpu().sum().item())
    del tensor


def shares_with_a_process():
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    other = context.Process(target=child, args=(queue, answers))
    other.start()
    tensor = torch.arange(1000).to("cuda")
    queue.put(tensor)
    assert answers.get(timeout=100) == 499500
    other.join()


STEPS = [counts_memory, orders_streams, loads_pinned_batches, kernels_fail_loudly, profiles, shares_with_a_process]

if __name__ == "__main__":
    assert torch.cuda.is_available() and torch.cuda.get_device_name().endswith("(emulated)")
    chosen = sys.argv[1:] or [step.__name__ for step in STEPS]
    for step in STEPS:
        if step.__name__ in chosen:
            step()
            print("PyTorch:", step.__name__, flush=True)
