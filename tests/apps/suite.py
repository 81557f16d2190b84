#!/usr/bin/env python3
"""Runs the test modules of an installed package, each in a process of its own, and tells what failed.

    suite.py --expected FILE [--jobs N] [--limit SECONDS] [--only TEXT] PACKAGE
    suite.py --expected FILE ... --pytest FOLDER PACKAGE    with pytest; PACKAGE is a folder of FOLDER, below `sources`
                                                            beside the Python, where apps.py puts what it has fetched

Each line of FILE is `test: reason`, of a test that is known to fail, or of a module (`module.*`) that cannot be run to
its end. The status is 1 when another test fails, or when one of these does not: the list only shrinks.
"""
import argparse
import concurrent.futures
import glob
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import sysconfig


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--expected", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=int, default=600, help="seconds for one module")
    parser.add_argument("--only", default="", help="only modules whose name contains this")
    parser.add_argument("--without", action="append", default=[], metavar="MODULE", help="not this module of the package")
    parser.add_argument("--pytest", metavar="FOLDER", help="the tests are pytest's, in this folder of the sources")
    parser.add_argument("--plugin", action="append", default=[],
                        help="a module beside this file that is loaded first: a plugin of pytest with --pytest")
    parser.add_argument("package")
    return parser.parse_args()


def modules_of(package, sources):
    """Names of the package's test modules, found without importing them."""
    folder = (sources.joinpath(*package.split(".")) if sources
              else pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0]))
    for path in sorted(folder.rglob("test_*.py")):
        yield ".".join([package, *path.relative_to(folder).with_suffix("").parts])


def output_of(command, limit, **options):
    """What the command says, and its status."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, text=True,
                              errors="replace", **options)
        return done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace"), "time limit"


def run_pytest(module, limit, sources, plugins):
    """As run(), for a module of tests of pytest."""
    libraries = glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", "*", "lib"))  # as a toolkit would be
    libraries.insert(0, os.environ.get("LD_LIBRARY_PATH", ""))
    environment = dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).parent), LD_LIBRARY_PATH=":".join(libraries))
    path = module.replace(".", "/") + ".py"
    command = [sys.executable, "-m", "pytest", "-q", "-rpfE", "--tb=short", "-p", "no:cacheprovider"]
    command += [word for plugin in plugins for word in ("-p", plugin)]
    output, status = output_of([*command, path], limit, cwd=sources, env=environment)
    verdicts = re.findall(rf"^(PASSED|FAILED|ERROR) {re.escape(path)}(?:::(.*?))?(?: - .*)?$", output, re.M)
    name = lambda test: module + "." + (test.replace("::", ".") or "*")
    failures = {name(test) for verdict, test in verdicts if verdict != "PASSED"}
    if status not in (0, 1, 5):  # 5: the module has no tests
        failures.add(module + ".*")
    return {name(test) for _, test in verdicts}, failures, output


def skips(output):
    """Tests that pytest's importorskip() has ended: unittest takes that for an error."""
    reports = re.split(r"^={70}$", output, flags=re.M)
    return {re.match(r"\s*ERROR: \w+ \(([\w.]+)\)", report).group(1) for report in reports
            if re.match(r"\s*ERROR: \w+ \([\w.]+\)", report) and re.search(r"^Skipped: ", report, re.M)}


def run(module, limit, plugins):
    """(tests that ran, those that failed, the output) of one module, the tests by name."""
    program = "".join(f"import {name}\n" for name in plugins) + "import unittest\nunittest.main(module=None)"
    environment = dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).parent))
    output, status = output_of([sys.executable, "-c", program, "-v", module], limit, env=environment)
    ran = re.findall(r"^(\w+) \(([\w.]+)\)", output, re.M)
    failed = re.findall(r"^(?:ERROR|FAIL): (\w+) \(([\w.]+)\)", output, re.M)
    name = lambda pair: pair[1] if pair[1].endswith("." + pair[0]) else f"{pair[1]}.{pair[0]}"
    failures = {name(pair) for pair in failed} - skips(output)
    failures = {module + ".*" if "_FailedTest" in test else test for test in failures}  # it cannot be imported
    ended = re.search(r"^(OK|FAILED|NO TESTS RAN)", output, re.M)
    if not ended and not re.search(r"^Skipped: .*\s*\Z", output, re.M):  # or the whole module is skipped
        failures.add(module + ".*")  # a crash, or too slow
    elif ended and status not in (0, 1, 5):
        failures.add(module + ".*")
    return {name(pair) for pair in ran}, failures, output


def read_expected(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(": ", 1) for line in lines)


def main():
    arguments = parse_arguments()
    expected = read_expected(arguments.expected)
    sources = pathlib.Path(sys.prefix) / "sources" / arguments.pytest if arguments.pytest else None
    modules = [name for name in modules_of(arguments.package, sources) if arguments.only in name]
    modules = [name for name in modules if name.removeprefix(arguments.package + ".") not in arguments.without]
    run_one = lambda module: (run_pytest(module, arguments.limit, sources, arguments.plugin) if sources
                              else run(module, arguments.limit, arguments.plugin))
    passed, unexpected, still, gone = 0, [], 0, []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for module, (ran, failures, output) in zip(modules, pool.map(run_one, modules)):
            known = {name for name in expected if name.startswith(module + ".")}
            new = sorted(failures - known)
            unexpected += new
            still += len(failures & known)
            gone += sorted(known - failures) if module + ".*" not in failures else []
            passed += len(ran - failures)
            if new:
                print(f"--- {module}\n{output[-6000:]}", flush=True)
    for name in unexpected:
        print("failed:", name)
    for name in gone:
        print("passes now, take it out of the list:", name)
    print(f"{arguments.package}: {passed} passed, {len(unexpected)} failed, {still} failed as expected")
    return 1 if unexpected or gone else 0


if __name__ == "__main__":
    sys.exit(main())
