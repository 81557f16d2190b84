"""What the mock clouds share: a small HTTP server with state, faults on demand, and a check of every request and reply
against the cloud's own description.

A mock prints `port N` once it listens and ends when its stdin does; with `--tls CERTIFICATE KEY` it speaks https. With `--twins`
its stdin is a socket: for each socket that comes over it a twin is made, with that one as its stdin and stdout.
Beside the cloud's paths it answers these:
  POST /mock/faults      [{"method", "path" (a regular expression), "status", "headers", "body", "kind", "times"}]: the next
                         requests that match are answered so. kind: "status" (default), "malformed", "reset", "applied_reset"
                         (does what it was asked, then breaks the connection), "half" (breaks it in mid-body),
                         "endless" (bytes as long as they are taken),
                         "xml" ("text" as it is)
  POST /mock/knobs       {"sold_out": […], …}: what only the cloud decides; "no_faults" forgets those that are left;
                         "unchecked": no request is held against the description;
                         "bend": a number, from which on replies are bent at random (bent.py), or null
  GET  /mock/log         [{"method", "path", "status", "body"}] of all requests so far
  GET  /mock/violations  what did not fit the description; [] when all did
  GET  /mock/left        names of all that still exists there
  GET  /mock/costly      of those, what costs money and goes on doing so
  POST /mock/kill        {"pid", "at", "of", "when", "signal"}: that process gets the signal at the `at`th request from now on
                         whose path matches `of`: before the request is heeded ("unsent") or before it is answered ("unread");
                         a SIGKILL keeps it from being so
  GET  /mock/settled     true when no other connection is open: whatever was asked for, is done
  POST /mock/client      {"url", "folder"}: the environment of a client that is signed in; its files are put into the folder

With TNR_MOCK_BOOT, a command, there are real machines behind those that are made: `COMMAND NAME ADDRESS` gets the user data on
its stdin, and runs for as long as the mock does.

Descriptions come from TNR_API_SPECS, by default ../shared/specs beside the project. Where they or the validator are
missing, /mock/violations answers null, and callers say that they skip this check.
"""
import contextlib
import http.server
import json
import os
import pathlib
import random
import re
import shlex
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

from bent import bent, bent_status

ROOT = pathlib.Path(__file__).resolve().parents[3]
SPECS = pathlib.Path(os.environ.get("TNR_API_SPECS") or ROOT.parent / "shared" / "specs")


class Refused(Exception):
    def __init__(self, status, body, headers=None):
        super().__init__(body)
        self.status, self.body, self.headers = status, body, headers or {}


def nullable_wholes(node):
    """Authors write `nullable: true, allOf: [one schema]` and mean that null will do; to the letter it would not."""
    if isinstance(node, list):
        for each in node:
            nullable_wholes(each)
    elif isinstance(node, dict):
        if node.get("nullable") is True and isinstance(node.get("allOf"), list):
            node["anyOf"] = [{"nullable": True, "enum": [None]}, {"allOf": node.pop("allOf")}]
        for each in node.values():
            nullable_wholes(each)


class Description:
    """The cloud's OpenAPI file. None of `check` when it or openapi-core is missing."""

    def __init__(self, name, prefix, mend):
        self.prefix, self.violations, self.openapi = prefix, [], None
        path = SPECS / name
        if not path.exists():
            return
        try:
            from openapi_core import Config, OpenAPI
        except ImportError:
            return
        self.spec = json.loads(path.read_text())
        self.spec["servers"] = [{"url": "http://mock" + prefix}]
        for operations in self.spec["paths"].values():
            for node in [operations] + [each for each in operations.values() if isinstance(each, dict)]:
                node.pop("servers", None)
        nullable_wholes(self.spec)
        mend(self.spec)
        self.openapi = OpenAPI.from_dict(self.spec, config=Config(spec_validator_cls=None))

    def found(self):
        return self.openapi is not None

    def check(self, method, path, query, headers, body, status, reply):
        if not self.openapi:
            return
        from openapi_core.testing import MockRequest, MockResponse
        where = f"{method} {path} -> {status}"
        arguments = {name: values for name, values in urllib.parse.parse_qs(query, keep_blank_values=True).items()}
        request = MockRequest("http://mock", method.lower(), urllib.parse.unquote(path), args=arguments, headers=dict(headers),
                              data=body or None, content_type="application/json")
        response = MockResponse(reply, status_code=status, content_type="application/json")
        # A refused request may well be one that the description forbids.
        if status < 400:
            self.tell(where + ", request", lambda: self.openapi.validate_request(request))
            self.unknown_names(where, method, path, body)
        self.tell(where + ", reply", lambda: self.openapi.validate_response(request, response))

    def tell(self, where, run):
        try:
            run()
        except Exception as error:  # openapi-core has a dozen kinds
            causes, cause = [], error
            while cause is not None:
                causes += [each.message[:300] + " at " + "/".join(map(str, each.path))
                           for each in getattr(cause, "schema_errors", [])]
                last, cause = cause, cause.__cause__
            self.violations.append(f"{where}: {' | '.join(causes) or str(last)[:300]}")

    # Descriptions rarely forbid what they do not name, so a misspelt field would pass.
    def unknown_names(self, where, method, path, body):
        operation = self.operation(method, path)
        if not body or not operation or "requestBody" not in operation:
            return
        schema = self.resolved(self.resolved(operation["requestBody"])["content"]["application/json"]["schema"])
        known = self.names(schema)
        for name in json.loads(body):
            if known and name not in known:
                self.violations.append(f"{where}: the request has '{name}', which the description does not know")

    def operation(self, method, path):
        tail = path[len(self.prefix):] if path.startswith(self.prefix) else path
        candidates = sorted(self.spec["paths"], key=lambda template: template.count("{"))
        for template in candidates:
            pattern = re.sub(r"\{[^}]*\}", "[^/]+", template)
            if re.fullmatch(pattern, tail) and method.lower() in self.spec["paths"][template]:
                return self.spec["paths"][template][method.lower()]
        return None

    def resolved(self, node):
        while "$ref" in node:
            target = self.spec
            for part in node["$ref"][2:].split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            node = target
        return node

    def names(self, schema):
        schema = self.resolved(schema)
        names = set(schema.get("properties", {}))
        for group in ("allOf", "oneOf", "anyOf"):
            for each in schema.get(group, []):
                names |= self.names(each)
        return names


class Server(http.server.ThreadingHTTPServer):
    """Knows how many connections are open; they are counted in the order in which they came."""
    daemon_threads = True

    def __init__(self, handler):
        self.counting, self.open = threading.Lock(), 0
        super().__init__(("127.0.0.1", 0), handler)

    def process_request(self, request, client_address):
        with self.counting:
            self.open += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        super().shutdown_request(request)
        with self.counting:
            self.open -= 1


class MockCloud:
    """A cloud is a subclass: methods marked with @route take (query, body, *ids) and return (status, reply) or
    (status, reply, headers)."""
    token = "mock-token-0123456789abcdef"
    public_paths = ()  # need no token
    malformed = b'{"servers": [{"id": 1, '

    def __init__(self, name, prefix, mend=lambda spec: None):
        self.prefix, self.lock = prefix, threading.Lock()
        self.description = Description(name, prefix, mend)
        self.faults, self.log, self.knobs, self.last_id, self.booted, self.bending = [], [], {}, 1000, [], None
        self.doomed = None
        self.routes = [(method, re.compile(prefix + pattern), getattr(self, attribute))
                       for attribute in dir(type(self))
                       for method, pattern in getattr(getattr(type(self), attribute), "routes", [])]

    def new_id(self):
        self.last_id += 1
        return self.last_id

    def unauthorized(self):
        raise NotImplementedError

    def unknown_path(self):
        raise NotImplementedError

    def left(self):
        raise NotImplementedError

    def costly(self):
        raise NotImplementedError

    def client(self, url, folder):
        raise NotImplementedError

    # What faults and the log call a request; its path tells little where all requests go to one.
    def path_of(self, path, headers, body):
        return path

    def clock_ahead_s(self):
        return 0

    # Each cloud calls it with what it has been sent and what it tells, once an order is taken.
    def boot(self, name, address, user_data):
        if command := os.environ.get("TNR_MOCK_BOOT"):
            machine = subprocess.Popen([*shlex.split(command), name, address], stdin=subprocess.PIPE, stdout=sys.stderr)
            machine.stdin.write(user_data)
            machine.stdin.close()
            self.booted.append(machine)

    # What the mock is told and asked by tests.
    def control(self, path, body):
        if path == "/mock/faults":
            self.faults += body
        elif path == "/mock/knobs":
            self.knobs.update(body)
        elif path == "/mock/log":
            return self.log
        elif path == "/mock/violations":
            return self.description.violations if self.description.found() else None
        elif path == "/mock/settled":  # nobody but who asks has a request here
            return self.server.open == 1
        elif path == "/mock/left":
            return self.left()
        elif path == "/mock/costly":
            return self.costly()
        elif path == "/mock/kill":
            self.doomed = body
        elif path == "/mock/client":
            return self.client(body["url"], pathlib.Path(body["folder"]))
        return {}

    # The reply as it is sent; None where nobody bends it.
    def bent(self, status, reply):
        seed = self.knobs.get("bend")
        if seed is None:
            self.bending = None
            return None
        if not self.bending or self.bending[0] != seed:
            self.bending = (seed, random.Random(seed))
        status = bent_status(status, self.bending[1])
        return status, bent(reply, self.bending[1]) if status != 204 else None

    def fault_for(self, method, path):
        if self.knobs.pop("no_faults", False):
            self.faults = []
        for fault in self.faults:
            if fault.get("method", method) == method and re.search(fault.get("path", ""), path) and fault.get("times", 1) > 0:
                fault["times"] = fault.get("times", 1) - 1
                return fault
        return None

    # Once for each request: when its sender is to be killed, if at this one.
    def doom(self, path):
        if not self.doomed or not re.search(self.doomed["of"], path):
            return None
        self.doomed["at"] -= 1
        return self.doomed["when"] if self.doomed["at"] == 0 else None

    # True: nobody is left to answer to.
    def strike(self):
        os.kill(self.doomed["pid"], self.doomed["signal"])
        return self.doomed["signal"] == signal.SIGKILL

    def answer(self, method, path, query, headers, body):
        authorized = headers.get("Authorization") == "Bearer " + self.token
        if not authorized and path not in self.public_paths:
            return self.unauthorized()
        for wanted, pattern, handler in self.routes:
            if wanted == method and (match := pattern.fullmatch(path)):
                arguments = {name: values if values[1:] else values[0] for name, values in urllib.parse.parse_qs(query).items()}
                return handler(arguments, json.loads(body) if body else {}, *match.groups())
        return self.unknown_path()

    def serve(self):
        is_twin = sys.argv[1:2] == ["--twins"]
        if is_twin:
            become_a_twin()
        self.server = server = Server(handler_for(self))
        if sys.argv[1:2] == ["--tls"]:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*sys.argv[2:])
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"port {server.server_port}", flush=True)
        sys.stdin.read()
        for machine in self.booted:
            machine.terminate()
        for machine in self.booted:
            machine.wait()
        if is_twin:
            os._exit(0)  # what is tidied up at a process's end is the first one's


def become_a_twin():
    """Returns in each child. The parent makes them until nobody wants more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=0) as line:
        while True:
            wanted, descriptors, *_ = socket.recv_fds(line, 1, 1)
            if not wanted:
                sys.exit()
            if os.fork() == 0:
                break
            os.close(descriptors[0])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for standard in (0, 1):
        os.dup2(descriptors[0], standard)
    os.close(descriptors[0])


def route(method, pattern):
    def mark(function):
        function.routes = getattr(function, "routes", []) + [(method, pattern)]
        return function
    return mark


def handler_for(cloud):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two packets, the second would wait 40 ms

        def log_message(self, *_):
            pass

        def reply(self, status, body, headers=None):
            data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            kind = {} if status == 204 else {"Content-Type": "application/json"}
            for name, value in {**kind, **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("X-Request-Id", f"req-{len(cloud.log)}")
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            try:
                if status != 204:
                    self.wfile.write(data)
            except OSError:  # whoever asked was killed meanwhile
                self.close_connection = True

        def date_time_string(self, timestamp=None):
            return super().date_time_string((timestamp or time.time()) + cloud.clock_ahead_s())

        def broken_body(self, size):
            self.send_response(200)
            if size:
                self.send_header("Content-Length", str(size))
            self.end_headers()
            with contextlib.suppress(OSError):
                while not size:
                    self.wfile.write(b" " * 65536)
                self.wfile.write(cloud.malformed)
                self.wfile.flush()

        def reset(self):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()

        def handle(self):
            try:
                super().handle()
            except OSError:  # whoever asked was killed meanwhile
                pass

        def run(self):
            url = urllib.parse.urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if url.path.startswith("/mock/"):
                with cloud.lock:
                    return self.reply(200, json.dumps(cloud.control(url.path, json.loads(body) if body else None)).encode())
            with cloud.lock:
                path = cloud.path_of(url.path, self.headers, body)
                doom = cloud.doom(path)
                if doom == "unsent" and cloud.strike():
                    return self.reset()
                fault = cloud.fault_for(self.command, path)
                kind = fault.get("kind", "status") if fault else ""
                status, reply, headers = 0, None, {}
                if kind == "xml":
                    status, reply, headers = fault.get("status", 200), fault["text"].encode(), {"Content-Type": "text/xml"}
                if fault and kind == "status":
                    status, reply, headers = fault["status"], fault.get("body"), fault.get("headers", {})
                elif kind in ("", "applied_reset"):
                    try:
                        status, reply, *more = cloud.answer(self.command, url.path, url.query, self.headers, body)
                        headers = more[0] if more else {}
                    except Refused as refused:
                        status, reply, headers = refused.status, refused.body, refused.headers
                cloud.log.append({"method": self.command, "path": path, "status": status, "body": body.decode(errors="replace")})
                if kind == "":
                    data = b"" if reply is None else reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                    if other := cloud.bent(status, data):
                        status, reply = other
                    elif not cloud.knobs.get("unchecked"):
                        cloud.description.check(self.command, path, url.query, self.headers, body, status, data)
                if doom == "unread" and cloud.strike():
                    return self.reset()
            if kind in ("half", "endless"):
                self.broken_body(1000 if kind == "half" else None)
            if kind in ("reset", "applied_reset", "half", "endless"):
                return self.reset()
            if kind == "malformed":
                return self.reply(200, cloud.malformed)
            return self.reply(status, reply, headers)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = run

    return Handler
