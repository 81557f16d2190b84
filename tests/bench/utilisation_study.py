#!/usr/bin/env python3
"""How many people a GPU serves: one GPU each for the working day, a claim for each program, and that with idle detach.

    tests/bench/utilisation_study.py                        the tables; a quarter of a minute
    tests/bench/utilisation_study.py --busy 0.19 --gpus 8   some of it
    tests/bench/utilisation_study.py --ledger pool.db       with the days that a server's ledger tells of, instead of made ones
    tests/bench/utilisation_study.py --write-trace FILE     keeps the days; --trace FILE takes them
    tests/bench/utilisation_study.py --check                the simulation against queueing theory, nothing else

It is a simulation, and says under which assumptions. A day is one person's: when they come and go, and their runs, each with
the pause before it. A run that had to wait delays all that follows. People are "served" when 95 % of their runs begin within
--wait seconds. Idle detach is not in the server yet: its column says what it would bring.
"""
import argparse
import datetime
import heapq
import itertools
import json
import math
import random
import sqlite3
import statistics
import sys
from collections import deque

MINUTE, HOUR = 60.0, 3600.0
POLICIES = ("a GPU each", "claims", "claims + detach")

# Interactive training at a company, from "NotebookOS" (arXiv 2503.20591): half of all runs take up to 2 minutes, three
# quarters up to 5; a run begins 5 minutes after the one before in the median; reserved GPUs are idle 81 % of their time, and
# three quarters of the sessions use theirs for at most 5 %.
RUN_MEDIAN_S, RUN_QUARTILE_S = 2 * MINUTE, 5 * MINUTE
PAUSE_MEDIAN_S, PAUSE_SIGMA = 4 * MINUTE, 1.0
# Ours: people do some runs, then something else for a while, as long as makes the share of time with a run come out right.
RUNS_IN_A_ROW = 4
COMES_AT_S, COMES_SIGMA_S = 9.5 * HOUR, 1 * HOUR
STAYS_S, STAYS_SIGMA_S = 8 * HOUR, 1 * HOUR
RUN_SIGMA = math.log(RUN_QUARTILE_S / RUN_MEDIAN_S) / 0.6745
PEOPLE_PER_GPU_MAX = 100  # more is not looked for
HAND_OVER_S = 0.3  # wipe and claim, as the pool's goal has it


class Day:
    """One person's. `runs`: (pause before it, length) in seconds. `keeps`: as a notebook does, one program for the whole day."""

    def __init__(self, comes, stays, keeps, runs):
        self.comes, self.stays, self.keeps, self.runs = comes, stays, keeps, runs

    def text(self):
        return json.dumps({"comes": self.comes, "stays": self.stays, "keeps": self.keeps, "runs": self.runs})


def mean_of_log_normal(median, sigma):
    return median * math.exp(sigma * sigma / 2)


def made_day(dice, busy, notebooks):
    run = mean_of_log_normal(RUN_MEDIAN_S, RUN_SIGMA)
    row = RUNS_IN_A_ROW * run + (RUNS_IN_A_ROW - 1) * mean_of_log_normal(PAUSE_MEDIAN_S, PAUSE_SIGMA)
    away = max(MINUTE, RUNS_IN_A_ROW * run / busy - row)
    comes = max(0.0, dice.gauss(COMES_AT_S, COMES_SIGMA_S))
    stays = max(HOUR, dice.gauss(STAYS_S, STAYS_SIGMA_S))
    # Who comes may be anywhere between two rows; the first pause is a part of one.
    runs, total = [], dice.expovariate(1 / away) * dice.random()
    pause = total
    while total < stays:
        length = dice.lognormvariate(math.log(RUN_MEDIAN_S), RUN_SIGMA)
        runs.append((pause, length))
        last = dice.random() < 1 / RUNS_IN_A_ROW
        pause = dice.expovariate(1 / away) if last else dice.lognormvariate(math.log(PAUSE_MEDIAN_S), PAUSE_SIGMA)
        total += length + pause
    return Day(comes, stays, dice.random() < notebooks, runs)


def days_of_ledger(path):
    """A day of a machine is from its first claim to the end of its last. Where the claim had no work, nothing is known."""
    days = {}
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        for account, machine, began, until, busy in database.execute(
                "SELECT account, machine, began_ms / 1000.0, until_ms / 1000.0, busy_ms / 1000.0 FROM claims ORDER BY began_ms"):
            date = datetime.date.fromtimestamp(began)
            days.setdefault((account, machine, date), []).append((began, until, busy))
    result = []
    for claims in days.values():
        first, end, runs = claims[0][0], claims[0][0], []
        for began, until, _ in claims:
            runs.append((max(0.0, began - end), max(until, end) - max(began, end)))
            end = max(end, until)
        midnight = datetime.datetime.combine(datetime.date.fromtimestamp(first), datetime.time()).timestamp()
        result.append(Day(first - midnight, end - first, False, runs))
    return result


class Pool:
    """GPUs and who waits for one, in order. `at` runs something at a time."""

    def __init__(self, gpus):
        self.free, self.waiting = gpus, deque()
        self.agenda, self.order, self.now = [], itertools.count(), 0.0

    def at(self, when, what):
        heapq.heappush(self.agenda, (when, next(self.order), what))

    def ask(self, granted):
        if self.free:
            self.free -= 1
            granted()
        else:
            self.waiting.append(granted)

    def give_back(self):
        if self.waiting:
            self.waiting.popleft()()
        else:
            self.free += 1

    def run(self):
        while self.agenda:
            self.now, _, what = heapq.heappop(self.agenda)
            what()


class Person:
    """Lives a day under a policy and notes how long each run waited for its GPU."""

    def __init__(self, pool, day, policy, options, waits):
        self.pool, self.day, self.policy, self.options, self.waits = pool, day, policy, options, waits
        self.holds = self.left = False
        self.used = 0  # how often; what was detached once has a state to bring back
        self.next_run = 0
        pool.at(day.comes, self.come)

    def come(self):
        if self.policy == "a GPU each":
            self.pool.ask(self.reserved)
            self.pool.at(self.day.comes + self.day.stays, self.leave)
            return
        if self.day.keeps:
            self.pool.at(self.day.comes + self.day.stays, self.leave)
        self.think()

    def reserved(self):
        wait = self.pool.now - self.day.comes
        self.waits.append(wait)
        if self.left:
            self.pool.give_back()
        else:
            self.holds = True

    def leave(self):
        self.left = True
        if self.holds:
            self.holds = False
            self.pool.give_back()

    def think(self):
        if self.next_run >= len(self.day.runs):
            return
        pause, _ = self.day.runs[self.next_run]
        begins = self.pool.now + pause
        if begins < self.day.comes + self.day.stays:
            self.pool.at(begins, self.want)

    def want(self):
        self.used += 1
        if self.holds:  # a notebook between two cells, its GPU still there
            self.waits.append(0.0)
            self.work()
            return
        asked = self.pool.now

        def granted():
            takes = HAND_OVER_S + (self.state_s() if self.used > 1 and self.day.keeps else 0.0)
            self.waits.append(self.pool.now - asked + takes)
            self.holds = True
            self.pool.at(self.pool.now + takes, self.work)

        self.pool.ask(granted)

    def state_s(self):
        return self.options.state_gb / self.options.state_gb_per_s

    def work(self):
        _, length = self.day.runs[self.next_run]
        self.next_run += 1
        self.pool.at(self.pool.now + length, self.done)

    def done(self):
        if not self.day.keeps or self.left:
            if self.holds:
                self.holds = False
                self.pool.give_back()
        elif self.policy == "claims + detach":
            use = self.used
            self.pool.at(self.pool.now + self.options.idle, lambda: self.detach(use))
        self.think()

    def detach(self, use):
        if self.holds and self.used == use:  # nothing since
            self.holds = False
            self.pool.at(self.pool.now + self.state_s(), self.pool.give_back)


def waits_of(days, gpus, policy, options):
    pool, waits = Pool(gpus), []
    for day in days:
        Person(pool, day, policy, options, waits)
    pool.run()
    return waits


def late(waits, share=0.95):
    return sorted(waits)[int(len(waits) * share)] if waits else 0.0


def people_served(gpus, policy, options, draw):
    """The largest number of people whose runs begin in time, on each of --days days."""

    def served(people):
        waits = []
        for day in range(options.days):
            waits += waits_of(draw(people, day), gpus, policy, options)
        return late(waits) <= options.wait

    low, high = 0, 2 * gpus
    while served(high):
        if high >= PEOPLE_PER_GPU_MAX * gpus:
            return high
        low, high = high, min(2 * high, PEOPLE_PER_GPU_MAX * gpus)
    while high - low > max(1, gpus // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if served(middle) else (low, middle)
    return low


def check(dice):
    """`people` who think and run for exponential times, with fewer GPUs: theory has the mean wait exactly (M/M/c//N)."""
    people, gpus, think, run = 12, 3, 300.0, 100.0
    weights = []
    for n in range(people + 1):
        ways = math.comb(people, n) * (run / think) ** n
        weights.append(ways if n <= gpus else ways * math.factorial(n) / math.factorial(gpus) / gpus ** (n - gpus))
    total = sum(weights)
    waiting = sum(max(0, n - gpus) * weight for n, weight in enumerate(weights)) / total
    started = sum(min(n, gpus) * weight for n, weight in enumerate(weights)) / total / run
    expected = waiting / started  # Little
    runs = 20_000
    days = [Day(0.0, float("inf"), False, [(dice.expovariate(1 / think), dice.expovariate(1 / run)) for _ in range(runs)])
            for _ in range(people)]
    waits = waits_of(days, gpus, "claims", argparse.Namespace(state_gb=0, state_gb_per_s=1, idle=0))
    measured = statistics.fmean(waits) - HAND_OVER_S
    print(f"mean wait of {people} people on {gpus} GPUs: {measured:.2f} s, theory {expected:.2f} s")
    return abs(measured / expected - 1) < 0.03


def assumptions(draw):
    days = draw(200, 0)
    runs = [length for day in days for _, length in day.runs]
    share = sum(runs) / sum(day.stays for day in days)
    print(f"{len(runs) / len(days):.1f} runs a day and person, {statistics.median(runs):.0f} s long in the median, "
          f"{statistics.fmean(runs):.0f} s in the mean; a run goes on for {100 * share:.0f} % of their time")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--busy", type=float, action="append", help="share of working time with a run (default 0.05, 0.1, 0.19)")
    parser.add_argument("--gpus", type=int, action="append", help="size of the pool (default 8, 64)")
    parser.add_argument("--notebooks", type=float, action="append", help="share of people whose program stays all day (default 0, 0.5)")
    parser.add_argument("--wait", type=float, default=30, help="seconds within which 95 %% of the runs must begin")
    parser.add_argument("--idle", type=float, default=60, help="seconds without work after which a GPU is detached")
    parser.add_argument("--state-gb", type=float, default=20, help="what is saved and brought back then")
    parser.add_argument("--state-gb-per-s", type=float, default=5, help="how quickly, each way")
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger")
    parser.add_argument("--trace")
    parser.add_argument("--write-trace")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        return 0 if check(random.Random(options.seed)) else 1
    known = None
    if options.ledger:
        known = days_of_ledger(options.ledger)
    elif options.trace:
        with open(options.trace) as file:
            known = [Day(**json.loads(line)) for line in file]
    if known is not None and not known:
        parser.error("there is no day in it")

    def source(busy, notebooks):
        def draw(people, day):
            dice = random.Random(f"{options.seed} {day}")
            if known:
                return dice.choices(known, k=people)
            return [made_day(dice, busy, notebooks) for _ in range(people)]
        return draw

    busy_shares, notebook_shares = options.busy or [0.05, 0.1, 0.19], options.notebooks or [0, 0.5]

    if options.write_trace:
        with open(options.write_trace, "w") as file:
            for day in source(busy_shares[-1], notebook_shares[-1])(1000, 0):
                file.write(day.text() + "\n")
        return 0
    print(f"Served: 95 % of the runs begin within {options.wait:g} s. Detach: {options.idle:g} s without work; "
          f"{options.state_gb:g} GB of state at {options.state_gb_per_s:g} GB/s each way. {options.days} days, seed {options.seed}.")
    print("The days are those of the file, drawn anew." if known else
          "The days are made. A notebook keeps its GPU all day, unless that is detached.")
    for busy, notebooks in [(None, None)] if known else itertools.product(busy_shares, notebook_shares):
        draw = source(busy, notebooks)
        print()
        assumptions(draw)
        if notebooks is not None:
            print(f"{100 * notebooks:g} % of the people have a notebook")
        print("| GPUs | " + " | ".join(f"people per GPU: {policy}" for policy in POLICIES) + " |\n|---|---|---|---|")
        for gpus in options.gpus or [8, 64]:
            row = [people_served(gpus, policy, options, draw) / gpus for policy in POLICIES]
            print(f"| {gpus} | " + " | ".join(f"{each:.1f}" for each in row) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
