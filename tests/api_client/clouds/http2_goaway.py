#!/usr/bin/env python3
"""Sends HTTP/2 clients away: http2_goaway.py CERTIFICATE KEY LOG MODE. Prints `port N`.

MODE: "refused": the first connection's request was not looked at, as GOAWAY says, and those of later ones are answered;
"taken": every request was taken, GOAWAY says so, and the connection ends without a reply. LOG gets a line for each request.
"""
import socket
import ssl
import struct
import sys
import threading

certificate, key, log, mode = sys.argv[1:]
SETTINGS, HEADERS, DATA, GOAWAY, END_STREAM, END_HEADERS, ACK = 4, 1, 0, 7, 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def read(connection, size):
    data = b""
    while len(data) < size:
        data += (more := connection.recv(size - len(data)))
        if not more:
            raise EOFError
    return data


def serve(connection, number):
    try:
        with context.wrap_socket(connection, server_side=True) as tls:
            read(tls, len(PREFACE))
            tls.sendall(frame(SETTINGS, 0, 0))
            kind = None
            while kind != HEADERS:
                head = read(tls, 9)
                kind, flags, stream = head[3], head[4], struct.unpack(">I", head[5:])[0]
                read(tls, int.from_bytes(head[:3], "big"))
                if kind == SETTINGS and not flags & ACK:
                    tls.sendall(frame(SETTINGS, ACK, 0))
            with open(log, "a") as lines:
                lines.write("request\n")
            if mode == "taken" or number == 0:
                tls.sendall(frame(GOAWAY, 0, 0, struct.pack(">II", stream if mode == "taken" else 0, 0)))
                if mode == "taken":
                    return
            else:
                tls.sendall(frame(HEADERS, END_HEADERS, stream, b"\x88") + frame(DATA, END_STREAM, stream, b"done"))  # ":status: 200"
            read(tls, 1 << 20)  # until the client leaves
    except (OSError, EOFError):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
context.set_alpn_protocols(["h2"])
listener = socket.create_server(("127.0.0.1", 0))


def accept():
    for number in range(1 << 20):
        threading.Thread(target=serve, args=(listener.accept()[0], number), daemon=True).start()


threading.Thread(target=accept, daemon=True).start()
print(f"port {listener.getsockname()[1]}", flush=True)
sys.stdin.read()
