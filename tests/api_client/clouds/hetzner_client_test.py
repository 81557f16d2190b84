#!/usr/bin/env python3
"""Hetzner's own Python client lives a server's whole life at our mock: what it understands, the mock has said as Hetzner would."""
import sys

from with_mock import mock_cloud

try:
    import hcloud
    from hcloud.firewalls import FirewallRule
    from hcloud.images import Image
    from hcloud.locations import Location
    from hcloud.server_types import ServerType
except ImportError:
    print("skipped: the Python package hcloud is not installed")
    sys.exit(77)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl mock"

with mock_cloud("hetzner_mock.py") as mock:
    client = hcloud.Client(token=mock.token, api_endpoint=mock.url + "/v1", poll_interval=0.01)
    assert {"fsn1", "nbg1", "ash"} == {each.name for each in client.locations.get_all()}
    types = {each.name: each for each in client.server_types.get_all()}
    assert types["cx23"].cores == 2 and types["cax11"].architecture == "arm"

    key = client.ssh_keys.create("mine", KEY)
    wall = client.firewalls.create("wall", rules=[FirewallRule("in", "tcp", ["0.0.0.0/0"], port="22")]).firewall
    made = client.servers.create("demo", ServerType("cx23"), Image(name="debian-12"), location=Location("fsn1"), ssh_keys=[key],
                                 firewalls=[wall], labels={"tnr": "demo"}, user_data="#cloud-config\n")
    assert made.root_password is None
    made.action.wait_until_finished()
    server = client.servers.get_by_name("demo")
    assert server.status in ("initializing", "starting", "running") and server.public_net.ipv4.ip == "192.0.2.10"
    assert [each.name for each in client.servers.get_all(label_selector="tnr")] == ["demo"]
    assert client.servers.get_all(label_selector="other") == []

    client.servers.shutdown(server).wait_until_finished()
    client.servers.get_by_id(server.id)
    assert client.servers.get_by_id(server.id).status == "off"
    client.servers.change_type(server, ServerType("cpx31"), upgrade_disk=False).wait_until_finished()
    assert client.servers.get_by_id(server.id).server_type.name == "cpx31"
    shot = client.servers.create_image(server, description="before", type="snapshot")
    shot.action.wait_until_finished()
    assert [each.description for each in client.images.get_all(type=["snapshot"])] == ["before"]
    client.servers.power_on(server).wait_until_finished()
    try:
        client.servers.create("demo", ServerType("cx23"), Image(name="debian-12"))
        assert False, "two servers of one name"
    except hcloud.APIException as error:
        assert error.code == "uniqueness_error"
    try:
        client.firewalls.delete(wall)
        assert False, "a firewall in use was deleted"
    except hcloud.APIException as error:
        assert error.code == "resource_in_use"
    client.servers.delete(server).wait_until_finished()
    assert client.servers.get_by_name("demo") is None
    client.firewalls.delete(wall)
    client.ssh_keys.delete(key)
    client.images.delete(shot.image)
    assert mock.ask("left") == []
    try:
        hcloud.Client(token="wrong-token", api_endpoint=mock.url + "/v1").servers.get_all()
        assert False, "a wrong token was accepted"
    except hcloud.APIException as error:
        assert error.code == "unauthorized"
    mock.check_description()
print("hcloud", hcloud.__version__ if hasattr(hcloud, "__version__") else "", "lived a server's whole life at the mock")
