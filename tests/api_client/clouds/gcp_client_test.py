#!/usr/bin/env python3
"""Google's own Python client lives a machine's whole life at our mock, signed in with a service account's key by Google's own library."""
import pathlib
import sys
import tempfile
import time

from with_mock import mock_cloud

try:
    import google.auth.transport.requests
    from google.auth import exceptions, external_account_authorized_user, identity_pool
    import googleapiclient
    from google.oauth2 import service_account
    from googleapiclient import discovery, errors
except ImportError:
    print("skipped: the Python package google-api-python-client is not installed")
    sys.exit(77)

P = {"project": "my-project"}
ZONE = "us-central1-a"


def reason(call):
    try:
        call.execute()
    except errors.HttpError as error:
        return error.error_details[0]["reason"]
    assert False, "Google's mock took it"


with mock_cloud("gcp_mock.py") as mock:
    mock.ask("knobs", {"now": time.time()})
    key = mock.ask("key", {"url": mock.url})
    credentials = service_account.Credentials.from_service_account_info(
        key, scopes=["https://www.googleapis.com/auth/cloud-platform"])
    # Federation: another provider's token from a file and from an address, with and without a service account.
    folder = tempfile.TemporaryDirectory()
    subject = pathlib.Path(folder.name, "subject")
    by_file = {"file": str(subject), "format": {"type": "text"}}
    by_url = {"url": mock.url + "/subject", "headers": {"Authorization": "Bearer hidden-request-token"},
              "format": {"type": "json", "subject_token_field_name": "value"}}

    def federated(source, provider):
        info = mock.ask("federated", {"url": mock.url, "source": source, "provider": provider})
        return identity_pool.Credentials.from_info(info, scopes=["https://www.googleapis.com/auth/cloud-platform"])

    def token_of(credentials):
        credentials.refresh(google.auth.transport.requests.Request())
        return credentials.token

    subject.write_text("hidden-subject-token")
    for source in by_file, by_url:
        for provider in "direct", "by-account":
            assert token_of(federated(source, provider)) == mock.token
    subject.write_text("another")
    try:
        token_of(federated(by_file, "direct"))
        assert False, "a wrong token was taken"
    except exceptions.OAuthError as error:
        assert "invalid_grant" in str(error)
    assert token_of(external_account_authorized_user.Credentials(
        refresh_token="hidden-refresh-token", token_url=mock.url + "/sts/v1/token", client_id="client-0",
        client_secret="hidden-client-secret", token_info_url=mock.url)) == mock.token
    options = {"api_endpoint": mock.url + "/compute/v1/"}
    compute = discovery.build("compute", "v1", credentials=credentials, client_options=options, static_discovery=True)

    def wait(operation):
        if "zone" in operation:
            call = compute.zoneOperations().get(**P, zone=operation["zone"].split("/")[-1], operation=operation["name"])
        else:
            call = compute.globalOperations().get(**P, operation=operation["name"])
        for _ in range(5):
            operation = call.execute()
            if operation["status"] == "DONE":
                return operation.get("error", {}).get("errors")
        assert False, "an operation without end"

    assert compute.projects().get(**P).execute()["name"] == "my-project"
    types, request = {}, compute.machineTypes().aggregatedList(**P, filter="name eq e2-.*")
    while request:
        page = request.execute()
        for zone, part in page["items"].items():
            types[zone] = {each["name"]: each["guestCpus"] for each in part["machineTypes"]}
        request = compute.machineTypes().aggregatedList_next(request, page)
    assert types["zones/" + ZONE] == {"e2-medium": 2, "e2-micro": 2, "e2-standard-4": 4} and len(types) == 3
    wall = {"name": "wall", "network": "global/networks/default", "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}], "targetTags": ["t"]}
    assert not wait(compute.firewalls().insert(**P, body=wall).execute())
    body = {"name": "demo", "machineType": f"zones/{ZONE}/machineTypes/e2-medium", "labels": {"tnr": "demo"}, "tags": {"items": ["t"]},
            "disks": [{"boot": True, "autoDelete": True, "initializeParams": {
                "sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64", "diskSizeGb": "40"}}],
            "networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}]}
    at = {**P, "zone": ZONE}
    first = compute.instances().insert(**at, body=body, requestId="12345678-1234-4123-8123-123456789abc").execute()
    assert not wait(first)
    again = compute.instances().insert(**at, body=body, requestId="12345678-1234-4123-8123-123456789abc").execute()
    assert again["name"] == first["name"]  # asked twice, done once
    assert reason(compute.instances().insert(**at, body=body)) == "alreadyExists"
    states = [compute.instances().get(**at, instance="demo").execute()["status"] for _ in range(3)]
    assert states == ["PROVISIONING", "STAGING", "RUNNING"]
    listed = compute.instances().aggregatedList(**P, filter="labels.tnr:*").execute()["items"]
    assert [each["name"] for each in listed["zones/" + ZONE]["instances"]] == ["demo"] and len(listed) == 3

    assert reason(compute.instances().setMachineType(**at, instance="demo", body={"machineType": f"zones/{ZONE}/machineTypes/e2-standard-4"})) \
        == "resourceNotReady"
    assert not wait(compute.instances().stop(**at, instance="demo").execute())
    assert compute.instances().get(**at, instance="demo").execute()["status"] == "TERMINATED"
    change = {"machineType": f"zones/{ZONE}/machineTypes/e2-standard-4"}
    assert not wait(compute.instances().setMachineType(**at, instance="demo", body=change).execute())
    assert not wait(compute.instances().start(**at, instance="demo").execute())
    shot = {"name": "before", "sourceDisk": f"zones/{ZONE}/disks/demo", "labels": {"tnr": "demo"}}
    assert not wait(compute.snapshots().insert(**P, body=shot).execute())
    compute.snapshots().list(**P).execute()
    assert compute.snapshots().list(**P).execute()["items"][0]["status"] == "READY"
    assert not wait(compute.instances().delete(**at, instance="demo").execute())
    assert reason(compute.instances().get(**at, instance="demo")) == "notFound"

    mock.ask("knobs", {"sold_out": ["e2-medium@" + ZONE]})
    body["disks"][0]["initializeParams"] = {"sourceSnapshot": "global/snapshots/before", "diskSizeGb": "40"}
    failed = wait(compute.instances().insert(**at, body=body).execute())
    assert failed[0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
    elsewhere = {**P, "zone": "us-central1-b"}
    body["machineType"] = "zones/us-central1-b/machineTypes/e2-medium"
    assert not wait(compute.instances().insert(**elsewhere, body=body).execute())
    assert not wait(compute.instances().delete(**elsewhere, instance="demo").execute())
    assert not wait(compute.firewalls().delete(**P, firewall="wall").execute())
    assert not wait(compute.snapshots().delete(**P, snapshot="before").execute())
    assert mock.ask("left") == []

    billing = discovery.build("cloudbilling", "v1", credentials=credentials, client_options={"api_endpoint": mock.url + "/"},
                              static_discovery=True)
    skus, request = [], billing.services().skus().list(parent="services/6F81-5844-456A")
    while request:
        page = request.execute()
        skus += page["skus"]
        request = billing.services().skus().list_next(request, page)
    assert len(skus) == 26

    # What Google's own library is refused, the mock refuses for the same reason as Google.
    mock.ask("knobs", {"revoked": True})
    try:
        service_account.Credentials.from_service_account_info(key, scopes=["x"]).refresh(google.auth.transport.requests.Request())
        assert False, "a revoked key was taken"
    except google.auth.exceptions.RefreshError as error:
        assert "invalid_grant" in str(error)
    mock.check_description()
print("google-api-python-client lived a machine's whole life at the mock")
