#!/usr/bin/env python3
"""AWS's own Python client against our mock: what it understands of the parts that moto does not have, we have said as AWS would.
It finds keys by single sign-on and from the metadata service, reads the Price List, and meets what we added to moto's EC2."""
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import time

from with_mock import mock_cloud

home = tempfile.TemporaryDirectory()
os.environ["HOME"] = home.name  # botocore looks for it when it is imported
try:
    import boto3
    import botocore.exceptions
    import moto
except ImportError:
    print("skipped: the Python packages boto3 and moto are not installed")
    sys.exit(77)


def refusal(call, **arguments):
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as error:
        return error.response["Error"]["Code"]
    return None


with mock_cloud("aws_mock.py") as mock:
    keys = mock.ask("keys")
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(AWS_ENDPOINT_URL=mock.url, AWS_EC2_METADATA_SERVICE_ENDPOINT=mock.url)

    def client(service, **more):
        return boto3.Session(**more).client(service, region_name="us-east-1")

    tester = {"aws_access_key_id": keys["tester"]["id"], "aws_secret_access_key": keys["tester"]["secret"]}
    # The metadata service, with nothing else there.
    assert client("sts").get_caller_identity()["Arn"].endswith("assumed-role/builder/mock")
    # The service beside a container.
    os.environ.update(AWS_CONTAINER_CREDENTIALS_FULL_URI=mock.url + "/v2/credentials/builder",
                      AWS_CONTAINER_AUTHORIZATION_TOKEN="container-token-0123456789")
    found = boto3.Session().get_credentials()
    assert found.method == "container-role" and found.get_frozen_credentials().access_key == keys["role"]["id"], found.method
    del os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
    # Single sign-on.
    folder = pathlib.Path(home.name, ".aws", "sso", "cache")
    folder.mkdir(parents=True)
    pathlib.Path(home.name, ".aws", "config").write_text(
        "[profile dev]\nsso_start_url = https://us.awsapps.com/start\nsso_region = us-east-1\nsso_account_id = 123456789012\n"
        "sso_role_name = builder\n")
    name = hashlib.sha1(b"https://us.awsapps.com/start").hexdigest() + ".json"
    token = {"startUrl": "https://us.awsapps.com/start", "region": "us-east-1", "accessToken": "sso-token-0123456789",
             "expiresAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))}
    (folder / name).write_text(json.dumps(token))
    assert client("sts", profile_name="dev").get_caller_identity()["Arn"].endswith("assumed-role/builder/mock")
    (folder / name).write_text(json.dumps({**token, "accessToken": "another"}))
    try:
        client("sts", profile_name="dev").get_caller_identity()
        assert False, "a token that nobody has given"
    except botocore.exceptions.UnauthorizedSSOTokenError:
        pass
    # A session of single sign-on renews its token, which is good for once, and keeps the new one.
    config = pathlib.Path(home.name, ".aws", "config")
    config.write_text(config.read_text() + "[profile session]\nsso_session = us\nsso_account_id = 123456789012\nsso_role_name = builder\n"
                      "[sso-session us]\nsso_region = us-east-1\nsso_start_url = https://us.awsapps.com/start\n")
    session = folder / (hashlib.sha1(b"us").hexdigest() + ".json")
    session.write_text(json.dumps({
        **token, "expiresAt": "2026-01-01T00:00:00Z", "clientId": "sso-client", "clientSecret": "sso-client-secret",
        "registrationExpiresAt": "2999-01-01T00:00:00Z", "refreshToken": "sso-refresh-token-0"}))
    assert client("sts", profile_name="session").get_caller_identity()["Arn"].endswith("assumed-role/builder/mock")
    kept = json.loads(session.read_text())
    assert (kept["accessToken"], kept["refreshToken"]) == ("sso-token-renewed-1", "sso-refresh-token-1"), kept
    session.write_text(json.dumps({**kept, "expiresAt": "2026-01-01T00:00:00Z", "refreshToken": "sso-refresh-token-0"}))
    try:
        client("sts", profile_name="session").get_caller_identity()
        assert False, "a refresh token was good twice"
    except botocore.exceptions.TokenRetrievalError:
        pass
    # Roles: by a token that somebody else has signed, and by another role.
    web = pathlib.Path(home.name, "web-token")
    web.write_text("web.identity-token.0123456789")
    os.environ.update(AWS_WEB_IDENTITY_TOKEN_FILE=str(web), AWS_ROLE_ARN=keys["role_arn"], AWS_ROLE_SESSION_NAME="ci")
    assert client("sts").get_caller_identity()["Arn"].endswith("assumed-role/builder/ci")
    web.write_text("another")
    assert refusal(client("sts").get_caller_identity) == "InvalidIdentityToken"
    for name in "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME":
        del os.environ[name]
    pathlib.Path(home.name, ".aws", "credentials").write_text(
        f"[base]\naws_access_key_id={keys['tester']['id']}\naws_secret_access_key={keys['tester']['secret']}\n")
    config.write_text(config.read_text() + f"[profile builder]\nrole_arn={keys['role_arn']}\nsource_profile=base\n"
                      f"[profile deployer]\nrole_arn={keys['deployer_arn']}\nsource_profile=builder\n"
                      f"[profile direct]\nrole_arn={keys['deployer_arn']}\nsource_profile=base\n")
    assert "assumed-role/deployer/" in client("sts", profile_name="deployer").get_caller_identity()["Arn"]
    assert refusal(client("sts", profile_name="direct").get_caller_identity) == "AccessDenied"
    # The Price List, in pages.
    pricing = client("pricing", **tester)
    wanted = {"regionCode": "us-east-1", "operatingSystem": "Linux", "tenancy": "Shared"}
    pages = pricing.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2", Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()])
    products = [json.loads(each) for page in pages for each in page["PriceList"]]
    assert "t3.medium" in [each["product"]["attributes"]["instanceType"] for each in products]
    wrong = {**tester, "aws_secret_access_key": "wrong" * 8}
    assert refusal(client("pricing", **wrong).get_products, ServiceCode="AmazonEC2", Filters=[]) == "InvalidSignatureException"
    # EC2.
    ec2 = client("ec2", **tester)
    assert refusal(client("ec2", **wrong).describe_instances) == "AuthFailure"
    types = [each["InstanceType"] for page in ec2.get_paginator("describe_instance_types").paginate() for each in page["InstanceTypes"]]
    assert len(types) == len(set(types)) > 20
    vpc = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]["VpcId"]
    group = ec2.create_security_group(GroupName="wall", Description="wall", VpcId=vpc)["GroupId"]
    assert refusal(ec2.create_security_group, GroupName="wall", Description="wall", VpcId=vpc) == "InvalidGroup.Duplicate"
    order = {"ImageId": "ami-debian-new", "MinCount": 1, "MaxCount": 1, "InstanceType": "t3.medium", "ClientToken": "once",
             "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [group], "DeleteOnTermination": True}]}
    nowhere = [{**order["NetworkInterfaces"][0], "Groups": ["sg-0123"]}]
    assert refusal(ec2.run_instances, **{**order, "NetworkInterfaces": nowhere}) == "InvalidGroup.NotFound"
    machine = ec2.run_instances(**order)["Instances"][0]["InstanceId"]
    assert ec2.run_instances(**order)["Instances"][0]["InstanceId"] == machine
    assert refusal(ec2.run_instances, **{**order, "InstanceType": "t3.large"}) == "IdempotentParameterMismatch"
    assert refusal(ec2.describe_instances, InstanceIds=[machine]) == "InvalidInstanceID.NotFound"  # not seen at once
    assert refusal(ec2.stop_instances, InstanceIds=[machine]) == "IncorrectInstanceState"
    ec2.get_waiter("instance_running").wait(InstanceIds=[machine], WaiterConfig={"Delay": 0.01})
    assert refusal(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    assert refusal(ec2.modify_instance_attribute, InstanceId=machine, InstanceType={"Value": "t3.large"}) == "IncorrectInstanceState"
    ec2.stop_instances(InstanceIds=[machine])
    assert refusal(ec2.start_instances, InstanceIds=[machine]) == "IncorrectInstanceState"
    ec2.get_waiter("instance_stopped").wait(InstanceIds=[machine], WaiterConfig={"Delay": 0.01})
    image = ec2.create_image(InstanceId=machine, Name="before")["ImageId"]
    assert refusal(ec2.create_image, InstanceId=machine, Name="before") == "InvalidAMIName.Duplicate"
    ec2.terminate_instances(InstanceIds=[machine])
    ec2.get_waiter("instance_terminated").wait(InstanceIds=[machine], WaiterConfig={"Delay": 0.01})
    ec2.delete_security_group(GroupId=group)
    ec2.deregister_image(ImageId=image)
    for snapshot in ec2.describe_snapshots(Filters=[{"Name": "description", "Values": [f"*{image}*"]}])["Snapshots"]:
        ec2.delete_snapshot(SnapshotId=snapshot["SnapshotId"])
    assert mock.ask("left") == [], mock.ask("left")
    mock.ask("knobs", {"clock_ahead_s": 3600})
    assert refusal(ec2.describe_instances) == "RequestExpired"
    mock.check_description()
print("boto3", boto3.__version__, "with moto", moto.__version__, "lived a machine's whole life at the mock")
