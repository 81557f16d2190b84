"""A mock cloud in a process of its own, for tests in Python."""
import contextlib
import json
import os
import pathlib
import ssl
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent


class Mock:
    token = "mock-token-0123456789abcdef"

    def __init__(self, port, certificate=None):
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        self.tls = ssl.create_default_context(cafile=certificate) if certificate else None

    def ask(self, what, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.url}/mock/{what}", data=data, context=self.tls) as reply:
            return json.load(reply)

    def check_description(self):
        violations = self.ask("violations")
        if violations is None:
            print("note: no API description (TNR_API_SPECS) or no openapi-core; replies were not checked against it")
        assert not violations, "\n".join(violations)


def self_signed(folder):
    """A certificate for 127.0.0.1 and its key, as files."""
    certificate, key = str(pathlib.Path(folder, "certificate.pem")), str(pathlib.Path(folder, "key.pem"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    return certificate, key


@contextlib.contextmanager
def mock_cloud(script, tls=(), environment=None):
    """`tls`: certificate and key, for clients that refuse plain http. `environment`: what the mock has beside ours."""
    words = ["--tls", *tls] if tls else []
    process = subprocess.Popen([sys.executable, HERE / script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=dict(os.environ, **(environment or {})))
    try:
        line = process.stdout.readline().split()
        assert line[:1] == ["port"], f"{script} did not start"
        yield Mock(int(line[1]), *tls[:1])
    finally:
        process.stdin.close()
        process.wait()
