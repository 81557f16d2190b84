#!/usr/bin/env python3
"""The real `tnr` signs in to a mock cloud, says who it is, shows its requests, and forgets: clouds_command_test.py TNR"""
import base64
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api_client" / "clouds"))
from with_mock import mock_cloud

TNR = sys.argv[1]


def tnr(home, *words, given="", status=0, **variables):
    # Nothing of the user's own: neither their tokens nor their proxies.
    environment = {"PATH": os.environ["PATH"], "HOME": home, **variables}
    done = subprocess.run([TNR, *words], input=given, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done


with mock_cloud("hetzner_mock.py") as mock, tempfile.TemporaryDirectory() as home:
    there = {"HCLOUD_ENDPOINT": mock.url + "/v1"}
    assert "tnr login hetzner" in tnr(home, "whoami", "hetzner", status=4, **there).stderr
    assert "request req-" in tnr(home, "login", "hetzner", given="wrong-token-wrong\n", status=4, **there).stderr
    said = tnr(home, "login", "hetzner", given=mock.token + "\n", **there)
    assert "a project with 0 servers" in said.stdout, said
    stored = pathlib.Path(home, ".config/tnr/clouds.json")
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600

    shown = tnr(home, "--explain", "whoami", "hetzner", **there)
    assert "> GET " + mock.url + "/v1/servers?per_page=1" in shown.stderr and "< 200 in" in shown.stderr
    assert mock.token not in shown.stderr + shown.stdout
    who = json.loads(tnr(home, "whoami", "--json", **there).stdout)["providers"]
    assert [each["provider"] for each in who if each["signed_in"]] == ["local", "hetzner"], who
    # A token in the variable comes first, and a wrong one is told by its source.
    wrong = tnr(home, "whoami", "hetzner", status=4, HCLOUD_TOKEN="wrong-token-wrong", **there)
    assert "came from HCLOUD_TOKEN" in wrong.stderr and "wrong-token" not in wrong.stderr, wrong

    # A machine of another computer is shown, and costs what its cloud says.
    import urllib.request
    order = json.dumps({"name": "other", "server_type": "cx23", "image": "debian-12", "labels": {"tnr": "other"}}).encode()
    request = urllib.request.Request(mock.url + "/v1/servers", order, {"Authorization": "Bearer " + mock.token})
    urllib.request.urlopen(request).close()
    row = json.loads(tnr(home, "status", "--json", **there).stdout)["machines"][0]
    assert (row["name"], row["price"]["currency"], round(row["price"]["per_hour"], 6)) == ("other", "EUR", 0.0064), row
    tnr(home, "delete", "other", "--provider", "hetzner", "--yes", **there)
    assert mock.ask("left") == []

    # Of a start that was cut off elsewhere there are only a key and a firewall.
    for what in ({"name": "tnr-half", "labels": {"tnr": "half"}}, {"name": "own", "labels": {}}):
        key = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + what["name"].encode().ljust(32)).decode()
        order = json.dumps(what | {"public_key": "ssh-ed25519 " + key}).encode()
        urllib.request.urlopen(urllib.request.Request(mock.url + "/v1/ssh_keys", order,
                                                      {"Authorization": "Bearer " + mock.token})).close()
    assert "SSH key tnr-half at provider hetzner" in tnr(home, "delete", "half", status=2, **there).stderr
    assert "SSH key tnr-half" in tnr(home, "delete", "half", "--yes", **there).stdout
    assert mock.ask("left") == ["own"], mock.ask("left")
    assert "no machine called 'own'" in tnr(home, "delete", "own", "--yes", status=1, **there).stderr

    tnr(home, "logout", "hetzner", **there)
    assert "hetzner" not in stored.read_text()
    refused = tnr(home, "login", "hetzner", given=mock.token + "\n", status=2, HCLOUD_ENDPOINT="http://api.example/v1")
    assert "https://" in refused.stderr
    mock.check_description()

# AWS, whose keys are four lines, and whose machines are found in all regions by their tag.
try:
    import boto3
    import moto
except ImportError:
    print("note: no moto; tnr was not tried at AWS")
    sys.exit()
with mock_cloud("aws_mock.py") as mock, tempfile.TemporaryDirectory() as home:
    key, there = mock.ask("keys")["tester"], {"AWS_ENDPOINT_URL": mock.url}
    assert "tnr login aws" in tnr(home, "whoami", "aws", status=4, **there).stderr
    wrong = tnr(home, "login", "aws", given=f"{key['id']}\nwrong-secret-wrong\n\n\n", status=4, **there)
    assert "request req-" in wrong.stderr or "AuthFailure" in wrong.stderr or "SignatureDoesNotMatch" in wrong.stderr, wrong
    said = tnr(home, "login", "aws", given=f"{key['id']}\n{key['secret']}\n\nus-west-2\n", **there)
    assert "arn:aws:iam::123456789012:user/tester in account 123456789012, region us-west-2" in said.stdout, said
    shown = tnr(home, "--explain", "status", **there)
    assert "Action=DescribeInstances" in shown.stderr and key["secret"] not in shown.stderr, shown
    ec2 = boto3.client("ec2", region_name="eu-central-1", endpoint_url=mock.url, aws_access_key_id=key["id"],
                       aws_secret_access_key=key["secret"])
    ec2.run_instances(ImageId="ami-debian-new", MinCount=1, MaxCount=1, InstanceType="t3.large",
                      NetworkInterfaces=[{"DeviceIndex": 0, "DeleteOnTermination": True}],
                      TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "tnr", "Value": "other"}]}])
    row = json.loads(tnr(home, "status", "--json", **there).stdout)["machines"][0]
    assert row["name"] == "other" and row["price"]["per_hour"] is None, row  # its disk is not one of ours: unknown
    tnr(home, "delete", "other", "--provider", "aws", "--yes", **there)
    assert mock.ask("left") == [], mock.ask("left")
    mock.check_description()
print("tnr signed in, looked around, and signed out")
