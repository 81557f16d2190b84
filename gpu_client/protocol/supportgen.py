"""The part of callgen.py that writes support.md: what runs, for people and for `tnr support`."""
import re

# What people call a group of calls, and how to know its members. The first that fits counts.
AREAS = (
    ("graphs and stream capture", r"cuGraph(?!ics)|Capture|UserObject|GraphMem"),
    ("textures, surfaces and arrays", r"Tex|Surf|Array|(DtoA|AtoD|HtoA|AtoH|AtoA)"),
    ("managed memory", r"AllocManaged|Advise|Prefetch|Discard|MemRangeGet|AttachMem"),
    ("memory and events shared between processes", r"Ipc|Shareable|(Import|Export)Pointer|HandleForAddressRange"),
    ("graphics and external memory", r"cuGraphics|cuGL|EGL|VDPAU|External"),
    ("multicast memory", r"Multicast"),
    ("waiting for memory in a stream", r"cuStream(Write|Wait)Value|BatchMemOp"),
    ("batched copies and decompression", r"Batch"),
    ("tensor maps", r"TensorMap"),
    ("green contexts", r"GreenCtx|DevResource|DevSm|cuCtx(Record|Wait)Event"),
    ("checkpoints and core dumps", r"Checkpoint|Coredump|cuProfilerInitialize"),
)
HOW = {
    "local": "answered on the machine itself",
    "cached": "asked once, then answered on the machine itself",
    "async": "sent to the GPU, not waited for",
    "sync": "sent to the GPU and waited for",
    "custom": "sent to the GPU; waits only where CUDA makes the caller wait",
    "unsupported": "does not run yet: answers CUDA_ERROR_NOT_SUPPORTED",
}


def lacking_areas(calls):
    """Those of which the greater part does not run, for people. What the headers of today's CUDA name counts, not what they
    keep for programs of long ago."""
    newest = {}
    for call in calls:
        if call.base not in newest or newest[call.base].since < call.since:
            newest[call.base] = call
    lacking = []
    for area, _ in AREAS:
        members = [c for c in newest.values() if area_of(c) == area]
        if 2 * sum(c.how == "unsupported" for c in members) > len(members):
            lacking.append(area)
    runs = sum(c.how != "unsupported" for c in newest.values())
    return lacking, runs, len(newest)


def area_of(call):
    return next((area for area, pattern in AREAS if re.search(pattern, call.base)), None)


def write_support(calls):
    """`tnr support` prints this file, and finds calls in its last table: cli/commands/support.cpp."""
    lacking, runs, count = lacking_areas(calls)
    lines = ["# CUDA driver calls: what runs", "", f"{runs} of the {count} calls of CUDA's headers run.", "",
             "Not yet: " + ", ".join(lacking) + "." if lacking else "All areas are there.", "",
             "A call that does not run yet answers CUDA_ERROR_NOT_SUPPORTED (801), and the program is told once on its",
             "standard error. Programs built with an older CUDA use an older symbol of the same call.", "",
             "| how | what it means |", "|---|---|"]
    lines += [f"| {how} | {meaning} |" for how, meaning in HOW.items()]
    lines += ["", "| call | symbol | since CUDA | how |", "|---|---|---|---|"]
    lines += [f"| {c.base} | {c.symbol} | {c.since // 1000}.{c.since % 1000 // 10} | {c.how} |"
              for c in sorted(calls, key=lambda c: (c.base, c.since))]
    return "\n".join(lines) + "\n"
