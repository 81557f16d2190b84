#!/usr/bin/env python3
"""Azure's own Python clients sign in and live a machine's whole life at our mock: what they understand, the mock has said as Azure would."""
import base64
import sys
import tempfile

from with_mock import mock_cloud, self_signed

try:
    from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
    from azure.identity import ClientSecretCredential
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient
    from azure.mgmt.resource.resources import ResourceManagementClient
except ImportError:
    print("skipped: azure-identity, azure-mgmt-compute, azure-mgmt-network or azure-mgmt-resource is not installed")
    sys.exit(77)

ME = "00000000-1111-2222-3333-444444444444"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl mock"


def code_of(call):
    try:
        call()
    except HttpResponseError as error:
        return error.error.code
    assert False, "the mock took it"


with tempfile.TemporaryDirectory() as folder, mock_cloud("azure_mock.py", self_signed(folder)) as mock:
    certificate = folder + "/certificate.pem"

    def signed_in(secret):
        return ClientSecretCredential("tenant-1", "app-1", secret, authority=mock.url, disable_instance_discovery=True,
                                      connection_verify=certificate)

    def client(kind):
        return kind(signed_in("hidden-client-secret"), ME, base_url=mock.url, polling_interval=0, retry_total=0,
                    connection_verify=certificate, credential_scopes=["https://management.azure.com/.default"])

    try:
        signed_in("hidden-wrong-secret").get_token("https://management.azure.com/.default")
        assert False, "a wrong secret was taken"
    except ClientAuthenticationError as error:
        assert "AADSTS7000215" in error.message

    compute, network, resources = client(ComputeManagementClient), client(NetworkManagementClient), client(ResourceManagementClient)
    skus = {each.name: each for each in compute.resource_skus.list(filter="location eq 'eastus'") if each.resource_type == "virtualMachines"}
    assert {each.name: each.value for each in skus["Standard_B2s"].capabilities}["vCPUs"] == "2" and len(skus) == 9

    def make_group(name):
        return resources.resource_groups.create_or_update(name, {"location": "eastus", "tags": {"tnr": "demo"}})

    assert make_group("demo").properties.provisioning_state == "Succeeded"
    assert code_of(lambda: resources.resource_groups.create_or_update("demo", {"location": "westeurope"})) == "InvalidResourceGroupLocation"
    assert [each.name for each in resources.resource_groups.list(filter="tagName eq 'tnr'")] == ["demo"]
    assert list(resources.resource_groups.list(filter="tagName eq 'other'")) == []
    wall = network.network_security_groups.begin_create_or_update("demo", "firewall", {"location": "eastus", "properties": {"securityRules": [
        {"name": "tcp", "properties": {"priority": 1000, "direction": "Inbound", "access": "Allow", "protocol": "Tcp", "sourceAddressPrefix": "*",
                                       "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRanges": ["22"]}}]}}).result()
    address = network.public_ip_addresses.begin_create_or_update("demo", "address", {
        "location": "eastus", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}).result()
    assert network.public_ip_addresses.get("demo", "address").ip_address == "192.0.2.40"
    net = network.virtual_networks.begin_create_or_update("demo", "network", {"location": "eastus", "properties": {
        "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
        "subnets": [{"name": "default", "properties": {"addressPrefix": "10.0.0.0/24", "networkSecurityGroup": {"id": wall.id}}}]}}).result()
    card = network.network_interfaces.begin_create_or_update("demo", "card", {"location": "eastus", "properties": {"ipConfigurations": [
        {"name": "main", "properties": {"subnet": {"id": net.id + "/subnets/default"}, "publicIPAddress": {"id": address.id}}}]}}).result()

    def server(image, group="demo", size="Standard_B2s"):
        return {"location": "eastus", "tags": {"tnr": "demo"}, "properties": {
            "hardwareProfile": {"vmSize": size},
            "storageProfile": {"imageReference": image, "osDisk": {"createOption": "FromImage", "diskSizeGB": 64,
                                                                   "managedDisk": {"storageAccountType": "StandardSSD_LRS"}}},
            "osProfile": {"computerName": "demo", "adminUsername": "tnr", "customData": base64.b64encode(b"#cloud-config\n").decode(),
                          "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [
                              {"path": "/home/tnr/.ssh/authorized_keys", "keyData": KEY}]}}},
            "networkProfile": {"networkInterfaces": [{"id": card.id}]}}}

    debian = {"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"}
    machines = compute.virtual_machines
    made = machines.begin_create_or_update("demo", "demo", server(debian)).result()
    assert made.provisioning_state == "Succeeded" and made.os_profile.custom_data is None
    powers = [[each.code for each in machines.get("demo", "demo", expand="instanceView").instance_view.statuses] for _ in range(3)]
    assert powers == [["ProvisioningState/succeeded"], ["ProvisioningState/succeeded", "PowerState/starting"],
                      ["ProvisioningState/succeeded", "PowerState/running"]]
    assert [each.name for each in machines.list_all()] == ["demo"]
    assert [each.instance_view.statuses[1].code for each in machines.list_all(status_only="true")] == ["PowerState/running"]

    machines.begin_deallocate("demo", "demo").result()
    assert machines.get("demo", "demo", expand="instanceView").instance_view.statuses[1].code == "PowerState/deallocated"
    machines.begin_update("demo", "demo", {"properties": {"hardwareProfile": {"vmSize": "Standard_D4s_v5"}}}).result()
    assert machines.get("demo", "demo").hardware_profile.vm_size == "Standard_D4s_v5"
    machines.begin_start("demo", "demo").result()
    make_group("kept")
    shot = compute.snapshots.begin_create_or_update("kept", "before", {"location": "eastus", "sku": {"name": "Standard_LRS"}, "properties": {
        "incremental": True, "creationData": {"createOption": "Copy", "sourceResourceId": made.storage_profile.os_disk.managed_disk.id}}}).result()
    assert [each.name for each in compute.snapshots.list()] == ["before"] and shot.provisioning_state == "Succeeded"
    image = compute.images.begin_create_or_update("demo", "restored", {"location": "eastus", "properties": {
        "hyperVGeneration": "V2", "storageProfile": {"osDisk": {"osType": "Linux", "osState": "Generalized", "snapshot": {"id": shot.id}}}}}).result()
    machines.begin_create_or_update("demo", "again", server({"id": image.id})).result()
    compute.images.begin_delete("demo", "restored").result()
    mock.ask("knobs", {"sold_out": ["Standard_B2s@eastus"], "no_room": ["Standard_D2s_v5@eastus"]})
    assert code_of(lambda: machines.begin_create_or_update("demo", "third", server(debian)).result()) == "SkuNotAvailable"
    assert code_of(lambda: machines.begin_create_or_update("demo", "third", server(debian, size="Standard_D2s_v5")).result()) == "AllocationFailed"
    resources.resource_groups.begin_delete("demo", force_deletion_types="Microsoft.Compute/virtualMachines").result()
    try:
        machines.get("demo", "demo")
        assert False, "a machine without its group"
    except ResourceNotFoundError as error:
        assert error.error.code == "ResourceGroupNotFound"
    resources.resource_groups.begin_delete("kept").result()
    assert mock.ask("left") == []
    mock.check_description()
print("azure-identity and azure-mgmt-compute, -network and -resource lived a machine's whole life at the mock")
