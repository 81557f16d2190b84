#!/usr/bin/env python3
"""Lists what is linked into the programs, as CycloneDX: sbom.py --version V --date SECONDS --sources FOLDER > FILE

Where a library comes from a package of the distribution, its version is that package's; where it was built here, that of the
source package that was unpacked in the folder.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess

# Name, licence (SPDX), source package that was unpacked here or Debian package that has it. libssh2 is in both lists: it is built
# only where its source can be had.
BUILT_HERE = [
    ("curl", "curl", "curl"),
    ("libzmq", "MPL-2.0 OR LGPL-3.0-or-later", "zeromq3"),
    ("libsodium", "ISC", "libsodium"),
    ("libssh2", "BSD-3-Clause", "libssh2"),
]
FROM_PACKAGES = [
    ("openssl", "Apache-2.0", "libssl-dev"),
    ("libssh2", "BSD-3-Clause", "libssh2-1-dev"),
    ("nghttp2", "MIT", "libnghttp2-dev"),
    ("zlib", "Zlib", "zlib1g-dev"),
    ("zstd", "BSD-3-Clause OR GPL-2.0-only", "libzstd-dev"),
    ("lz4", "BSD-2-Clause", "liblz4-dev"),
    ("sqlite", "blessing", "libsqlite3-dev"),
    ("pugixml", "MIT", "libpugixml-dev"),
    ("librsync", "LGPL-2.1-or-later", "librsync-dev"),
    ("libb2", "CC0-1.0", "libb2-dev"),
    ("xxhash", "BSD-2-Clause", "libxxhash-dev"),
    ("cli11", "BSD-3-Clause", "libcli11-dev"),
    ("nlohmann-json", "MIT", "nlohmann-json3-dev"),
    ("cppzmq", "MIT", "cppzmq-dev"),
    ("libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1", None),  # the compiler's
]


def built_version(sources, package):
    """From the changelog that every Debian source package has."""
    first = (pathlib.Path(sources) / package / "debian/changelog").read_text().splitlines()[0]
    return re.search(r"\(([^)]+)\)", first).group(1)


def package_version(package):
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    return found.stdout if found.returncode == 0 else None


def compilers_package():
    """The package of the libstdc++ that g++ links in."""
    library = subprocess.run(["g++", "-print-file-name=libstdc++.a"], capture_output=True, text=True, check=True).stdout
    owner = subprocess.run(["dpkg", "-S", pathlib.Path(library.strip()).resolve()], capture_output=True, text=True)
    return owner.stdout.split(":")[0] if owner.returncode == 0 else "libstdc++"


def licence(text):
    return [{"expression": text}] if " " in text else [{"license": {"id": text}}]


def component(name, licence_text, version, package):
    return {"type": "library", "bom-ref": f"pkg:deb/debian/{package}@{version}", "name": name, "version": version,
            "licenses": licence(licence_text), "purl": f"pkg:deb/debian/{package}@{version}"}


def main():
    parser = argparse.ArgumentParser()
    for name in ("--version", "--date", "--sources"):
        parser.add_argument(name, required=True)
    args = parser.parse_args()
    components = [component(name, text, built_version(args.sources, package), package)
                  for name, text, package in BUILT_HERE if (pathlib.Path(args.sources) / package).exists()]
    built = {each["name"] for each in components}
    for name, text, package in FROM_PACKAGES:
        package = package or compilers_package()
        version = package_version(package)
        if version and name not in built:
            components.append(component(name, text, version, package))
    when = datetime.datetime.fromtimestamp(int(args.date), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    print(json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"timestamp": when,
                     "component": {"type": "application", "bom-ref": "tnr", "name": "tnr", "version": args.version}},
        "components": components,
        "dependencies": [{"ref": "tnr", "dependsOn": [each["bom-ref"] for each in components]}],
    }, indent=1))


if __name__ == "__main__":
    main()
