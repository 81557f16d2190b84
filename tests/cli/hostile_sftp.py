#!/usr/bin/env python3
"""An SFTP server that lies, for sync_test.cpp: hostile_sftp.py TRICK. It has one folder, `source`, and what is in it is the trick."""

import struct
import sys

TRICK = sys.argv[1]
FOLDER, FILE, LINK = 0o40777, 0o100666, 0o120777
TRICKS = {
    "dots": [(b"../victim", FILE), (b"..", FOLDER), (b"../..", FOLDER)],
    "dots_nul": [(b"..\0x", FOLDER)],
    "slash": [(b"sub/../../../victim", FILE)],
    "absolute": [(b"/etc", FOLDER)],
    "empty": [(b"", FOLDER)],
    "link_then_folder": [(b"l", LINK), (b"l", FOLDER)],
    "folder_then_link": [(b"l", FOLDER), (b"l", LINK)],
    "endless_file": [(b"f", FILE)],
    "endless_depth": [(b"d", FOLDER)],
    "long_name": [(b"n" * 300, FILE)],
    "huge_packet": [(b"f", FILE)],
}


def text(value):
    return struct.pack(">I", len(value)) + value


def attributes(mode):
    return struct.pack(">IQIII", 1 | 4 | 8, 10, mode, 1, 1)  # size, mode, times


def send(kind, body):
    packet = bytes([kind]) + body
    sys.stdout.buffer.write(struct.pack(">I", len(packet)) + packet)
    sys.stdout.buffer.flush()


def status(request, code):
    send(101, request + struct.pack(">I", code) + text(b"no") + text(b""))


def names_in(folder):
    if folder == b"source" or TRICK == "endless_depth":
        return TRICKS[TRICK]
    return [(b"victim", FILE)] if folder.endswith(b"/l") else []


def answer(kind, request, path, read):
    if kind in (7, 8, 17):
        folder = kind != 8 and (path == b"source" or path.endswith((b"/l", b"/d")))
        send(105, request + attributes(FOLDER if folder else FILE))
    elif kind in (3, 11):
        send(102, request + text(path))
        read.discard(path)
    elif kind == 12 and path not in read:
        read.add(path)
        listed = names_in(path)
        entries = b"".join(text(name) + text(name) + attributes(mode) for name, mode in listed)
        send(104, request + struct.pack(">I", len(listed)) + entries)
    elif kind == 5 and TRICK == "huge_packet":
        sys.stdout.buffer.write(struct.pack(">I", 0xFFFFFFF0) + b"g" * 100000)
        sys.stdout.buffer.flush()
    elif kind == 5:
        send(103, request + text(b"e" * 32768))  # evil without end
    elif kind == 19:
        send(104, request + struct.pack(">I", 1) + text(b"..") + text(b"..") + attributes(LINK))
    else:
        status(request, 1 if kind == 12 else 0)


def main():
    read = set()
    while len(header := sys.stdin.buffer.read(5)) == 5:
        length, kind = struct.unpack(">IB", header)
        body = sys.stdin.buffer.read(length - 1)
        if kind == 1:
            send(2, struct.pack(">I", 3))
            continue
        size = struct.unpack(">I", body[4:8])[0]
        answer(kind, body[:4], body[8 : 8 + size], read)


main()
