"""NCCL over the GPUs of a claim, with CuPy for the memory.

    nccl_job.py one [GPUS]      one process with all; 2 unless it says more
    nccl_job.py each [GPUS]     a process for each
    nccl_job.py hidden [GPUS]   the same, and none sees the others' (CUDA_VISIBLE_DEVICES)
    nccl_job.py nvls GPUS       one process, and what can be done by a multicast object is
"""
import ctypes
import importlib.util
import multiprocessing
import os
import pathlib
import sys

nvidia = importlib.util.find_spec("nvidia").submodule_search_locations[0]
ctypes.CDLL(str(pathlib.Path(nvidia) / "nccl" / "lib" / "libnccl.so.2"))  # PyPI's, which CuPy does not look for

import cupy  # noqa: E402
import numpy as np  # noqa: E402
from cupy.cuda import nccl  # noqa: E402

RANKS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
if RANKS > 2:  # at one switch: NCCL then makes a multicast object (NVLS)
    os.environ.setdefault("NCCL_TOPO_FILE", str(pathlib.Path(__file__).with_name("nvswitch.xml")))
if sys.argv[1] == "nvls":
    os.environ["NCCL_ALGO"] = "allreduce:nvls;allgather:nvls;reducescatter:nvls"
SIZES = (RANKS, 5000, 100_000)  # elements: NCCL has a protocol of its own for small, middling and large ones
TYPES = {np.float32: nccl.NCCL_FLOAT32, np.float64: nccl.NCCL_FLOAT64, np.int64: nccl.NCCL_INT64}
ANSWER_LIMIT_S = 600


def data_of(rank, size, dtype):
    return (np.arange(size) % 1000 * (rank + 1) + rank).astype(dtype)


def all_to(function):
    """What each of the ranks shall have when all have the same."""
    return lambda given: [function(given)] * RANKS


# name: (the call, what each rank shall have of what all have given; None: it is not a receiver)
COLLECTIVES = {
    "all-reduce, sum": (lambda comm, rank, a, b, n, t, s: comm.allReduce(a, b, n, t, nccl.NCCL_SUM, s), all_to(sum)),
    "all-reduce, max": (lambda comm, rank, a, b, n, t, s: comm.allReduce(a, b, n, t, nccl.NCCL_MAX, s),
                        all_to(np.maximum.reduce)),
    "reduce to 1": (lambda comm, rank, a, b, n, t, s: comm.reduce(a, b, n, t, nccl.NCCL_SUM, 1, s),
                    lambda given: [None, sum(given)] + [None] * (RANKS - 2)),
    "broadcast from 1": (lambda comm, rank, a, b, n, t, s: comm.broadcast(a, b, n, t, 1, s),
                         all_to(lambda given: given[1])),
    "all-gather": (lambda comm, rank, a, b, n, t, s: comm.allGather(a, b, n, t, s), all_to(np.concatenate)),
    "reduce-scatter": (lambda comm, rank, a, b, n, t, s: comm.reduceScatter(a, b, n // RANKS, t, nccl.NCCL_SUM, s),
                       lambda given: np.split(sum(given), RANKS)),
    "send to the next": (lambda comm, rank, a, b, n, t, s: (comm.send(a, n, t, (rank + 1) % RANKS, s),
                                                            comm.recv(b, n, t, (rank - 1) % RANKS, s)),
                         lambda given: given[-1:] + given[:-1]),
}


def check(name, size, dtype, comms, device_of):
    """`comms`: this process's communicators by rank; all ranks of a process call as one group, as NCCL demands."""
    call, wanted_of = COLLECTIVES[name]
    given, received, streams = {}, {}, {}
    for rank in comms:
        with cupy.cuda.Device(device_of(rank)):
            given[rank] = cupy.asarray(data_of(rank, size, dtype))
            received[rank] = cupy.zeros(RANKS * size, dtype)
            streams[rank] = cupy.cuda.Stream(non_blocking=True)
            cupy.cuda.Device().synchronize()
    nccl.groupStart()
    for rank, comm in comms.items():
        call(comm, rank, given[rank].data.ptr, received[rank].data.ptr, size, TYPES[dtype], streams[rank].ptr)
    nccl.groupEnd()
    wanted = wanted_of([data_of(rank, size, dtype) for rank in range(RANKS)])
    for rank in comms:
        with cupy.cuda.Device(device_of(rank)):
            streams[rank].synchronize()
            got, due = received[rank].get(), wanted[rank] if wanted[rank] is not None else np.empty(0, dtype)
            np.testing.assert_array_equal(got[:len(due)], due, f"{name}, {size} {dtype.__name__}, rank {rank}")
            assert not got[len(due):].any(), f"{name}, {size} {dtype.__name__}: rank {rank} has more than it should"


def check_all(comms, device_of=lambda rank: rank, names=tuple(COLLECTIVES)):
    for name in names:
        for size in SIZES:
            check(name, size, np.float32, comms, device_of)
        for dtype in TYPES:
            check(name, 1000, dtype, comms, device_of)


def in_one_process(**which):
    check_all(dict(enumerate(nccl.NcclCommunicator.initAll(RANKS))), **which)


def by_multicast():
    in_one_process(names=("all-reduce, sum", "all-gather", "reduce-scatter"))


def one_of_them(rank, unique_id, hide, answers):
    if hide:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    device = 0 if hide else rank
    try:
        with cupy.cuda.Device(device):
            check_all({rank: nccl.NcclCommunicator(RANKS, unique_id, rank)}, lambda _: device)
        answers.put(None)
    except BaseException as error:
        answers.put(repr(error))
        raise


def in_processes(hide=False):
    context = multiprocessing.get_context("spawn")
    answers, unique_id = context.Queue(), nccl.get_unique_id()
    processes = [context.Process(target=one_of_them, args=(rank, unique_id, hide, answers), daemon=True)
                 for rank in range(RANKS)]
    for process in processes:
        process.start()
    for _ in processes:
        assert (wrong := answers.get(timeout=ANSWER_LIMIT_S)) is None, wrong
    for process in processes:
        process.join()


if __name__ == "__main__":
    {"one": in_one_process, "each": in_processes, "hidden": lambda: in_processes(hide=True),
     "nvls": by_multicast}[sys.argv[1]]()
    print("NCCL", nccl.get_version(), *sys.argv[1:])
