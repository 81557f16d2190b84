#!/usr/bin/env python3
"""Makes the wheel: wheel.py --version V --stage FOLDER --sbom FILE --out FOLDER --date SECONDS

The stage holds what goes below the environment's prefix: bin/tnr, and share/ with man pages and completions. There is no
Python in it: pip puts the files where they belong. The same stage and date make the same bytes.
"""
import argparse
import base64
import hashlib
import pathlib
import time
import zipfile

TAG = "py3-none-manylinux_2_34_x86_64"
METADATA = """\
Metadata-Version: 2.1
Name: tnr
Version: {version}
Summary: A CPU-only machine behaves as if a GPU were plugged in
Keywords: gpu,cuda,remote,cloud
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: System :: Distributed Computing
Description-Content-Type: text/markdown

`tnr start` makes a CPU-only machine, at a cloud or on this computer. CUDA programs there run, unmodified, on a GPU across
the network, claimed from a pool when the program starts and given back when it ends.

One program, no Python: `tnr --help`.
"""
WHEEL = f"""\
Wheel-Version: 1.0
Generator: tnr
Root-Is-Purelib: false
Tag: {TAG}
"""


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("--version", "--stage", "--sbom", "--out", "--date"):
        parser.add_argument(name, required=True)
    return parser.parse_args()


class Wheel:
    def __init__(self, path, date):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.date = max(time.gmtime(int(date))[:6], (1980, 1, 1, 0, 0, 0))
        self.record = []

    def add(self, name, content, mode=0o644):
        entry = zipfile.ZipInfo(name, self.date)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self, name):
        self.record.append(f"{name},,")
        record, self.record = "\n".join(self.record) + "\n", []
        self.add(name, record.encode())
        self.zip.close()


def main():
    args = arguments()
    stage, out = pathlib.Path(args.stage), pathlib.Path(args.out)
    info, data = f"tnr-{args.version}.dist-info", f"tnr-{args.version}.data"
    path = out / f"tnr-{args.version}-{TAG}.whl"
    wheel = Wheel(path, args.date)
    wheel.add(f"{data}/scripts/tnr", (stage / "bin/tnr").read_bytes(), 0o755)
    for file in sorted((stage / "share").rglob("*")):
        if file.is_file() and file.stem != "tnr-gpu-server":  # the server is not in it
            wheel.add(f"{data}/data/{file.relative_to(stage)}", file.read_bytes())
    wheel.add(f"{info}/METADATA", METADATA.format(version=args.version).encode())
    wheel.add(f"{info}/WHEEL", WHEEL.encode())
    wheel.add(f"{info}/sboms/tnr.cdx.json", pathlib.Path(args.sbom).read_bytes())
    wheel.close(f"{info}/RECORD")
    print(path)


if __name__ == "__main__":
    main()
