#!/usr/bin/env python3
"""Prints {"name", first, last}, lines: the versions in which cudaTypedefs.h has each function of the driver."""
import re
import sys

versions = {}
for name, version in re.findall(r"\bPFN_(cu[A-Z]\w*?)_v(\d+)\)", open(sys.argv[1]).read()):
    versions.setdefault(name, set()).add(int(version))
for name in sorted(versions):
    print(f'{{"{name}", {min(versions[name])}, {max(versions[name])}}},')
