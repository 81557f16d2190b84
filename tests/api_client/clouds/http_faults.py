#!/usr/bin/env python3
"""A small HTTP server that does what servers should not: http_faults.py [--tls CERTIFICATE KEY]. Prints `port N`.

GET /count tells how many requests each path has had, and over how many connections they came.
"""
import collections
import contextlib
import gzip
import http.server
import json
import socket
import ssl
import struct
import sys
import threading
import time

counts, connections, lock = collections.Counter(), set(), threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two packets, the second would wait 40 ms

    def log_message(self, *_):
        pass

    def say(self, status, text, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def reset(self):
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def run(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        path = self.path.split("?")[0]
        with lock:
            counts[path] += 1
            count = counts[path]
            connections.add(self.client_address)
        if path == "/count":
            return self.say(200, json.dumps({"paths": counts, "connections": len(connections)}))
        if path == "/echo":
            return self.say(200, json.dumps({"method": self.command, "body": body, "headers": dict(self.headers)}),
                            X_Request_Id="req-7")
        if path.startswith("/twice/"):  # /twice/503: that status twice, then 200
            return self.say(int(path.split("/")[2]), "{}") if count <= 2 else self.say(200, "done")
        if path == "/patience":
            return self.say(429, "{}", Retry_After="7") if count == 1 else self.say(200, "done")
        if path == "/too-much-patience":
            return self.say(429, "{}", Retry_After="3600")
        if path == "/always/500":
            return self.say(500, "{}", X_Request_Id="req-9")
        if path == "/reset":  # in mid-body, the first time
            if count > 1:
                return self.say(200, "done")
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
            return self.reset()
        if path == "/moved":
            return self.say(302, "", Location="http://127.0.0.1:1/elsewhere")
        if path == "/endless":  # bytes without end, as fast as they are taken
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                self.close_connection = True
                return
        if path == "/dripping":  # a byte now and then
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(0.05)
            except OSError:
                self.close_connection = True
                return
        if path.startswith("/raw/"):  # as they are, and then the connection ends
            self.close_connection = True
            head, body = b"HTTP/1.1 200 OK\r\n", b""
            if path == "/raw/cut-chunk":
                body = b"Transfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n400\r\nhalf"
            elif path == "/raw/no-chunk":
                body = b"Transfer-Encoding: chunked\r\n\r\nsize\r\nx"
            elif path == "/raw/negative":
                body = b"Content-Length: -7\r\n\r\n{}"
            elif path == "/raw/huge":
                body = b"Content-Length: 99999999999999999999999999\r\n\r\n{}"
            elif path == "/raw/twice":
                body = b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
            elif path == "/raw/interim":
                head = b""
            elif path == "/raw/banner":
                head, body = b"", b"SSH-2.0-OpenSSH_9.2p1\r\n"
            elif path == "/raw/bomb":  # 64 MiB of blanks in 64 KiB
                packed = gzip.compress(b" " * (64 << 20), 9)
                body = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
            elif path == "/raw/no-gzip":
                body = b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"
            with contextlib.suppress(OSError):
                self.wfile.write(head + body)
                while path == "/raw/interim":
                    self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000)
                while path == "/raw/headers":
                    counts["/raw/headers-sent"] += 1
                    self.wfile.write(b"X-%d: " % counts["/raw/headers-sent"] + b"x" * 8000 + b"\r\n")
            return None
        return self.say(404, "{}")

    do_GET = do_POST = do_PUT = do_DELETE = do_CONNECT = run


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
if sys.argv[1:2] == ["--tls"]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"port {server.server_port}", flush=True)
sys.stdin.read()
