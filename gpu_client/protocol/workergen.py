"""The part of callgen.py that writes the worker's side of cached, async and sync calls, generated_handlers.cpp: decode what
clientgen.py's stubs have sent, call the driver, encode."""
from calltable import HANDLES, parts, pointee


def get_value(structs, type_, value):
    """Lines that read a value of the record, with the driver's handles for our numbers."""
    return [f"{part} = in.named_or_null<Resolved::{HANDLES[t]}>().handle;" if t in HANDLES
            else f"{part} = in.get<std::remove_cvref_t<decltype({part})>>();" for t, part in parts(structs, type_, value)]


def answer_value(structs, type_, value):
    return [f"out.put(in.number_of({part}));" if t in HANDLES else f"out.put({part});" for t, part in parts(structs, type_, value)]


def handler(call, structs):
    body = [f"if (!driver().{call.symbol}) return CUDA_ERROR_NOT_SUPPORTED;"]
    arguments, counts, lists, checks, made = [], [], [], [], []
    for type_, name in call.parameters:
        said, inner = call.of(name), pointee(type_)
        if said.kind == "new":
            body.append(f"auto {name}_number = in.get<uint64_t>();")
            body.append(f"{inner} {name}{{}};")
            made.append(name)
            arguments.append(f"&{name}")
        elif said.kind == "out" and said.count:
            body.append(f"bool {name}_wanted = in.get<uint8_t>() != 0;")
            body.append(f"std::vector<{inner}> {name};")
            lists.append((inner, name))
            arguments.append(f"{name}_wanted ? {name}.data() : nullptr")
        elif said.kind == "out":
            body.append(f"{inner} {name}{{}};")
            arguments.append(f"&{name}")
        elif call.lists_counted_by(name):
            body.append(f"auto {name}_room = in.get<uint64_t>();")
            body.append(f"size_t {name} = 0;")
            counts.append(name)
            arguments.append(f"&{name}")
        elif said.kind == "in" and said.count:
            each = " ".join(get_value(structs, inner, f"{name}[i]"))
            body.append(f"std::vector<{inner}> {name}(in.count());")
            body.append(f"for (size_t i = 0; i < {name}.size(); ++i) {{ {each} }}")
            counted = f"{name}.size() != {said.count}"
            checks.append(f"({counted} && !{name}.empty())" if said.may_be_null else counted)
            arguments.append(f"{name}.empty() ? nullptr : {name}.data()")
        elif said.kind == "in":
            body.append(f"{inner} {name}{{}};")
            lines = " ".join(get_value(structs, inner, name))
            body.append(f"bool {name}_given = in.get<uint8_t>() != 0;" if said.may_be_null else "")
            body.append(f"if ({name}_given) {{ {lines} }}" if said.may_be_null else lines)
            arguments.append(f"{name}_given ? &{name} : nullptr" if said.may_be_null else f"&{name}")
        elif type_ in HANDLES:
            body.append(f"auto {name} = in.named<Resolved::{HANDLES[type_]}>();")
            arguments.append(f"{name}.handle")
        else:
            body.append(f"auto {name} = in.get<{type_}>();")
            arguments.append(name)
    body.append("if (auto status = in.status(); status != CUDA_SUCCESS) return status;")
    if checks:
        body.append(f"if ({' || '.join(checks)}) return CUDA_ERROR_INVALID_VALUE;")
    for n in made:
        body.append(f"if (auto room = in.room_for<decltype({n})>({n}_number); room != CUDA_SUCCESS) return room;")
    if counts:  # how many there are, first: nothing that the client says makes us allocate more
        without = [("nullptr" if a.endswith("nullptr") and a.split("_wanted")[0] in [n for _, n in lists] else a) for a in arguments]
        body.append(f"auto counted = driver().{call.symbol}({', '.join(without)});")
        body.append("if (counted != CUDA_SUCCESS) return counted;")
        for count in counts:
            wanted = " || ".join(f"{n}_wanted" for t, n in lists if call.of(n).count == count)
            body.append(f"if ({wanted}) {count} = std::min<size_t>({count}, {count}_room);")
            body.append(f"if ({count} > wire::list_items_max && ({wanted})) return CUDA_ERROR_NOT_SUPPORTED;")
        # Room even for none: to the driver an empty list is not the same as no list.
        body += [f"if ({n}_wanted) {n}.reserve({call.of(n).count} + 1), {n}.resize({call.of(n).count});" for _, n in lists]
    run = f"driver().{call.symbol}({', '.join(arguments)})"
    if destroyed := call.destroyed():
        body.append(f"return in.handles().end({destroyed[1]}, [&] {{ return {run}; }});")
    elif not call.travels_back() and not made:
        body.append(f"return {run};")
    elif counts:
        any_wanted = " || ".join(f"{n}_wanted" for _, n in lists)
        body.append(f"auto result = {any_wanted} ? {run} : CUDA_SUCCESS;")
    else:
        body.append(f"auto result = {run};")
    if made:
        body.append("if (result != CUDA_SUCCESS) return result;")
        body += [f"if (!in.enter({n}_number, {n})) return CUDA_ERROR_INVALID_VALUE;" for n in made]
    body += [f"out.put(uint64_t{{{count}}});" for count in sorted(counts)]
    for type_, name in call.travels_back():
        if call.of(name).count:
            each = " ".join(answer_value(structs, pointee(type_), f"{name}[i]"))
            body.append(f"for (size_t i = 0; i < std::min({name}.size(), {call.of(name).count}); ++i) {{ {each} }}")
        else:
            body += answer_value(structs, pointee(type_), name)
    if call.travels_back() or made:
        body.append("return result;")
    lines = "\n".join("    " + line for line in body if line)
    return f"""static CUresult handle_{call.symbol}([[maybe_unused]] Decoder& in, [[maybe_unused]] wire::Writer& out) {{
{lines}
}}
"""


def write_handlers(calls, structs, note):
    handlers = "\n".join(handler(c, structs) for c in calls if c.generated)
    rows = "\n".join(f"    table[0x{c.id:04x}] = handle_{c.symbol};" for c in calls if c.generated)
    return f"""{note}#include <algorithm>
#include <vector>

#include "driver_table.hpp"
#include "gpu_server/worker/decoder.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {{

{handlers}
void fill_generated_handlers(GeneratedHandler* table) {{
{rows}
}}

}}  // namespace tnr::worker
"""
