"""Reads a file in the Trace Event Format and refuses what a viewer would show wrongly or not at all.

Fields and their types; times that never go back within a thread; B and E that nest, X that do not overlap; arrows (flows)
whose ends exist, are inside slices and go forward. Raises Broken.
"""
import dataclasses

REQUIRED = {"B": {"name": str}, "E": {}, "X": {"name": str, "dur": (int, float)}, "i": {"name": str, "s": str},
            "C": {"name": str, "args": dict}, "M": {"name": str, "args": dict}, "s": {"name": str, "id": int, "cat": str},
            "t": {"name": str, "id": int, "cat": str}, "f": {"name": str, "id": int, "cat": str, "bp": str}}
EVERYWHERE = {"pid": int, "tid": int, "ts": (int, float)}
NEXT = {"s": "t", "t": "f"}


class Broken(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Broken(what)


@dataclasses.dataclass(eq=False)
class Slice:
    name: str
    process: str
    track: tuple
    begin: float
    end: float = None
    args: dict = dataclasses.field(default_factory=dict)
    parent: "Slice" = None


@dataclasses.dataclass
class End:
    """One end of an arrow, and the slice that it is in."""
    ts: float
    slice: Slice


class Trace:
    # The clocks of both ends are compared by round trips on a busy machine.
    tolerance_us = 2000

    def __init__(self, document):
        need(isinstance(document, dict) and isinstance(document.get("traceEvents"), list), "no traceEvents")
        self.events = document["traceEvents"]
        for event in self.events:
            self.check_fields(event)
        self.names = {event["pid"]: event["args"]["name"] for event in self.events
                      if event["ph"] == "M" and event["name"] == "process_name"}
        self.all, self.open, self.arrows, self.counters, self.marks = [], [], {}, {}, []
        tracks = {}
        for event in self.events:
            if event["ph"] not in "MC":
                tracks.setdefault((event["pid"], event["tid"]), []).append(event)
            if event["ph"] == "C":
                self.counters.setdefault(event["name"], []).append(event["args"]["value"])
        for track, events in tracks.items():
            self.read_track(track, events)
        for values in self.counters.values():
            need(values == sorted(values), "a counter counts backwards")
        self.check_arrows()
        programs = [process for process, name in self.names.items() if name.endswith("(program)")]
        need(len(programs) == 1, f"{len(programs)} programs")
        self.program = programs[0]

    def check_fields(self, event):
        need(isinstance(event, dict) and event.get("ph") in REQUIRED, f"no such phase: {event}")
        for name, kind in {**(EVERYWHERE if event["ph"] != "M" else {"pid": int}), **REQUIRED[event["ph"]]}.items():
            need(isinstance(event.get(name), kind) and not isinstance(event[name], bool), f"{name} of {event}")
        need(event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0, f"a time of {event}")
        need(isinstance(event.get("args", {}), dict), f"args of {event}")

    def read_track(self, track, events):
        process = self.names.get(track[0])
        need(process, f"process {track[0]} has no name")
        before, stack, ends = 0, [], []
        for event in events:
            need(event["ts"] >= before, f"time goes back: {event}")
            before = event["ts"]
            phase = event["ph"]
            if phase in "BX":
                while phase == "X" and stack:
                    need(stack.pop().end <= event["ts"] + 0.0015, f"overlaps what was before it: {event}")
                one = Slice(event["name"], process, track, event["ts"], args=event.get("args", {}),
                            parent=stack[-1] if stack else None)
                if phase == "X":
                    one.end = one.begin + event["dur"]
                stack.append(one)
                self.all.append(one)
            elif phase == "E":
                need(stack and stack[-1].end is None, f"an end without a beginning: {event}")
                stack.pop().end = event["ts"]
            elif phase in "stf":
                need(stack and (stack[-1].end is None or event["ts"] <= stack[-1].end), f"an arrow outside of slices: {event}")
                arrow = self.arrows.setdefault(event["id"], {})
                need(phase not in arrow, f"a second arrow of that id: {event}")
                arrow[phase] = End(event["ts"], stack[-1])
            else:
                self.marks.append((process, event))
        self.open += [one for one in stack if one.end is None]

    def check_arrows(self):
        whole = "events dropped" not in self.counters  # else viewers leave out what is left of an arrow
        for number, arrow in self.arrows.items():
            need("s" in arrow or not whole, f"arrow {number} begins nowhere")
            for phase, after in NEXT.items():
                if after in arrow:
                    need(phase in arrow or not whole, f"arrow {number} has gaps")
                if after in arrow and phase in arrow:
                    need(arrow[phase].ts <= arrow[after].ts + self.tolerance_us, f"arrow {number} goes back in time")

    def slices(self, process):
        return sorted((one for one in self.all if process in one.process), key=lambda one: one.begin)

    def arrow_from(self, launch):
        return next(arrow for arrow in self.arrows.values() if arrow["s"].slice is launch)

    def batches(self, process, name):
        return {event["args"]["sequence"]: event["args"] for where, event in self.marks
                if process in where and event["name"] == name}
