"""The part of callgen.py that writes the client's side of cached, async and sync calls: client_stubs.cpp. What is sent here, the
handlers that workergen.py writes read in the same order."""
import re

from calltable import HANDLES, parts, pointee


def split_length(text):
    """BYTES or BYTES,UNIT."""
    match = re.match(r"(.*),(\d+)$", text)
    return match.groups() if match else (text, None)


def takes_detours(call):
    """A fill's memory may be another device's than the stream's. Copies of peers name the context of each side."""
    return len(or_pinned(call)) == 1


def or_pinned(call):
    """The addresses that may be pinned memory of the program."""
    return [n for _, n in call.parameters if call.of(n).may_be_pinned and call.of(n).kind not in ("in", "out")]


def with_addresses(call):
    """The structs in which such an address goes as the GPU's."""
    return [n for _, n in call.parameters if call.of(n).may_be_pinned and call.of(n).kind == "in"]


def null_checks(call):
    for type_, name in call.parameters:
        said = call.of(name)
        if lists := call.lists_counted_by(name):
            yield f"if (!{name}) return CUDA_ERROR_INVALID_VALUE;"
        elif said.kind in ("in", "out", "new") and not said.count and not said.may_be_null:
            yield f"if (!{name}) return CUDA_ERROR_INVALID_VALUE;"
        elif said.kind == "in" and said.count:
            if not said.may_be_null:
                yield f"if (!{name} && {said.count} != 0) return CUDA_ERROR_INVALID_VALUE;"
            yield f"if ({said.count} > wire::list_items_max) return CUDA_ERROR_INVALID_VALUE;"  # before it is read


def put_value(structs, type_, value):
    """Lines that send a value as it is in the program: what is a handle goes as our number for it."""
    return [f"call.handle_or_null({part});" if t in HANDLES else f"call.put({part});" for t, part in parts(structs, type_, value)]


def take_value(structs, type_, value):
    """Lines that read a value of the answer."""
    return [f"call.out_handle(&{part});" if t in HANDLES else f"call.out(&{part});" for t, part in parts(structs, type_, value)]


def send_parameter(call, structs, type_, name):
    said = call.of(name)
    if said.kind == "new":
        return [f"call.put({name}_made.number());"]
    if said.kind == "out":
        return [f"call.put_flag({name} != nullptr);"] if said.count else []
    if lists := call.lists_counted_by(name):
        wanted = " || ".join(n for _, n in lists)
        return [f"call.put(uint64_t{{{wanted} ? *{name} : 0}});"]
    if said.kind == "in" and said.count:
        each = " ".join(put_value(structs, pointee(type_), f"{name}[i]"))
        return [f"call.put_count({name} ? {said.count} : 0);",
                f"if ({name}) for (size_t i = 0; i < {said.count}; ++i) {{ {each} }}"]
    if said.kind == "in" and said.may_be_null:
        each = " ".join(put_value(structs, pointee(type_), f"(*{name})"))
        return [f"call.put_flag({name} != nullptr);", f"if ({name}) {{ {each} }}"]
    if said.kind == "in":
        return put_value(structs, pointee(type_), f"{name}_there" if said.may_be_pinned else f"(*{name})")
    if type_ in HANDLES:
        return [f"call.handle({name});"]
    if type_ == "CUdevice":
        return [f"call.ordinal({name});"]
    if said.kind.startswith("device("):
        length, unit = split_length(said.kind[7:-1])
        checked = "any_device" if takes_detours(call) and call.has_stream() else "device"
        return [f"call.{checked}({name}, {length});"] + ([f"call.aligned({name}, {unit});"] if unit else [])
    return [f"call.put({name});"]


def take_parameter(call, structs, type_, name):
    said = call.of(name)
    if not said.count and said.may_be_null:  # it travels all the same
        each = " ".join(take_value(structs, pointee(type_), "value"))
        return [f"{{ {pointee(type_)} value{{}}; {each} if ({name}) *{name} = value; }}"]
    if not said.count:
        back = [f"take_from_gpu(*{name});"] if said.may_be_pinned else []
        return take_value(structs, pointee(type_), f"(*{name})") + back
    each = " ".join(take_value(structs, pointee(type_), f"{name}[i]"))
    return [f"if ({name}) for (size_t i = 0; i < {said.count}_room; ++i) {{",
            f"    {name}[i] = {{}};", f"    if (i < *{said.count}) {{ {each} }}", "}"]


def receive(call, structs):
    """Lines that read the answer: the counts of lists first."""
    back = call.travels_back()
    counts = sorted({call.of(n).count for _, n in back if call.of(n).count})
    lines = []
    for count in counts:
        lines += [f"auto {count}_room = *{count};", f"*{count} = static_cast<size_t>(call.out_count());"]
    for type_, name in back:
        lines += take_parameter(call, structs, type_, name)
    return lines


def client_stub(call, structs):
    body = list(null_checks(call))
    arguments = ", ".join(n for _, n in call.parameters)
    if "checked" in call.notes:
        body.append(f"if (auto refused = check_{call.symbol}({arguments}); refused != CUDA_SUCCESS) return refused;")
    if or_pinned(call):
        asked = " || ".join(f"is_pinned({n})" for n in or_pinned(call))
        body.append(f"if ({asked}) return pinned_{call.symbol}({arguments});")
        if takes_detours(call) and not call.has_stream():  # the null stream's order; the caller does not wait for it in either form
            elsewhere = " || ".join(f"is_elsewhere({n})" for n in or_pinned(call))
            body.append(f"if ({elsewhere}) return {call.base}Async({arguments}, nullptr);")
    for name in with_addresses(call):
        body += [f"auto {name}_there = *{name};",
                 f"if (auto refused = put_on_gpu({name}_there); refused != CUDA_SUCCESS) return refused;"]
    way = "wire::CallWay::" + {"async": "async_"}.get(call.how, call.how)
    if "plain" in call.notes:
        way = f"way_if(plain_{call.symbol}({arguments}))"
    body.append(f"TableCall call(wire::op_{call.symbol}, {way});")
    if "no_context" in call.notes:
        body.append("call.in_context(nullptr);")
    if "any_context" in call.notes:
        body.append("call.in_any_context();")
    if call.how == "async" and not call.has_stream() and any(call.of(n).kind.startswith("device(") for _, n in call.parameters):
        body.append("call.in_null_stream();")
    made = [(t, n) for t, n in call.parameters if call.of(n).kind == "new"]
    body += [f"Minted<{pointee(t)}> {n}_made;" for t, n in made]
    for type_, name in call.parameters:
        body += send_parameter(call, structs, type_, name)
    back = call.travels_back()
    body.append("auto result = call.send();")
    if back and "answers_failure" in call.notes:
        body.append("if (result != CUDA_SUCCESS && !call.has_answer()) return result;")
    elif back or made or "sets_attribute" in call.notes or (call.destroyed() and call.how == "sync"):
        body.append("if (result != CUDA_SUCCESS) return result;")  # of an async call the client knows no better than that it is gone
    body += [f"*{n} = {n}_made.keep(call);" for _, n in made]
    if destroyed := call.destroyed():
        body.append(f"forget({destroyed[1]});")
    if "sets_attribute" in call.notes:
        kernel = next(n for t, n in call.parameters if t in ("CUfunction", "CUkernel"))
        attribute, value = (n for t, n in call.parameters if n != kernel and t != "CUdevice")
        body.append(f"note_attribute_change({kernel}, {attribute}, {value});")
    if "noted" in call.notes:
        body.append(f"if (result == CUDA_SUCCESS) note_{call.symbol}({arguments});")
    body += receive(call, structs)
    if back:
        body.append("if (auto whole = call.finished(); whole != CUDA_SUCCESS) return whole;")
    body.append("return result;")
    lines = "\n".join("        " + line for line in body)
    return f"""extern "C" CUresult CUDAAPI {call.symbol}({call.signature()}) {{
    return guarded("{call.symbol}", [&]() -> CUresult {{
{lines}
    }});
}}
"""


def write_client_stubs(calls, structs, note):
    stubs = "\n".join(client_stub(c, structs) for c in calls if c.generated)
    pinned = "\n".join(f"CUresult pinned_{c.symbol}({c.signature()});" for c in calls if c.generated and or_pinned(c))
    pinned += "".join(f"\nCUresult check_{c.symbol}({c.signature()});" for c in calls if c.generated and "checked" in c.notes)
    pinned += "".join(f"\nbool plain_{c.symbol}({c.signature()});" for c in calls if c.generated and "plain" in c.notes)
    pinned += "".join(f"\nvoid note_{c.symbol}({c.signature()});" for c in calls if c.generated and "noted" in c.notes)
    return f"""{note}#include "cuda_calls.hpp"
#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/functions.hpp"
#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/graph_objects.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/table_call.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace tnr::cuda {{
{pinned}
}}  // namespace tnr::cuda

{stubs}"""
