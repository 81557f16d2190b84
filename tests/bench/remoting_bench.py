#!/usr/bin/env python3
"""What remoting costs, on a driver that costs nothing, over loopback and through networks with a delay: as a table.

    tests/bench/remoting_bench.py                          all rows at 0, 0.5 and 30 ms round trip; some minutes
    tests/bench/remoting_bench.py --only step --delay 30   one of them
    tests/bench/remoting_bench.py --json FILE --markdown FILE

Every row runs in a process of its own (`remoting_bench --list` names them). Exit status 0; 1: a count (round trips, memory)
is over its limit; 125: a call failed. Never because of a time.
"""
import argparse
import json
import os
import platform
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import delays  # noqa: E402

ROW_LIMIT_S = 120
CLAIMS = 5
LANES = (0, 2, 4)  # connections beside the main one for encrypted copies: gpu_client/protocol/lanes.hpp
# Rows that this script makes of others.
LOCAL_CODE, ENCRYPTED = "local_code", "encrypted"


class Tools:
    def __init__(self, build, driver=None):
        self.server = os.path.join(build, "bin", "tnr-gpu-server")
        self.proxy = os.path.join(build, "bin", "delaying_proxy")
        self.bench = os.path.join(build, "bin", "remoting_bench")
        self.client = os.path.join(build, "lib")
        self.driver = driver or os.path.join(build, "lib", "libtnr_null_driver.so")


class Failed(Exception):
    pass


class Bench:
    def __init__(self, tools, options):
        self.tools, self.options = tools, options
        self.figures, self.status = [], 0

    def run_row(self, row, environment, more=()):
        """The figures of one process that runs the row."""
        command = [self.tools.bench, "--only", row, *more, *(["--quick"] if self.options.quick else [])]
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=ROW_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {ROW_LIMIT_S} s")
        if done.returncode not in (0, 1):
            raise Failed(f"ended with {done.returncode}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def row(self, row, way, label=None, prefix="", gpu=None, lanes=0, more=()):
        more = [*more, "--host", way.host]
        if way.delay_ms:
            more += ["--ping-port", str(way.spare[0]), "--tcp-port", str(way.spare[1]), "--counts-port", str(way.counts_port)]
        if gpu or not self.options.quick:  # a claim of another size must not meet the one before, which is still ending
            way.pool.settle()
        self.take(label or row, way.delay_ms, prefix, lambda: self.run_row(row, way.environment(gpu or self.options.gpu, lanes), more))

    def take(self, row, delay_ms, prefix, run):
        print(f"{row} at {delay_ms:g} ms", file=sys.stderr, flush=True)
        try:
            figures = run()
        except Failed as error:
            print(f"remoting_bench: {row} at {delay_ms:g} ms {error}", file=sys.stderr)
            self.status = 125
            return
        for figure in figures:
            figure.update(row=row, delay_ms=delay_ms, figure=prefix + figure["figure"])
            if figure.get("too_many"):
                self.status = self.status or 1
                print(f"remoting_bench: {row} at {delay_ms:g} ms: {figure['figure']}: {figure['value']:g}, "
                      f"limit {figure['limit']:g}", file=sys.stderr)
        self.figures += figures

    def all_of(self, way, rows):
        for row in rows:
            if row == "claim":
                self.take(row, way.delay_ms, "", lambda: self.claims(way))
            elif row == "code":
                seed = ["--seed", str(len(self.figures) + 1)]  # the server has not seen it, whatever ran before
                self.row(row, way, prefix="first run: ", more=seed)
                self.row(row, way, prefix="second run: ", more=seed)
            elif row == "devices":
                self.row(row, way, gpu=self.options.gpu + ":4" if ":" not in self.options.gpu and not self.options.driver else None)
            else:
                self.row(row, way)

    def claims(self, way):
        """The median: a claim is made once per process."""
        runs = [self.run_row("claim", way.environment(self.options.gpu))[0] for _ in range(1 if self.options.quick else CLAIMS)]
        return [sorted(runs, key=lambda run: run["value"])[len(runs) // 2]]

    def run(self, rows):
        ours = [row for row in rows if row not in (LOCAL_CODE, ENCRYPTED)]
        if LOCAL_CODE in rows:
            environment = dict(os.environ, TNR_TEST_DRIVER=self.tools.driver)
            self.take("code", 0, "local: ", lambda: self.run_row("code", environment))
        with delays.Pool(self.tools, driver=self.tools.driver) as pool:
            for delay in self.options.delay:
                with pool.through(delay) as way:
                    self.all_of(way, ours)
        if ENCRYPTED not in rows:
            return
        with delays.Pool(self.tools, driver=self.tools.driver, encrypted=True, lanes=max(LANES)) as pool:
            for delay in self.options.delay:
                with pool.through(delay) as way:
                    for lanes in LANES:
                        self.row("copies", way, label=ENCRYPTED, prefix=f"CURVE, {lanes or 'no'} lanes: ", lanes=lanes)


def number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(figures, delays_ms):
    """Rows of a table in Markdown: a line per figure, a column per delay."""
    lines = {}
    for figure in figures:
        key = (figure["row"], figure["figure"])
        goal = figure.get("aim") or (f"<= {figure['limit']:g}" if "limit" in figure else "")
        lines.setdefault(key, {"unit": figure["unit"], "goal": goal})[figure["delay_ms"]] = figure["value"]
    order = list(dict.fromkeys(row for row, _ in lines))
    lines = dict(sorted(lines.items(), key=lambda item: order.index(item[0][0])))  # some figures are only there with a proxy
    head = ["row", "figure", "unit", *(f"{delay:g} ms" for delay in delays_ms), "to reach or limit"]
    body = [[row, name, line["unit"], *(number(line[delay]) if delay in line else "" for delay in delays_ms), line["goal"]]
            for (row, name), line in lines.items()]
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    rule = ["-" * width for width in widths]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
                     for row in [head, rule, *body])


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0]}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="the build folder")
    parser.add_argument("--driver", metavar="LIB", help="another driver than the one that costs nothing")
    parser.add_argument("--gpu", default="h100", help="what to ask the pool for")
    parser.add_argument("--only", help="rows, with commas between; default: all")
    parser.add_argument("--delay", default="0,0.5,30", help="round trips in ms, with commas between; 0: no proxy")
    parser.add_argument("--json", metavar="FILE", help="write all figures there, too")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there, too")
    parser.add_argument("--quick", action="store_true", help="tiny counts: only whether everything works")
    options = parser.parse_args()
    options.delay = [float(delay) for delay in options.delay.split(",")]
    options.tools = Tools(os.path.abspath(options.build), options.driver)
    listed = subprocess.run([options.tools.bench, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    known = [line.split("\t")[0] for line in listed.splitlines()] + [LOCAL_CODE, ENCRYPTED]
    needs_null_driver = ("code", LOCAL_CODE)  # their code is none for any other
    options.rows = options.only.split(",") if options.only else [
        row for row in known if not options.driver or row not in needs_null_driver]
    for row in options.rows:
        if row not in known:
            parser.error(f"there is no row '{row}': {', '.join(known)}")
    return options


def main():
    options = parse_arguments()
    about = machine()
    bench = Bench(options.tools, options)
    bench.run(options.rows)
    text = table(bench.figures, options.delay)
    print(text)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text + "\n")
    if options.json:
        with open(options.json, "w") as file:
            lines = ",\n".join(json.dumps(figure) for figure in bench.figures)
            file.write(f'{{"machine": {json.dumps(about)},\n"figures": [\n{lines}\n]}}\n')
    return bench.status


if __name__ == "__main__":
    sys.exit(main())
