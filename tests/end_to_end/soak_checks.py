"""What must be true of a soak, from what it recorded (pool_soak.py): pure functions, each of which returns sentences about what
is wrong, with the time and the place. Times are seconds of the same clock as the nodes' histories (since boot).
"""
import dataclasses
import re

LEASE_S = 6  # after a node's death its claims may last that long
LOST_S = 3   # of a claim in the ledger, where its node is killed
WRITTEN_S = 3  # between a claim's line in the ledger and its entry in the history
CLOCK_S = 0.5  # between what a program says when it has its GPU and what the ledger does


@dataclasses.dataclass
class Program:
    machine: str
    expected: str       # its result
    begun: float
    ended: float = 0.0
    code: int | None = None
    out: str = ""
    errors: str = ""
    killed: bool = False  # by us

    def told(self, what):
        """When, by its own words; None if it did not come so far."""
        found = re.search(rf"^{what} (\S+)$", self.out, re.M)
        return float(found[1]) if found else None

    def since(self):
        return self.told("computes")

    def results(self):
        return re.findall(r"^result (.*)$", self.out, re.M)


@dataclasses.dataclass
class Trouble:
    kind: str   # "kill", "restart": a node is away; "cut": connections to it end
    place: str  # the node
    begun: float
    ended: float


def text(time, place, what):
    return f"{time:.1f} s, {place}: {what}"


def excused(program, troubles, nodes_of):
    """An error may be the end of a node: of the program's own, or of any as long as it has none. A cut connection is no excuse
    for a program that has its GPU; one that asks for one may be told that the pool does not answer."""
    own = nodes_of.get(program.machine, ()) if program.since() else ()
    for trouble in troubles:
        during = trouble.begun <= program.ended and program.begun <= trouble.ended + LEASE_S
        if during and trouble.kind in ("kill", "restart") and (not own or trouble.place in own):
            return True
        if during and trouble.kind == "cut" and not program.since() and "no answer" in program.errors:
            return True
    return False


def of_programs(programs, troubles, nodes_of):
    """Each ended once with the right numbers, or was killed by us, or lost its node. `nodes_of`: machine → those it was on."""
    wrong = []
    for program in programs:
        where, results = f"program of {program.machine}", program.results()
        if program.code is None:
            wrong.append(text(program.begun, where, "has not ended"))
        elif program.code == 0 and results != [program.expected]:
            wrong.append(text(program.ended, where, f"said {results} where {program.expected} is right"))
        elif program.code != 0 and results and not program.killed:
            wrong.append(text(program.ended, where, f"ended with {program.code} after its result: {program.errors}"))
        elif program.code != 0 and not program.killed and not excused(program, troubles, nodes_of):
            wrong.append(text(program.ended, where, f"ended with {program.code} while all was well: {program.errors}"))
    return wrong


def of_ledger(rows, events, deaths):
    """`rows`: node → its ledger's claims. Each claim of the history is there once and has ended, and no others are; no GPU is in
    two at once."""
    wrong = []
    for node, claims in rows.items():
        ids = {row["id"]: row for row in claims}
        begun = {event["claim"]: event for event in events if event["node"] == node and event["event"] == "has"}
        over = {event["claim"] for event in events if event["node"] == node and event["event"] == "has not"}
        for claim, event in begun.items():
            at = event["t_ms"] / 1000
            if claim not in ids:
                wrong.append(text(at, node, f"claim {claim} is not in the ledger"))
            elif sorted(ids[claim]["devices"]) != sorted(event["gpus"]):
                wrong.append(text(at, node, f"claim {claim} has other GPUs in the ledger: {ids[claim]}"))
            if claim not in over and not any(death >= at for death in deaths.get(node, [])):
                wrong.append(text(at, node, f"claim {claim} never ended"))
        wrong += [f"{node}: claim {row['id']} is still open in the ledger" for row in claims if not row["ended"]]
        for row in claims:
            killed = any(row["began_s"] - CLOCK_S <= death <= row["began_s"] + WRITTEN_S for death in deaths.get(node, []))
            if row["id"] not in begun and not killed:
                wrong.append(text(row["began_s"], node, f"claim {row['id']} is in the ledger, and nobody had it: {row}"))
        for gpu in {gpu for row in claims for gpu in row["devices"]}:
            held = sorted((row for row in claims if gpu in row["devices"]), key=lambda row: row["began_s"])
            for first, second in zip(held, held[1:]):
                if second["began_s"] < first["until_s"] - 0.1:
                    wrong.append(f"{node}: claims {first['id']} and {second['id']} are billed for {gpu} at once")
    return wrong


def nodes_of(rows):
    """Machine → the nodes that it had GPUs of."""
    found = {}
    for node, claims in rows.items():
        for row in claims:
            found.setdefault(row["machine"], set()).add(node)
    return found


def of_use(programs, rows):
    """What a program used is in the ledger: its machine's, for all of its time."""
    wrong = []
    claims = [row for claims in rows.values() for row in claims]
    for program in programs:
        since, until = program.since(), program.told("over")
        if since is None or until is None or program.code != 0:
            continue
        mine = [row for row in claims if row["machine"] == program.machine]
        if not any(row["began_s"] <= since + CLOCK_S and row["until_s"] >= until - LOST_S for row in mine):
            wrong.append(text(since, f"program of {program.machine}", f"its use is not in the ledger: {mine}"))
    return wrong


def of_gpus(machines, rows, count):
    """Each of these machines had a GPU at the same moment, so together they had all that there are."""
    had = {gpu for claims in rows.values() for row in claims if row["machine"] in machines for gpu in row["devices"]}
    return [] if len(had) == count else [f"{count} programs at once had {len(had)} GPUs: {sorted(had)}"]


def of_growth(before, after, bytes_max, descriptors_max):
    """What a node held at two quiet moments: {"bytes", "descriptors", "processes", "files"}; no "bytes" of one that was
    another process in between."""
    wrong = []
    if "bytes" in before and after["bytes"] - before["bytes"] > bytes_max:
        wrong.append(f"memory grew from {before['bytes'] >> 10} KiB to {after['bytes'] >> 10} KiB")
    if after["descriptors"] - before["descriptors"] > descriptors_max:
        wrong.append(f"open files grew from {before['descriptors']} to {after['descriptors']}")
    if after["processes"] != before["processes"]:
        wrong.append(f"processes were {before['processes']} and are {after['processes']}")
    if more := sorted(set(after["files"]) - set(before["files"])):
        wrong.append(f"files are left: {more}")
    return wrong
