"""The part of callgen.py that writes what every exported function passes through, so that each call can be traced and profiled:

    implementations.hpp   redeclares cuda.h's functions: the library's own code defines and calls them as tnr_cuX
    watched_calls.cpp     the exported functions cuX: straight on to tnr_cuX, or watched on the way (watched_calls.hpp). To
                          functions that streams call, those that do something are refused (program_functions.hpp)

Hand-written, generated and unsupported calls are all alike here, and a call within the library is not watched: what is traced is
what the program called.
"""
import re

# Integers that stand for a handle or an address: cuda.h gives them no type of their own.
ADDRESSES = {"CUdeviceptr", "CUdeviceptr_v1", "CUmemGenericAllocationHandle", "CUtexObject", "CUsurfObject",
             "CUgraphConditionalHandle"}
# A pointer is followed after a successful call, unless it is a list, which may have no entries: then it is called by a plural, and
# the call has a count.
COUNT = re.compile(r"^(num|nb|count)|Count$", re.I)
LIST = re.compile(r"(s|s_out|Array|List|extra)$|^(from|to|data)$")
NO_LISTS = {"captureStatus_out", "maxWidthInElements"}
TEXTS = {"name", "pciBusId"}  # written by the call, and ended with a 0
BUFFERS = {"void", "char", "unsigned char"}  # otherwise of a length that only the call knows


def is_out(parameters, type_, name):
    base, depth = re.sub(r"const|\*|\s", "", type_), type_.count("*")
    if depth == 0 or depth == 1 and (type_.startswith("const ") or base in BUFFERS):
        return False
    counted = any(COUNT.search(other) for _, other in parameters if other != name)
    return not (LIST.search(name) and name not in NO_LISTS and (counted or depth == 2))


def argument(parameters, type_, name):
    kind = "out" if is_out(parameters, type_, name) else "of"
    if type_ == "char *" and name in TEXTS:
        kind = "out_text"
    if type_.replace("*", "").strip() in ADDRESSES and type_.count("*") <= (kind == "out"):
        kind = {"out": "out_address", "of": "address"}[kind]
    return f'Argument::{kind}("{name}", {name})'


def declare_all(parameters, declare):
    return ", ".join(declare(t, n) for t, n in parameters)


def symbols_of(calls):
    for call in calls:
        for symbol in [call.symbol] + [f"{call.symbol}_{variant}" for variant, _ in call.variants]:
            yield symbol, call


def write_implementations(calls, note):
    rows = "\n".join(f'decltype({s}) {s} __asm__("tnr_{s}");' for s, _ in symbols_of(calls))
    return f"""{note}// To be included behind cuda.h, before any of its functions is mentioned: see watchgen.py.
#pragma once

extern "C" {{
{rows}
}}
"""


def watched_call(symbol, call, declare):
    signature = declare_all(call.parameters, declare)
    names = ", ".join(n for _, n in call.parameters)
    arguments = ", ".join(argument(call.parameters, t, n) for t, n in call.parameters)
    work = f"tnr_{symbol}({names})"
    if call.acts:
        work = f"is_program_function_calling() ? CUDA_ERROR_NOT_PERMITTED : {work}"
    return f"""extern "C" CUresult tnr_{symbol}({signature});
[[gnu::cold, gnu::noinline]] static CUresult watched_{symbol}({signature}) {{
    WatchedCall watched("{symbol}");
    return watched.ended({work}, {{{arguments}}});
}}
extern "C" CUresult CUDAAPI {symbol}({signature}) {{
    return calls_are_watched() ? watched_{symbol}({names}) : {work};
}}
"""


def write_watched_calls(calls, declare, note):
    body = "\n".join(watched_call(symbol, call, declare) for symbol, call in symbols_of(calls))
    return f"""{note}#define TNR_EXPORTED_CALLS
#include "gpu_client/cuda/program_functions.hpp"
#include "gpu_client/cuda/watched_calls.hpp"

using namespace tnr::cuda;

{body}"""
