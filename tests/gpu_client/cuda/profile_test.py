#!/usr/bin/env python3
"""The file that TNR_PROFILE and `tnr run --profile` write, of a real program on the emulated GPU.

    profile_test.py --server bin/tnr-gpu-server --client lib --program bin/profile_program --tnr bin/tnr [CASE…]

trace_events.py holds it against the trace event format and checks that its parts belong together; here is what this program
must show, and that these checks fail when a file is spoilt.
"""
import argparse
import copy
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "support"))
sys.path.insert(0, HERE)
import with_server  # noqa: E402
from trace_events import Broken, Trace  # noqa: E402

LAUNCHES = 20  # of each stream
GIVE_UP_S = 60


class World:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.server = with_server.start_server(arguments, folder)
        self.address = with_server.address_of(self.server)
        self.environment = with_server.client_environment(arguments, self.address, folder)

    def path(self, name="out.json"):
        return os.path.join(self.folder, name)

    def start(self, *words, **more):
        return subprocess.Popen([self.arguments.program, *words], env=dict(self.environment, **more), text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words, status=0, **more):
        program = self.start(*words, **more)
        _, errors = program.communicate(timeout=GIVE_UP_S)
        assert program.returncode == status, (program.returncode, errors)
        return errors


def load(path):
    with open(path) as file:
        return Trace(json.load(file))  # Python takes NaN, too, and nothing else that is not strict


def shows_the_program(trace, launches=LAUNCHES):
    calls = trace.slices(process="(program)")
    launched = [call for call in calls if call.name == "cuLaunchKernel"]
    assert len(launched) == 2 * launches, len(launched)
    for name, reply in (("cuStreamSynchronize", "cuStreamSynchronize"), ("cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2")):
        waits = [call for call in calls if call.name == "wait" and call.args["for"] == reply]
        assert any(wait.parent.name == name for wait in waits), f"no wait inside {name}"
    kernels = trace.slices(process="GPU")
    assert {kernel.name for kernel in kernels} == {"spin"}, {kernel.name for kernel in kernels}
    assert len(kernels) == 2 * launches, len(kernels)
    streams = {}
    for kernel in kernels:
        streams.setdefault(kernel.track, []).append(kernel)
    assert sorted(len(stream) for stream in streams.values()) == [launches, launches], streams
    # Arrows: launch → dispatcher → kernel. The n-th launch alternates between the streams.
    for number, launch in enumerate(launched):
        inside = [arrow for arrow in trace.arrows.values() if arrow["s"].slice is launch]
        assert len(inside) == 1, f"{len(inside)} arrows leave launch {number}"
        arrow = inside[0]
        assert set(arrow) == {"s", "t", "f"}, f"the arrow of launch {number} is not whole"
        assert arrow["t"].slice.name == "cuLaunchKernel" and arrow["t"].slice.process == "worker (on the server)"
        kernel = arrow["f"].slice
        assert kernel.process == "GPU" and kernel is streams[kernel.track][number // 2], f"launch {number} leads elsewhere"
        assert launch.begin <= arrow["t"].slice.begin + trace.tolerance_us, "handled before it was launched"
        assert arrow["t"].slice.begin <= kernel.begin + trace.tolerance_us, "ran before it was handled"
        assert kernel.end <= calls[-1].end + trace.tolerance_us
    sent, received = trace.batches("(program)", "batch sent"), trace.batches("worker", "batch received")
    assert received and all(sent[number] == batch for number, batch in received.items()), "batches differ at the two ends"
    sent, received = trace.batches("worker", "batch sent"), trace.batches("(program)", "batch received")
    assert sent and all(received[number] == batch for number, batch in sent.items()), "batches differ at the two ends"
    assert max(batch["bytes"] for batch in received.values()) > 1 << 20 and trace.counters["bytes received"][-1] > 1 << 20
    assert trace.counters["bytes sent"][-1] > 1 << 20
    assert trace.counters["round trips"] == list(range(1, len(trace.counters["round trips"]) + 1))
    assert "events dropped" not in trace.counters


def normal_exit(world):
    world.run(str(LAUNCHES), TNR_PROFILE=world.path())
    trace = load(world.path())
    shows_the_program(trace)
    assert not trace.open, f"still open: {trace.open}"


def spoilt_files_are_noticed(world):
    world.run(str(LAUNCHES), TNR_PROFILE=world.path())
    with open(world.path()) as file:
        sound = json.load(file)

    def noticed(what, spoil):
        spoilt = copy.deepcopy(sound)
        spoil(spoilt["traceEvents"])
        try:
            trace = Trace(spoilt)
            shows_the_program(trace)
            assert not trace.open
        except (Broken, AssertionError):
            return
        sys.exit(f"nobody noticed: {what}")

    def first(events, **fields):
        return next(event for event in events if all(event.get(key) == value for key, value in fields.items()))

    noticed("an arrow that comes from nowhere", lambda events: events.remove(first(events, ph="s")))
    noticed("an arrow that skips the worker", lambda events: events.remove(first(events, ph="t")))
    noticed("an arrow that leads nowhere", lambda events: events.remove(first(events, ph="f")))
    noticed("an arrow of another launch", lambda events: first(events, ph="f").update(id=10_000))
    noticed("a slice that does not end", lambda events: events.remove(first(events, ph="E")))
    noticed("a kernel that takes less than no time", lambda events: first(events, ph="X").update(dur=-1))
    noticed("a thread that goes back in time", lambda events: first(events, ph="E").update(ts=1))
    noticed("an event without a process", lambda events: first(events, ph="i").pop("pid"))
    noticed("a batch that has grown on its way",
            lambda events: first(events, ph="i", name="batch received")["args"].update(bytes=1))


def killed_program(world):
    program = world.start(str(LAUNCHES), "wait", TNR_PROFILE=world.path())
    assert program.stdout.readline().startswith("done")
    give_up = time.monotonic() + GIVE_UP_S
    while True:  # while the program lives the file is whole, whenever it is read
        trace = load(world.path()) if os.path.exists(world.path()) else None
        if trace and len(trace.slices(process="GPU")) == 2 * LAUNCHES and trace.counters["round trips"]:
            break
        assert time.monotonic() < give_up, "the file was not written while the program ran"
        time.sleep(0.02)
    program.send_signal(signal.SIGKILL)
    program.communicate(timeout=GIVE_UP_S)
    shows_the_program(load(world.path()))


def aborted_program(world):
    world.run(str(LAUNCHES), "abort", status=-signal.SIGABRT, TNR_PROFILE=world.path())
    load(world.path())


def tnr_run_and_two_processes(world):
    with open(world.path("mine.json"), "w") as file:
        file.write("of an earlier run")
    environment = dict(world.environment, HOME=world.folder, XDG_CACHE_HOME=world.path("cache"))
    subprocess.run([world.arguments.tnr, "run", "--gpu", "h100", "--pool", world.address, "--profile", "mine.json", "--",
                    world.arguments.program, str(LAUNCHES), "children", world.arguments.program, str(LAUNCHES)],
                   env=environment, cwd=world.folder, check=True, timeout=GIVE_UP_S, stdout=subprocess.DEVNULL)
    files = glob.glob(world.path("mine*.json"))
    assert len(files) == 2, files
    for file in files:
        shows_the_program(load(file))
    processes = {load(file).program for file in files}
    assert len(processes) == 2 and world.path("mine.json") in files
    assert any(f".{process}.json" in file for process in processes for file in files), files


def off_and_impossible(world):
    before = set(os.listdir(world.folder))
    world.run("1")
    assert set(os.listdir(world.folder)) == before
    errors = world.run("1", TNR_PROFILE="/nowhere/out.json")  # and the program goes on
    assert "cannot make the profile /nowhere/out.json" in errors, errors


def tnr_run_with_an_impossible_file(world):
    done = subprocess.run([world.arguments.tnr, "run", "--gpu", "h100", "--pool", world.address, "--profile", "/nowhere/out.json",
                           "--", "true"], env=world.environment, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "/nowhere/out.json" in done.stderr, done


def more_than_fits(world):
    """20,000 launches at once: whatever is lost is told, and the file is sound."""
    world.run("10000", TNR_PROFILE=world.path())
    trace = load(world.path())
    launched = [call for call in trace.slices(process="(program)") if call.name == "cuLaunchKernel"]
    complete = [arrow for arrow in trace.arrows.values() if set(arrow) == set("stf")]
    assert len(complete) > 1000, len(complete)
    assert len(launched) == len(complete) == 20_000 or trace.counters.get("events dropped", [0])[-1] > 0


CASES = (normal_exit, spoilt_files_are_noticed, killed_program, aborted_program, tnr_run_and_two_processes, off_and_impossible,
         tnr_run_with_an_impossible_file, more_than_fits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("server", "client", "program", "tnr"):
        parser.add_argument("--" + name, required=True, type=os.path.abspath)
    parser.add_argument("case", nargs="*", help="all, unless named")
    arguments = parser.parse_args()
    arguments.driver, arguments.emulate, arguments.memory_mib, arguments.gpu = None, "h100", "256", "h100"
    for case in CASES:
        if arguments.case and case.__name__ not in arguments.case:
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True) as folder:
            world = World(arguments, folder)
            try:
                case(world)
            finally:
                with_server.stop(world.server)
            with open(with_server.log_of(folder), errors="replace") as file:
                assert not any(finding in file.read() for finding in with_server.FINDINGS)
        print(f"{case.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
