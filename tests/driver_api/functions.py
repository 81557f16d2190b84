#!/usr/bin/env python3
"""Writes functions.inc, the table of every function that the suite calls: functions.py OUTPUT SOURCE..."""
import pathlib
import re
import sys

output, sources = pathlib.Path(sys.argv[1]), sys.argv[2:]
called = sorted({name for source in sources for name in re.findall(r"\bcu\.(cu[A-Z]\w+)", pathlib.Path(source).read_text())})
text = "".join(f"TNR_FUNCTION({name})\n" for name in called)
if not output.exists() or output.read_text() != text:  # an unchanged file must not rebuild what includes it
    output.write_text(text)
