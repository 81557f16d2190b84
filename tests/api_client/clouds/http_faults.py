#!/usr/bin/env python3
"""A small HTTP server that does what servers should not: http_faults.py [--tls CERTIFICATE KEY]. Prints `port N`.

GET /count tells how many requests each path has had, and over how many connections they came.
"""
import collections
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
