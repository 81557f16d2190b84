"""Reads what every node of a pool believed, and when (`serve --history`), and says where two beliefs cannot both be right.

A node's lines: "begins" (a new process), "sees" (which nodes are there, and how long its own registration certainly lasts), "has" (a claim has GPUs, with
a fencing number) and "has not" (it has them no more: all its processes are dead).
"""
import collections
import json
import pathlib


def read(paths):
    events = []
    for path in paths:
        for line in pathlib.Path(path).read_text().splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                pass  # cut off where the node was killed
    return sorted(events, key=lambda event: event["t_ms"])


def ownerships(events, deaths):
    """Who had which GPU from when to when. `deaths`: node → times at which it was killed, with all its processes."""
    running, found = {}, []
    for event in events:
        key = (event["node"], event.get("claim"))
        if event["event"] == "has":
            running[key] = event
        elif event["event"] == "has not" and key in running:
            begun = running.pop(key)
            found += [(gpu, begun["t_ms"], event["t_ms"], begun) for gpu in begun["gpus"]]
    for begun in running.values():
        end = min((t for t in deaths.get(begun["node"], []) if t > begun["t_ms"]), default=float("inf"))
        found += [(gpu, begun["t_ms"], end, begun) for gpu in begun["gpus"]]
    return found


def complaints(events, deaths):
    wrong = []
    by_gpu = collections.defaultdict(list)
    for gpu, begin, end, event in ownerships(events, deaths):
        by_gpu[gpu].append((begin, end, event))
    for gpu, times in by_gpu.items():
        times.sort(key=lambda one: one[0])
        for (_, end, first), (begin, _, second) in zip(times, times[1:]):
            if begin < end:
                wrong.append(f"GPU {gpu} has two owners: {first} until {end}, and {second}")
            if second["fence"] <= first["fence"]:
                wrong.append(f"GPU {gpu}: fences do not grow: {first}, then {second}")
    # A node that believes in its lease is seen by everybody, as far as they see at all.
    believed = collections.defaultdict(float)  # (node, fence) → until
    for event in events:
        if event["event"] == "sees" and event["joined"]:
            key = (event["node"], event["fence"])
            believed[key] = max(believed[key], event["until_ms"])
        if event["event"] == "has" and event["t_ms"] > event["until_ms"]:
            wrong.append(f"a claim began after the lease: {event}")
    seen = collections.defaultdict(dict)
    for event in events:
        if event["event"] == "begins":
            seen[event["node"]] = {}  # a new process has seen nobody yet
        if event["event"] != "sees":
            continue
        before, now = seen[event["node"]], event["nodes"]
        for name, fence in before.items():
            gone = now.get(name) != fence
            key = (name, fence)
            died = any(t <= event["t_ms"] for t in deaths.get(name, []))
            if gone and not died and event["t_ms"] < believed.get(key, 0):
                wrong.append(f"{event['node']} took {name} ({fence}) for dead at {event['t_ms']}; "
                             f"it believed in its lease until {believed[key]}")
        seen[event["node"]] = now
    return wrong
