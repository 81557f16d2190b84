#!/usr/bin/env python3
"""DigitalOcean's own Python client lives a droplet's whole life at our mock: what it understands, the mock has said as they would."""
import sys

from with_mock import mock_cloud

try:
    import pydo
    from azure.core.exceptions import HttpResponseError
    from azure.core.pipeline.policies import _authentication
except ImportError:
    print("skipped: the Python package pydo is not installed")
    sys.exit(77)

_authentication._enforce_https = lambda request: None  # the mock speaks plain HTTP

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl mock"

with mock_cloud("digitalocean_mock.py") as mock:
    client = pydo.Client(token=mock.token, endpoint=mock.url)
    assert client.account.get()["account"]["email"] == "sammy@example.com"
    sizes = {each["slug"]: each for each in client.sizes.list(per_page=200)["sizes"]}
    assert sizes["s-2vcpu-4gb"]["price_hourly"] == 0.03571
    first = client.sizes.list(per_page=2)
    assert first["links"]["pages"]["next"].endswith("page=2") and len(client.sizes.list(per_page=2, page=2)["sizes"]) == 2

    key = client.ssh_keys.create(body={"name": "mine", "public_key": KEY})["ssh_key"]
    client.tags.create(body={"name": "tnr-machine:demo"})
    everywhere = {"addresses": ["0.0.0.0/0", "::/0"]}
    wall = client.firewalls.create(body={"name": "wall", "tags": ["tnr-machine:demo"], "inbound_rules": [
        {"protocol": "tcp", "ports": "22", "sources": everywhere}]})["firewall"]
    made = client.droplets.create(body={"name": "demo", "region": "fra1", "size": "s-2vcpu-4gb", "image": "debian-12-x64",
                                        "ssh_keys": [key["id"]], "tags": ["tnr", "tnr-machine:demo"]})["droplet"]
    assert made["status"] == "new"

    def status():
        return client.droplets.get(made["id"])["droplet"]["status"]

    def act(**body):
        action = client.droplet_actions.post(made["id"], body=body)["action"]
        assert client.actions.get(action["id"])["action"]["status"] == "completed"

    assert (status(), status()) == ("new", "active")
    assert [each["name"] for each in client.droplets.list(tag_name="tnr")["droplets"]] == ["demo"]
    act(type="shutdown")
    status()
    assert status() == "off"
    act(type="resize", size="s-4vcpu-8gb", disk=False)
    act(type="snapshot", name="before")
    snapshots = client.snapshots.list(resource_type="droplet")["snapshots"]
    assert [each["name"] for each in snapshots] == ["before"]
    act(type="power_on")
    assert client.droplets.get(made["id"])["droplet"]["size_slug"] == "s-4vcpu-8gb" and status() == "active"
    assert client.balance.get()["month_to_date_usage"] == "11.21"

    client.droplets.destroy(made["id"])
    client.firewalls.delete(wall["id"])
    client.ssh_keys.delete(key["id"])
    client.tags.delete("tnr-machine:demo")
    client.snapshots.delete(snapshots[0]["id"])
    assert mock.ask("left") == []
    for refused in (lambda: client.droplets.get(made["id"]),
                    lambda: pydo.Client(token="wrong-token", endpoint=mock.url).account.get()):
        try:
            answer = refused()
            assert "id" in answer and "message" in answer, answer  # pydo hands out some refusals as answers
        except HttpResponseError:
            pass
    mock.check_description()
print("pydo lived a droplet's whole life at the mock")
