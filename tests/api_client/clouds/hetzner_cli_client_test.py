#!/usr/bin/env python3
"""Hetzner's own command line, hcloud, lives a server's whole life at our mock, as its Python client does in hetzner_client_test.py."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from with_mock import mock_cloud

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl mock"
# It sends ids as numbers, which Hetzner takes and its description does not tell.
NUMBERS = ("is not of type 'string' at image", "is not of type 'string' at server_type")

if not shutil.which("hcloud"):
    print("skipped: the program hcloud (hcloud-cli) is not installed")
    sys.exit(77)

with mock_cloud("hetzner_mock.py") as mock, tempfile.TemporaryDirectory(prefix="tnr-test.") as home:
    environment = dict(os.environ, HCLOUD_ENDPOINT=mock.url + "/v1", HCLOUD_TOKEN=mock.token, HOME=home)

    def asked(*words, token=mock.token):
        return subprocess.run(["hcloud", *words], env=dict(environment, HCLOUD_TOKEN=token), capture_output=True, text=True,
                              timeout=60)

    def hcloud(*words):
        done = asked(*words)
        assert done.returncode == 0, f"hcloud {' '.join(words)}: {done.stderr}"
        return done.stdout

    def column(kind, name, *more):
        return hcloud(kind, "list", "-o", "noheader", "-o", f"columns={name}", *more).split()

    assert column("location", "name") == ["fsn1", "nbg1", "ash"] and "cx23" in column("server-type", "name")
    public = pathlib.Path(home, "key.pub")
    public.write_text(KEY)
    hcloud("ssh-key", "create", "--name", "mine", "--public-key-from-file", str(public))
    hcloud("firewall", "create", "--name", "wall")
    order = ["server", "create", "--name", "demo", "--type", "cx23", "--image", "debian-12", "--location", "fsn1"]
    hcloud(*order, "--ssh-key", "mine", "--firewall", "wall", "--label", "tnr=demo")
    assert column("server", "name", "--selector", "tnr") == ["demo"]
    assert column("server", "name", "--selector", "other") == []
    assert hcloud("server", "ip", "demo").strip() == "192.0.2.10"
    again = asked(*order)
    assert again.returncode == 1 and "uniqueness_error" in again.stderr, again.stderr
    hcloud("server", "shutdown", "demo")
    while column("server", "status") != ["off"]:  # it has been asked to, and takes its time
        pass
    hcloud("server", "change-type", "--keep-disk", "demo", "cpx31")
    assert "cpx31" in hcloud("server", "describe", "demo")
    hcloud("server", "create-image", "--type", "snapshot", "--description", "before", "demo")
    hcloud("server", "poweron", "demo")
    assert column("server", "status") == ["running"]
    in_use = asked("firewall", "delete", "wall")
    assert in_use.returncode == 1 and "resource_in_use" in in_use.stderr, in_use.stderr
    hcloud("server", "delete", "demo")
    hcloud("image", "delete", *column("image", "id", "--type", "snapshot"))
    hcloud("firewall", "delete", "wall")
    hcloud("ssh-key", "delete", "mine")
    assert mock.ask("left") == []
    wrong = asked("server", "list", token="wrong-token")
    assert wrong.returncode == 1 and "unauthorized" in wrong.stderr, wrong.stderr
    violations = [each for each in mock.ask("violations") or [] if not each.endswith(NUMBERS)]
    assert not violations, "\n".join(violations)
print("hcloud lived a server's whole life at the mock")
