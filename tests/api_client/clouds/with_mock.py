"""A mock cloud in a process of its own, for tests in Python."""
import contextlib
import json
import pathlib
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent


class Mock:
    token = "mock-token-0123456789abcdef"

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, what, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.url}/mock/{what}", data=data) as reply:
            return json.load(reply)

    def check_description(self):
        violations = self.ask("violations")
        if violations is None:
            print("note: no API description (TNR_API_SPECS) or no openapi-core; replies were not checked against it")
        assert not violations, "\n".join(violations)


@contextlib.contextmanager
def mock_cloud(script):
    process = subprocess.Popen([sys.executable, HERE / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline().split()
        assert line[:1] == ["port"], f"{script} did not start"
        yield Mock(int(line[1]))
    finally:
        process.stdin.close()
        process.wait()
