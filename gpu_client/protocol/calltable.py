"""The table of calls, cuda.calls, together with what cuda.h says of each: read for callgen.py."""
import re
import sys

WAYS = ("local", "cached", "async", "sync", "custom", "unsupported")
# Handles of these types travel, as our numbers for them: what they are on the worker's side (handles.hpp).
HANDLES = {"CUstream": "Stream", "CUevent": "Event", "CUcontext": "Context", "CUfunction": "Function", "CUkernel": "Kernel",
           "CUlibrary": "Library", "CUgraph": "Graph", "CUgraphNode": "GraphNode", "CUgraphExec": "GraphExec",
           "CUuserObject": "UserObject", "CUarray": "Array", "CUmipmappedArray": "MipmappedArray",
           "CUtexref": "TextureReference", "CUsurfref": "SurfaceReference"}
# Those that a call of the table may make, destroy or answer with: the client mints their numbers with mint() and finds a
# number's handle with handle_of_number() (graph_objects.hpp), the worker enters, ends and numbers them (Handles).
MADE = ("CUgraph", "CUgraphNode", "CUgraphExec")
FOUND = MADE + ("CUevent",)
NOTES = ("no_context", "any_context", "destroys", "takes_memory", "sets_attribute", "answers_failure", "checked", "noted", "plain", "acts")


class Said:
    """What the table says of one parameter: KIND, KIND(COUNT), and what may follow behind a bar."""

    def __init__(self, text):
        head, *self.marks = text.split("|")
        match = re.match(r"(in|out)\((\w+)\)$", head)
        self.kind, self.count = match.groups() if match else (head, None)
        self.may_be_null = "null" in self.marks
        self.may_be_pinned = "pinned" in self.marks


class Call:
    """One line of the table with its signature from the header."""

    def __init__(self, line, number):
        fields = line.split(None, 3)
        if len(fields) < 3:
            fail(number, "expected: id, how, symbol")
        self.id, self.how, self.symbol = int(fields[0], 16), fields[1], fields[2]
        self.base, self.abi = split_symbol(self.symbol)
        said = fields[3].split() if len(fields) > 3 else []
        self.says = dict(p.split(":", 1) for p in said if ":" in p)
        self.said = {name: Said(text) for name, text in self.says.items()}
        self.notes = [word for word in said if ":" not in word]
        for note in self.notes:
            if note not in NOTES:
                fail(number, f"'{note}' is none of {', '.join(NOTES)}")
        if self.how not in WAYS:
            fail(number, f"'{self.how}' is none of {', '.join(WAYS)}")
        if self.id >= 0xF000:
            fail(number, "ids from 0xf000 belong to the session (ops.hpp)")

    @property
    def generated(self):
        return self.how in ("cached", "async", "sync")

    @property
    def acts(self):
        """It does something, so functions that streams call may not call it."""
        return self.how in ("async", "sync", "custom") or "acts" in self.notes

    def has_stream(self):
        return any(t == "CUstream" for t, _ in self.parameters)

    def of(self, name):
        return self.said.get(name, Said(""))

    def travels_back(self):
        return [p for p in self.parameters if self.of(p[1]).kind == "out"]

    def lists_counted_by(self, name):
        """The parameters that are lists of *name items."""
        return [(t, n) for t, n in self.parameters if self.of(n).kind == "out" and self.of(n).count == name]

    def destroyed(self):
        """The parameter that a call with the note `destroys` gives up: its first handle."""
        return next(((t, n) for t, n in self.parameters if t in HANDLES), None) if "destroys" in self.notes else None

    def signature(self):
        return ", ".join(declare(t, n) for t, n in self.parameters) or "void"


def split_symbol(symbol):
    """cuMemAlloc_v2: the second ABI of cuMemAlloc."""
    match = re.match(r"(.*?)(?:_v(\d+))?$", symbol)
    return match.group(1), int(match.group(2) or 1)


def fail(number, why):
    sys.exit(f"cuda.calls:{number}: {why}")


def declare(type_, name):
    if "(*)" in type_:  # a pointer to a function
        return type_.replace("(*)", f"(*{name})")
    array = re.match(r"(.*)(\[\d*\])$", type_)
    return f"{array.group(1)} {name}{array.group(2)}" if array else f"{type_} {name}"


def split_parameters(text):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "(" or -(c in ")")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    result = []
    for part in (" ".join(p.split()) for p in parts):
        if part in ("", "void"):
            continue
        match = re.match(r"(.*[\s*])(\w+)(\[\d*\])?$", part)
        result.append(((match.group(1).strip() + (match.group(3) or "")), match.group(2)))
    return result


def read_signatures(path):
    text = path.read_text()
    found = re.findall(r"\bCUresult\s+(cu\w+)\s*\(([^;]*?)\)\s*;", text, re.S)
    return {name: split_parameters(parameters) for name, parameters in found}


def read_opaque(path):
    """The handle types: pointers to what only a driver knows."""
    return set(re.findall(r"\btypedef\s+struct\s+\w+\s*\*\s*(CU\w+)\s*;", path.read_text()))


def split_fields(body):
    parts = [re.match(r"(.*[\s*])(\w+)((?:\[\w+\])*)$", " ".join(part.split())) for part in body.split(";")]
    return [(match.group(1).strip() + match.group(3), match.group(2)) for match in parts if match]


class Structs:
    """The header's structs: their fields, and what of them can travel."""

    def __init__(self, path):
        text = path.read_text()
        bodies = re.findall(r"\btypedef\s+struct\s+\w*\s*\{([^{}]*)\}\s*(\w+)\s*;", text)
        self.fields = {name: split_fields(body) for body, name in bodies}
        self.aliases = {name: of for of, name in re.findall(r"\btypedef\s+(\w+)\s+(\w+)\s*;", text)}
        self.functions = set(re.findall(r"\btypedef\s[^;{}]*?\(\s*(?:\w+\s*)?\*\s*(\w+)\s*\)\s*\(", text))
        nested = re.findall(r"\btypedef\s+struct\s+(\w+)_st\s*\{[^{}]*\{", text)
        self.nested = set(nested)  # unions inside: which of their parts is meant only the call knows

    def resolve(self, type_):
        while type_ in self.aliases and type_ not in self.fields:
            type_ = self.aliases[type_]
        return type_

    def fields_of(self, type_):
        """None for what is no struct, or holds no handle: it travels as it lies in memory."""
        fields = self.fields.get(self.resolve(type_))
        return fields if fields and any(t in HANDLES or self.fields_of(t) for t, _ in fields) else None

    def obstacle(self, type_, opaque):
        """What keeps a value of this type from travelling, or None."""
        type_ = self.resolve(type_)
        if type_ in self.nested:
            return f"{type_} holds a union"
        if type_ in opaque and type_ not in HANDLES:
            return f"no handles of type {type_} travel"
        if "*" in type_ or type_ in self.functions:
            return "a pointer does not travel"
        return next(filter(None, (self.obstacle(t, opaque) for t, _ in self.fields.get(type_, []))), None)


def read_versions(path):
    """Per name the versions that brought its ABIs, and those of its variants: cudaTypedefs.h has a PFN type for each."""
    since, variants = {}, {}
    for name, version, variant in re.findall(r"\*\s*PFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?\)", path.read_text()):
        if variant:
            variants.setdefault(name, set()).add((int(version), variant))
        else:
            since.setdefault(name, set()).add(int(version))
    return since, variants


def add_versions(calls, since, variants):
    """ABIs in their order are versions in theirs; a name's variants belong to its newest ABIs."""
    by_name = {}
    for call in calls:
        by_name.setdefault(call.base, []).append(call)
    for name, abis in by_name.items():
        abis.sort(key=lambda call: call.abi)
        versions, theirs = sorted(since.get(name, [])), sorted(variants.get(name, []))
        if len(versions) != len(abis) or len(theirs) > len(abis):
            sys.exit(f"cuda.calls has {len(abis)} ABIs of {name}, cudaTypedefs.h {len(versions)} and {len(theirs)} variants")
        for call, version in zip(abis, versions):
            call.since, call.variants = version, []
        for call, (version, variant) in zip(abis[len(abis) - len(theirs):], theirs):
            call.variants = [(variant, version)]


def read_table(path, signatures, opaque, structs, since, variants):
    calls, ids, symbols = [], set(), set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        call = Call(line, number)
        if call.id in ids or call.symbol in symbols:
            fail(number, "id or symbol stands here twice")
        if call.symbol not in signatures:
            fail(number, f"{call.symbol} is not declared in cuda.h")
        call.parameters = signatures[call.symbol]
        unknown = set(call.says) - {n for _, n in call.parameters}
        if unknown:
            fail(number, f"{call.symbol} has no parameter {', '.join(unknown)}")
        check_parameters(call, number, opaque, structs)
        ids.add(call.id)
        symbols.add(call.symbol)
        calls.append(call)
    add_versions(calls, since, variants)
    symbols |= {f"{c.symbol}_{v}" for c in calls for v, _ in c.variants}
    missing = set(signatures) - symbols
    if missing:
        sys.exit(f"cuda.calls lacks {', '.join(sorted(missing))}")
    return calls


def check_parameters(call, number, opaque, structs):
    if not call.generated:
        return
    names = {n: t for t, n in call.parameters}
    for type_, name in call.parameters:
        said = call.of(name)
        if "*" in type_ and said.kind not in ("in", "out", "new") and not call.lists_counted_by(name):
            fail(number, f"pointer {name} of {call.symbol} needs :in, :out or :new (or make the call custom)")
        if why := structs.obstacle(pointee(type_), opaque):
            fail(number, f"{name} of {call.symbol}: {why} (or make the call custom)")
        if said.kind == "new" and pointee(type_) not in MADE or said.kind == "out" and pointee(type_) in set(HANDLES) - set(FOUND):
            fail(number, f"{name} of {call.symbol}: calls of the table cannot make or find a {pointee(type_)}")
        if said.count and ("*" in names.get(said.count, "*")) != (said.kind == "out" and said.count in names):
            fail(number, f"{name} of {call.symbol}: '{said.count}' cannot count it")
        if said.kind == "out" and call.how == "async":
            fail(number, f"{name} of {call.symbol} travels back, so the call cannot be async")
    if "destroys" in call.notes and (call.destroyed() or ("",))[0] not in MADE:
        fail(number, f"calls of the table cannot destroy what {call.symbol} destroys")


def parts(structs, type_, value):
    """What a value travels as, with the types: itself, or each field of a struct that has handles somewhere inside."""
    fields = [] if type_ in HANDLES else structs.fields_of(type_)
    return [(type_, value)] if not fields else [part for t, n in fields for part in parts(structs, t, f"{value}.{n}")]


def pointee(type_):
    return re.sub(r"\s*\*$", "", type_).replace("const ", "")
