#!/usr/bin/env python3
"""What drivers answer to some hundred small cases, compared: the emulated driver by itself, remoted, and NVIDIA's.

    differential.py                     emulated by itself against remoted on emulated, as ctest does
    differential.py --record LIB        NVIDIA's driver: its answers become the expectation, in ../driver_api/expected/
    differential.py --direct LIB        LIB in the emulated driver's place: by itself against remoted on it
    differential.py --update            writes known_differences.txt anew; a reason must then be written to what is new

Cases run in order in one process until one ends it, does not end, or leaves an error that stays; the next process goes on
behind it. Expectation: the newest record of a real driver; of cases that it lacks, what the emulated driver answers. Every
difference must be in known_differences.txt with a reason, and nothing else may: exit status 1 otherwise.
"""
import argparse
import collections
import ctypes
import os
import re
import selectors
import subprocess
import sys
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import delays  # noqa: E402

EXPECTED = os.path.join(ROOT, "tests", "driver_api", "expected")
KNOWN = os.path.join(HERE, "known_differences.txt")
CASE_LIMIT_S = 20  # the slowest takes a tenth of a second on an idle machine
NO_REASON = "?"
Case = collections.namedtuple("Case", "name setting unsafe")


def list_cases(program):
    listed = subprocess.run([program, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [Case(name, setting, unsafe == "unsafe") for name, setting, unsafe in
            (line.split("\t") for line in listed.splitlines())]


class Lines:
    """Lines of a process's stdout, with a limit on each."""

    def __init__(self, process):
        self.process, self.rest = process, b""
        self.ready = selectors.DefaultSelector()
        self.ready.register(process.stdout, selectors.EVENT_READ)

    def next(self):
        """None at the end; TimeoutError when nothing comes."""
        give_up = time.monotonic() + CASE_LIMIT_S
        while b"\n" not in self.rest:
            if not self.ready.select(max(0.0, give_up - time.monotonic())):
                raise TimeoutError
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return None
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")


def run_until_one_ends_it(program, names, environment, outcomes):
    """Runs cases in one process and returns those that are still to be run."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env=environment)
    lines, current = Lines(process), None
    try:
        process.stdin.write("".join(name + "\n" for name in names).encode())
        process.stdin.close()
        while (line := lines.next()) is not None:
            word, _, rest = line.partition(" ")
            if word == "begin":
                current = rest
            elif word == "end" and current:
                outcomes[current], current = rest, None
    except TimeoutError:
        if current:
            outcomes[current], current = "hangs", None
    except BrokenPipeError:  # it ended before it had read all names
        pass
    finally:
        process.kill()
        status = process.wait()
        process.stdout.close()
    if current:
        outcomes[current] = f"ends the process ({-status if status < 0 else 'status ' + str(status)})"
    left = [name for name in names if name not in outcomes]
    if len(left) == len(names):
        raise RuntimeError(f"{program} ran no case: status {status}")
    return left


def run_all(program, cases, environment):
    outcomes = {}
    for setting in ("uninitialised", "context"):
        left = [case.name for case in cases if case.setting == setting]
        while left:
            left = run_until_one_ends_it(program, left, environment, outcomes)
    for case in cases:
        if case.setting == "alone":
            run_until_one_ends_it(program, [case.name], environment, outcomes)
    return outcomes


def readable(outcome):
    return outcome or "-"


def driver_version(path):
    """As nvidia-smi names it ("580.65.06") where the kernel module tells, else the CUDA version."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", file.read())
        if found:
            return found[1]
    except OSError:
        pass
    version = ctypes.c_int()
    ctypes.CDLL(path).cuDriverGetVersion(ctypes.byref(version))
    return f"cuda-{version.value}"


def save_record(outcomes, path, folder):
    """The file, and the lines of cases that are not in it: what ends a process is undefined, what cannot be prepared untold."""
    os.makedirs(folder, exist_ok=True)
    file_name = os.path.join(folder, driver_version(path) + ".txt")
    left_out = []
    with open(file_name, "w") as file:
        for name, outcome in outcomes.items():
            tells = not says_nothing(outcome) and "unprepared:" not in outcome
            if tells and not outcome.startswith(("ends the process", "hangs")):
                file.write(f"{name}\t{outcome}\n")
            else:
                left_out.append(f"left out: {name}: {outcome}")
    return file_name, left_out


def newest_record(folder):
    """The name of the newest driver's and its outcomes."""
    def order(name):
        return [int(number) for number in re.findall(r"\d+", name)]
    names = sorted((name for name in os.listdir(folder) if name.endswith(".txt")), key=order) if os.path.isdir(folder) else []
    if not names:
        return None, {}
    with open(os.path.join(folder, names[-1])) as file:
        return names[-1][:-len(".txt")], dict(line.rstrip("\n").split("\t") for line in file)


def read_known():
    """(side, case) to (expected, answered, reason)."""
    known = {}
    with open(KNOWN) as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                side, name, expected, answered, reason = line.rstrip("\n").split("\t")
                known[side, name] = (expected, answered, reason)
    return known


def write_known(differences, known):
    with open(KNOWN) as file:
        head = [line for line in file if line.startswith("#")]
    with open(KNOWN, "w") as file:
        file.writelines(head)
        for (side, name), (expected, answered) in sorted(differences.items()):
            reason = known.get((side, name), ("", "", NO_REASON))[2]
            file.write("\t".join((side, name, expected, answered, reason)) + "\n")


def says_nothing(outcome):
    """The machine cannot run the case, or the library lacks the function."""
    return outcome.startswith("skipped") or "missing" in outcome.split()


def compare(sides, expectation):
    """(side, case) to (expected, answered), where they differ."""
    differences = {}
    for side, outcomes in sides.items():
        for name, outcome in outcomes.items():
            if name not in expectation or says_nothing(outcome) or says_nothing(expectation[name]):
                continue
            if outcome != expectation[name]:
                differences[side, name] = (readable(expectation[name]), readable(outcome))
    return differences


def judge(differences, known):
    """What is wrong, as lines."""
    problems = []
    for key, (expected, answered) in sorted(differences.items()):
        side, name = key
        text = f"{side:8} {name}: expected {expected}, answers {answered}"
        if key not in known:
            problems.append("new       " + text)
        elif known[key][:2] != (expected, answered):
            problems.append("changed   " + text + f" (known: {known[key][0]}, {known[key][1]})")
        elif known[key][2] == NO_REASON:
            problems.append("no reason " + text)
    for side, name in sorted(set(known) - set(differences)):
        problems.append(f"stale     {side:8} {name}: there is no difference any more")
    return problems


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="the build folder")
    parser.add_argument("--direct", metavar="LIB", help="a libcuda.so.1 to take in the emulated driver's place")
    parser.add_argument("--record", metavar="LIB", help="record what NVIDIA's libcuda.so.1 answers")
    parser.add_argument("--expected", metavar="DIR", default=EXPECTED, help="where records are")
    parser.add_argument("--gpu", default="h100:2", help="what to ask the pool for")
    parser.add_argument("--update", action="store_true", help="write known_differences.txt anew")
    parser.add_argument("--show", action="store_true", help="print every case with all outcomes")
    return parser.parse_args()


def run_side(options, program, cases, direct):
    """Outcomes of a driver by itself and remoted on it."""
    tools = types.SimpleNamespace(server=os.path.join(options.build, "bin", "tnr-gpu-server"),
                                  client=os.path.join(options.build, "lib"),
                                  proxy=os.path.join(options.build, "bin", "delaying_proxy"))
    emulated = dict(TNR_EMULATED_GPUS="h100:2", TNR_EMULATED_MEMORY_MIB="512")
    library = direct or os.path.join(options.build, "lib", "libcuda-emulated.so.1")
    alone = run_all(program, cases, dict(os.environ, **emulated, TNR_TEST_DRIVER=library))
    with delays.Pool(tools, driver=direct, memory_mib="512") as pool, pool.through(0) as way:
        return alone, run_all(program, cases, way.environment(options.gpu))


def main():
    options = parse_arguments()
    program = os.path.join(options.build, "bin", "differential_cases")
    cases = list_cases(program)
    real = options.record or options.direct
    if real:  # an invented handle may crash a real driver, and what it answers is nobody's promise
        cases = [case for case in cases if not case.unsafe]
    if options.record:
        outcomes = run_all(program, cases, dict(os.environ, TNR_TEST_DRIVER=options.record))
        file_name, left_out = save_record(outcomes, options.record, options.expected)
        print(*left_out, f"recorded: {file_name}", sep="\n")
        if any("unprepared:" in line for line in left_out):
            print("no good: there is something that could not be prepared. Is the GPU another's, too, or full? Record again")
            return 1
        return 0
    alone, remoted = run_side(options, program, cases, options.direct)
    version, record = newest_record(options.expected)
    expectation = {**alone, **record}
    sides = {"direct": alone, "remoted": remoted} if version else {"remoted": remoted}
    if options.direct or not version:
        version, expectation, sides = "the driver by itself", alone, {"remoted": remoted}
    if options.show:
        for case in cases:
            print(f"{case.name:70} {readable(alone.get(case.name, ''))} | {readable(remoted.get(case.name, ''))}")
    differences = compare(sides, expectation)
    calls = len({case.name.split("/")[0] for case in cases})
    print(f"{len(cases)} cases of {calls} calls, expected: {version}; {len(differences)} differ")
    if options.update:
        write_known(differences, read_known())
        return 0
    if options.direct:  # another driver than the list speaks of: a table and no verdict
        for (side, name), (expected, answered) in sorted(differences.items()):
            print(f"{side:8} {name}: {expected} | {answered}")
        return 0
    problems = judge(differences, read_known())
    for problem in problems:
        print(problem)
    if problems:
        print("after looking at each: tests/differential/differential.py --update, and write the reasons")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
