#!/usr/bin/env python3
"""Writes both ends of the wire from cuda.calls.

    callgen.py --table cuda.calls --headers cuda.i --out DIR

cuda.i is cuda.h, cudaProfiler.h, their typedefs and graphics_calls.h after the preprocessor, with
__CUDA_API_VERSION_INTERNAL defined so that every version of every function is declared: types and versions come from there,
what they cannot say comes from the table. Output, all in DIR:

    cuda_calls.hpp          ids, names, how each call travels, its notes, the table's hash (both ends)
    client_stubs.cpp        cached, async and sync calls                                  (libcuda.so.1)
    per_thread_stubs.cpp    the _ptsz and _ptds variants, around the plain functions      (libcuda.so.1)
    unsupported_stubs.cpp   calls that only say CUDA_ERROR_NOT_SUPPORTED                  (libcuda.so.1)
    implementations.hpp, watched_calls.cpp
                            the exported functions, around those that do the work (libcuda.so.1): see watchgen.py
    entry_points.cpp        what cuGetProcAddress chooses from                            (libcuda.so.1)
    driver_table.hpp/.cpp   pointers to a driver's functions, loaded by name              (worker)
    generated_handlers.cpp  decode, call the driver, encode                               (worker)
    support.md              what runs and what does not, for people                      (tnr, machines)
"""
import argparse
import hashlib
import pathlib

from calltable import NOTES, Structs, declare, read_opaque, read_signatures, read_table, read_versions
from clientgen import write_client_stubs
from supportgen import write_support
from watchgen import write_implementations, write_watched_calls
from workergen import write_handlers

NOTE = "// Generated from cuda.calls by callgen.py. Do not edit: change the table and rebuild.\n"


# ---- both ends ----


def notes_of(call):
    return " | ".join(f"call_{note}" for note in call.notes) or "0"


def write_calls_header(calls, table_hash):
    rows = "".join(f"inline constexpr uint16_t op_{c.symbol} = 0x{c.id:04x};\n" for c in calls)
    names = "".join(
        f'    {{0x{c.id:04x}, CallWay::{c.how + ("_" if c.how in ("async",) else "")}, {notes_of(c)}, "{c.symbol}"}},\n'
        for c in sorted(calls, key=lambda c: c.id)
    )
    notes = "".join(f"    call_{note} = {1 << i},\n" for i, note in enumerate(NOTES))
    return f"""{NOTE}#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace tnr::wire {{

inline constexpr const char* calls_table_hash = "{table_hash}";

enum class CallWay : uint8_t {{ local, cached, async_, sync, custom, unsupported }};
enum CallNotes : uint16_t {{  // as cuda.calls explains them
{notes}}};
struct CallInfo {{
    uint16_t op;
    CallWay way;
    uint16_t notes;
    const char* name;
}};
inline constexpr CallInfo calls[] = {{  // by op
{names}}};
inline constexpr uint16_t op_max = 0x{max(c.id for c in calls):04x};

// Null for ops that are no calls.
inline const CallInfo* find_call(uint16_t op) {{
    auto* found = std::lower_bound(std::begin(calls), std::end(calls), op,
                                   [](const CallInfo& call, uint16_t wanted) {{ return call.op < wanted; }});
    return found != std::end(calls) && found->op == op ? found : nullptr;
}}
inline bool call_is(uint16_t op, CallNotes note) {{
    auto* call = find_call(op);
    return call && (call->notes & note);
}}

{rows}
}}  // namespace tnr::wire
"""


# ---- client ----


def write_per_thread_stubs(calls):
    stubs = []
    for call in calls:
        for variant, _ in call.variants:
            name = f"{call.symbol}_{variant}"
            if call.how == "unsupported":
                continue  # unsupported_stubs.cpp exports it
            arguments = ", ".join(n for _, n in call.parameters)
            stubs.append(f"""extern "C" CUresult CUDAAPI {name}({call.signature()}) {{
    PerThreadDefaultStream guard;
    return {call.symbol}({arguments});
}}
""")
    body = "\n".join(stubs)
    return f"""{NOTE}#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/per_thread.hpp"

using tnr::cuda::PerThreadDefaultStream;

{body}"""


def write_unsupported_stubs(calls):
    rows = []
    for call in calls:
        if call.how == "unsupported":  # a variant is the same call to whoever reads its name
            for symbol in [call.symbol] + [f"{call.symbol}_{v}" for v, _ in call.variants]:
                rows.append(f'extern "C" int tnr_{symbol}() {{ return unsupported("{call.symbol}"); }}')
    rows = "\n".join(rows)
    return f"""{NOTE}// No cuda.h here: arguments do not matter, so neither do signatures.
namespace tnr::cuda {{
int unsupported(const char* name);  // guarded.hpp
}}
using tnr::cuda::unsupported;

{rows}
"""


def write_entry_points(calls):
    declared, rows = [], []
    for call in calls:
        for symbol in [call.symbol] + [f"{call.symbol}_{v}" for v, _ in call.variants]:
            declared.append(f'extern "C" int {symbol}();')
        per_thread = f"reinterpret_cast<void*>(&{call.symbol}_{call.variants[0][0]})" if call.variants else "nullptr"
        since = call.variants[0][1] if call.variants else 0
        rows.append((call.base, call.since, f'    {{"{call.base}", {call.since}, reinterpret_cast<void*>(&{call.symbol}), {since}, {per_thread}}},'))
    rows = "\n".join(row for _, _, row in sorted(rows))
    declared = "\n".join(declared)
    return f"""{NOTE}// No cuda.h here: only addresses are taken.
#include "gpu_client/cuda/entry_points.hpp"

{declared}

namespace tnr::cuda {{

// Sorted by name, then by the version that introduced the ABI.
const EntryPoint entry_points[] = {{
{rows}
}};
const size_t entry_point_count = sizeof entry_points / sizeof entry_points[0];

}}  // namespace tnr::cuda
"""


# ---- worker ----


def write_driver_header(signatures):
    rows = "\n".join(f"    decltype(&::{name}) {name} = nullptr;" for name in signatures)
    return f"""{NOTE}#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL  // every version under its own ELF name
#endif
#include <cuda.h>
#include <cudaProfiler.h>

#include "gpu_client/protocol/graphics_calls.h"

namespace tnr {{

// A driver's functions; those it does not have are null. Filled once, then read by any thread.
struct DriverTable {{
{rows}
}};

// `find`: dlsym on the driver's handle.
void fill_driver_table(DriverTable& table, void* (*find)(void* library, const char* name), void* library);

}}  // namespace tnr
"""


def write_driver_source(signatures):
    rows = "\n".join(f'    table.{n} = reinterpret_cast<decltype(table.{n})>(find(library, "{n}"));' for n in signatures)
    return f"""{NOTE}#include "driver_table.hpp"

namespace tnr {{

void fill_driver_table(DriverTable& table, void* (*find)(void* library, const char* name), void* library) {{
{rows}
}}

}}  // namespace tnr
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=pathlib.Path, required=True)
    parser.add_argument("--headers", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()

    signatures = read_signatures(options.headers)
    structs = Structs(options.headers)
    calls = read_table(options.table, signatures, read_opaque(options.headers), structs, *read_versions(options.headers))
    meaning = "\n".join(f"{c.id:x} {c.how} {c.symbol} {c.notes} {sorted(c.says.items())}" for c in calls)
    table_hash = hashlib.sha256(meaning.encode()).hexdigest()[:16]
    files = {
        "cuda_calls.hpp": write_calls_header(calls, table_hash),
        "client_stubs.cpp": write_client_stubs(calls, structs, NOTE),
        "per_thread_stubs.cpp": write_per_thread_stubs(calls),
        "unsupported_stubs.cpp": write_unsupported_stubs(calls),
        "implementations.hpp": write_implementations(calls, NOTE),
        "watched_calls.cpp": write_watched_calls(calls, declare, NOTE),
        "entry_points.cpp": write_entry_points(calls),
        "driver_table.hpp": write_driver_header(signatures),
        "driver_table.cpp": write_driver_source(signatures),
        "generated_handlers.cpp": write_handlers(calls, structs, NOTE),
        "support.md": write_support(calls),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = options.out / name
        if not path.exists() or path.read_text() != text:  # an unchanged file must not rebuild what includes it
            path.write_text(text)


if __name__ == "__main__":
    main()
