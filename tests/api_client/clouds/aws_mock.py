#!/usr/bin/env python3
"""A stateful AWS for tests: moto's EC2, IAM, STS and Cost Explorer, with signatures and policies checked as moto does it.

What moto lacks is added here, as AWS documents it: states on the way to another one, things that cannot be seen for a moment after
they were made, ClientToken, groups in use, names that are taken, the clock, pages of instance types; the Price List, the portal of
single sign-on and the metadata service. Requests are checked against botocore's service models, and so are the replies that are ours.

Beside what cloud_mock.py says, it answers POST /mock/reset (everything as at the start, with new keys), GET /mock/keys,
GET /mock/seen, which is what boto3 sees of the machines, GET /mock/subnets, by their zones, and POST /mock/spent. Knobs: sold_out, quota, closed_regions, clock_ahead_s, console_delete,
slow_to_tell (at first, what was made cannot be ended either).
"""
import base64
import datetime
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
import urllib.parse

from cloud_mock import MockCloud, Refused

IMAGES = [("ami-debian-old", "debian-12-amd64-20240101-1", "136693071363", "x86_64", "2024-01-01T00:00:00.000Z", "available"),
          ("ami-debian-new", "debian-12-amd64-20250316-2", "136693071363", "x86_64", "2025-03-16T00:00:00.000Z", "available"),
          ("ami-debian-broken", "debian-12-amd64-20250401-3", "136693071363", "x86_64", "2025-04-01T00:00:00.000Z", "failed"),
          ("ami-debian-arm", "debian-12-amd64-20250402-4", "136693071363", "arm64", "2025-04-02T00:00:00.000Z", "available"),
          ("ami-debian-false", "debian-12-amd64-20250501-5", "666666666666", "x86_64", "2025-05-01T00:00:00.000Z", "available"),
          ("ami-ubuntu", "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20250305", "099720109477", "x86_64",
           "2025-03-05T00:00:00.000Z", "available")]
images = tempfile.NamedTemporaryFile("w", suffix=".json")
json.dump([{"ami_id": ami, "name": name, "owner_id": owner, "architecture": architecture, "creation_date": created, "state": state,
            "root_device_name": "/dev/xvda", "root_device_type": "ebs", "virtualization_type": "hvm", "public": True,
            "hypervisor": "xen", "image_location": name, "image_type": "machine"}
           for ami, name, owner, architecture, created, state in IMAGES], images)
images.flush()
os.environ["MOTO_AMIS_PATH"] = images.name  # read when moto is imported

try:
    import boto3
    import botocore.awsrequest
    import botocore.loaders
    import botocore.model
    import botocore.parsers
    import botocore.validate
    from moto import settings
    from moto.ce.models import ce_backends
    from moto.core.authorization import ActionAuthenticatorMixin
    from moto.core.responses import ActionResult
    from moto.ec2.models import ec2_backends
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
    from moto.ec2.models.instance_types import InstanceTypeBackend
    from moto.ec2.responses.instances import InstanceResponse
    from moto.iam.access_control import IAMRequest
    from moto.iam.models import iam_backends
    from moto.moto_api._internal.models import moto_api_backend
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.test import EnvironBuilder, run_wsgi_app
except ImportError as missing:
    print("port 0", flush=True)  # tests say that they were skipped
    sys.exit(f"moto and boto3 are needed: {missing}")

from aws_sign_in import ACCOUNT, DEPLOYER, ROLE, SSO_TOKEN, SignIn, refused

REGIONS = ["eu-central-1", "us-east-1", "us-west-2"]
PAGE = 20  # instance types
FAMILIES = ("t3.", "m7i.", "c6i.", "c7gn.", "m6g.", "g4dn.", "m5.", "t2.")
HOURLY = {"t3.micro": "0.0104", "t3.small": "0.0208", "t3.medium": "0.0416", "t3.large": "0.0832", "m7i.large": "0.1008",
          "m7i.xlarge": "0.2016", "c6i.large": "0.085", "c6i.xlarge": "0.17"}  # dollars in us-east-1; others are unknown
EVERYTHING = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})

# --- moto, and what is added to it

InstanceTypeBackend.instance_types = [each for each in InstanceTypeBackend.instance_types
                                      if each["InstanceType"].startswith(FAMILIES)]
RegionsAndZonesBackend.regions = [each for each in RegionsAndZonesBackend.regions if each.name in REGIONS]


def describe_instance_types(self):
    wanted, filters = self._get_param("InstanceTypes", []), self._filters_from_querystring()
    found = self.ec2_backend.describe_instance_types(wanted, filters)
    start = int(self._get_param("NextToken") or 0)
    more = {"NextToken": str(start + PAGE)} if start + PAGE < len(found) else {}
    return ActionResult({"InstanceTypes": found[start:start + PAGE], **more})


InstanceResponse.describe_instance_types = describe_instance_types


# --- the services' models

loader = botocore.loaders.Loader()


def model(service):
    return botocore.model.ServiceModel(loader.load_service_model(service, "service-2"))


MODELS = {"ec2": model("ec2"), "sts": model("sts"), "pricing": model("pricing"), "ce": model("ce"), "portal": model("sso"), "oidc": model("sso-oidc")}


class Models:
    """What /mock/violations tells: parameters that no model knows, values that do not fit one."""

    def __init__(self):
        self.violations = []

    def found(self):
        return True

    def check(self, method, path, query, headers, body, status, reply):
        _, service, _, action = (path + "///").split("/")[:4]
        if service not in MODELS or status >= 400:
            return
        operation = MODELS[service].operation_model(action)
        where = f"{path} -> {status}"
        if service in ("ec2", "sts"):
            for name in urllib.parse.parse_qs(body.decode(), keep_blank_values=True):
                if name not in ("Action", "Version") and not self.known(operation.input_shape, name.split(".")):
                    self.violations.append(f"{where}: the request has '{name}', which the model does not know")
            return
        if service != "portal":
            self.fits(where + ", request", json.loads(body), operation.input_shape)
        if service == "ce":
            return  # moto's own reply
        parser = botocore.parsers.create_parser(MODELS[service].metadata["protocol"])
        raw = json.loads(reply)
        self.names(where + ", reply", raw, operation.output_shape)
        parsed = parser.parse({"status_code": status, "headers": {}, "body": reply}, operation.output_shape)
        parsed.pop("ResponseMetadata")
        self.fits(where + ", reply", parsed, operation.output_shape)

    def fits(self, where, value, shape):
        report = botocore.validate.ParamValidator().validate(value, shape)
        if report.has_errors():
            self.violations.append(f"{where}: {report.generate_report()}")

    # Parsers pass over what a model does not name, so a misspelt field would pass.
    def names(self, where, value, shape):
        if shape.type_name == "structure":
            known = {member.serialization.get("name", name): member for name, member in shape.members.items()}
            for name, part in value.items():
                if name not in known:
                    self.violations.append(f"{where}: '{name}' is not in the model")
                else:
                    self.names(where, part, known[name])
        elif shape.type_name == "list":
            for part in value:
                self.names(where, part, shape.member)

    # EC2's names: queryName, else locationName with a capital; lists are numbered.
    def known(self, shape, parts):
        if not parts:
            return shape.type_name not in ("structure", "list")
        if shape.type_name == "list":
            return parts[0].isdigit() and self.known(shape.member, parts[1:])
        if shape.type_name != "structure":
            return False
        for name, member in shape.members.items():
            location = member.serialization.get("name", name)
            spelt = member.serialization.get("queryName") or location[0].upper() + location[1:]
            if spelt == parts[0]:
                return self.known(member, parts[1:])
        return False


class Aws(SignIn, MockCloud):
    malformed = b'<?xml version="1.0"?><DescribeInstancesResponse><reservationSet><item>'

    def __init__(self):
        super().__init__("aws", "")
        self.description = Models()
        self.app = DomainDispatcherApplication(create_backend_app)
        self.reset()

    def reset(self):
        settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        moto_api_backend.reset()
        iam = iam_backends[ACCOUNT]["aws"]
        self.keys = {}
        for user, policy in (("tester", EVERYTHING), ("nobody", None)):
            iam.create_user("us-east-1", user)
            if policy:
                iam.put_user_policy(user, "all", policy)
            key = iam.create_access_key(user)
            self.keys[user] = {"id": key.access_key_id, "secret": key.secret_access_key}
        trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}]}
        iam.create_role("builder", json.dumps(trust), "/", None, "", [], "3600")
        iam.put_role_policy("builder", "all", EVERYTHING)
        iam.create_role("deployer", json.dumps(trust), "/ops/", None, "", [], "3600")
        iam.put_role_policy("deployer", "all", EVERYTHING)
        self.changing, self.unseen, self.orders = {}, {}, {}
        self.sso_tokens, self.refresh_token, self.renewals = {SSO_TOKEN}, "sso-refresh-token-0", 0
        self.faults, self.log, self.knobs = [], [], {}
        self.description.violations = []
        settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count = 0, 0
        # Keys that expire, for the portal and the metadata service.
        role = self.boto("sts", "us-east-1").assume_role(RoleArn=ROLE, RoleSessionName="mock")["Credentials"]
        self.role = {"id": role["AccessKeyId"], "secret": role["SecretAccessKey"], "token": role["SessionToken"]}

    def control(self, path, body):
        if path == "/mock/reset":
            self.reset()
        elif path == "/mock/keys":
            return {**self.keys, "role": self.role, "role_arn": ROLE, "deployer_arn": DEPLOYER}
        elif path == "/mock/seen":
            return self.seen()
        elif path == "/mock/subnets":
            return {each["AvailabilityZone"]: each["SubnetId"] for each in self.boto("ec2", "us-east-1").describe_subnets()["Subnets"]}
        elif path == "/mock/spent":
            ce_backends[ACCOUNT]["aws"].cost_usage_results_queue.append(
                {"ResultsByTime": [{"TimePeriod": {"Start": "2026-01-01", "End": "2026-02-01"}, "Total": {"UnblendedCost": body},
                                    "Groups": [], "Estimated": True}]})
        else:
            for machine in (body or {}).get("console_delete", []) if path == "/mock/knobs" else []:
                region, instance = machine.split("/")
                self.boto("ec2", region).terminate_instances(InstanceIds=[instance])
            return super().control(path, body)
        return {}

    def clock_ahead_s(self):
        return self.knobs.get("clock_ahead_s", 0)

    # --- requests

    def path_of(self, path, headers, body):
        if path.startswith("/federation/"):
            return "/portal/any/GetRoleCredentials"
        if path == "/token":
            return "/oidc/any/CreateToken"
        if path.startswith("/latest/"):
            return "/metadata" + path
        if path.startswith("/v2/credentials/"):
            return "/container" + path
        if b"Action=AssumeRoleWithWebIdentity" in body:
            return "/sts/any/AssumeRoleWithWebIdentity"
        scope = re.search(r"Credential=[^/]*/\d*/([^/]*)/([^/]*)/", headers.get("Authorization", ""))
        if not scope:
            return path
        target = headers.get("X-Amz-Target")
        action = target.split(".")[-1] if target else urllib.parse.parse_qs(body.decode()).get("Action", [""])[-1]
        return f"/{scope[2]}/{scope[1]}/{action}"

    def answer(self, method, path, query, headers, body):
        name = self.path_of(path, headers, body)
        if name.startswith("/portal/"):
            return self.portal(urllib.parse.parse_qs(query), headers)
        if name.startswith("/oidc/"):
            return self.renew(json.loads(body))
        if name.startswith("/metadata/"):
            return self.metadata(method, path, headers)
        if name.startswith("/container/"):
            return self.container(headers)
        if name == "/sts/any/AssumeRoleWithWebIdentity":
            return self.by_web_identity(method, path, query, headers, body)
        if name.endswith("/AssumeRole"):
            self.check_trust(headers, urllib.parse.parse_qs(body.decode())["RoleArn"][0])
        _, service, region, action = (name + "///").split("/")[:4]
        self.check_clock(headers)
        if service == "pricing":
            return self.products(headers, body, action)
        form = {key: values[-1] for key, values in urllib.parse.parse_qs(body.decode()).items()} if service == "ec2" else {}
        if region in self.knobs.get("closed_regions", []):
            raise refused("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)
        if service == "ec2":
            if done := self.before(region, action, form):
                return done
        status, reply, more = self.moto(method, path, query, headers, body)
        if service == "ec2" and status == 200:
            self.after(region, action, form, reply)
        return status, reply, more

    def moto(self, method, path, query, headers, body):
        environ = EnvironBuilder(path=path, query_string=query, method=method, base_url="http://" + headers["Host"],
                                 headers=list(headers.items()), input_stream=io.BytesIO(body)).get_environ()
        chunks, status, more = run_wsgi_app(self.app, environ)
        wanted = {key: value for key, value in more.items() if key.lower() in ("content-type", "x-amzn-requestid")}
        return int(status.split()[0]), b"".join(chunks), wanted

    def check_clock(self, headers):
        signed = datetime.datetime.strptime(headers.get("X-Amz-Date", "20000101T000000Z"), "%Y%m%dT%H%M%SZ")
        off = time.time() + self.clock_ahead_s() - signed.replace(tzinfo=datetime.timezone.utc).timestamp()
        if off > 300:
            raise refused("RequestExpired", "Request has expired.")
        if off < -300:
            raise refused("RequestTimeTooSkewed", "The difference between the request time and the current time is too large.", 403)

    # --- EC2 as moto does not do it

    def instance(self, region, instance):
        return next((each for each in ec2_backends[ACCOUNT][region].all_instances() if each.id == instance), None)

    def before(self, region, action, form):
        instance = form.get("InstanceId.1") or form.get("InstanceId")
        state = self.instance(region, instance).state if instance and self.instance(region, instance) else None
        self.was = state
        if action in ("DescribeInstances", "TerminateInstances"):
            if self.unseen.pop((action, instance), False):
                raise refused("InvalidInstanceID.NotFound", f"The instance ID '{instance}' does not exist")
            for each, (name, code, looks) in list(self.changing.items()) if action == "DescribeInstances" else ():
                if looks:
                    self.changing[each] = (name, code, looks - 1)
                else:
                    self.set_state(*each, name, code)
                    del self.changing[each]
        wrong = {"StopInstances": ("pending", "terminated"), "StartInstances": ("stopping", "shutting-down", "terminated")}
        if state in wrong.get(action, ()) or (action == "ModifyInstanceAttribute" and "InstanceType.Value" in form and state != "stopped"):
            raise refused("IncorrectInstanceState", f"The instance '{instance}' is not in a state from which it can be changed.")
        if action == "DeleteSecurityGroup" and self.group_in_use(region, form["GroupId"]):
            raise refused("DependencyViolation", f"resource {form['GroupId']} has a dependent object")
        if action == "CreateImage" and form["Name"] in [each.name for each in ec2_backends[ACCOUNT][region].amis.values()]:
            raise refused("InvalidAMIName.Duplicate", f"AMI name {form['Name']} is already in use by AMI ami-0")
        if action == "RunInstances":
            return self.order(region, form)
        return None

    def order(self, region, form):
        token = form.get("ClientToken")
        order = hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()
        if token and token in self.orders:  # without one, each is an order of its own
            known, reply = self.orders[token]
            if known != order:
                raise refused("IdempotentParameterMismatch", "The client token has been used with other parameters.")
            return 200, reply, {"Content-Type": "text/xml"}
        group = form.get("NetworkInterface.1.SecurityGroupId.1")
        if group and not ec2_backends[ACCOUNT][region].get_security_group_from_id(group):
            raise refused("InvalidGroup.NotFound", f"The security group '{group}' does not exist")  # moto would make it
        if form["InstanceType"] in self.knobs.get("sold_out", []):
            raise refused("InsufficientInstanceCapacity", "We currently do not have sufficient capacity.", 500)
        if self.knobs.get("quota"):
            raise refused("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of 32 allows.")
        return None

    def after(self, region, action, form, reply):
        changed = {"StopInstances": ("stopping", 64, "stopped", 80), "StartInstances": ("pending", 0, "running", 16),
                   "TerminateInstances": ("shutting-down", 32, "terminated", 48)}
        if action == "RunInstances":
            made = re.search(rb"<instanceId>(i-[0-9a-f]+)</instanceId>", reply)[1].decode()
            self.orders[form.get("ClientToken", made)] = (hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest(), reply)
            self.set_state(region, made, "pending", 0)
            self.changing[region, made] = ("running", 16, 1)
            self.unseen["DescribeInstances", made] = True
            if self.knobs.get("slow_to_tell"):
                self.unseen["TerminateInstances", made] = True
            self.boot(made, self.instance(region, made).public_ip, base64.b64decode(form.get("UserData", "")))
        elif action in changed and self.was != changed[action][2]:
            now, code, then, then_code = changed[action]
            self.set_state(region, form["InstanceId.1"], now, code)
            self.changing[region, form["InstanceId.1"]] = (then, then_code, 1)

    def set_state(self, region, instance, name, code):
        state = self.instance(region, instance)._state
        state.name, state.code = name, code

    def group_in_use(self, region, group):
        return any(group in [each.id for nic in instance.nics.values() for each in nic.group_set]
                   for instance in ec2_backends[ACCOUNT][region].all_instances() if instance.state != "terminated")

    # --- services that moto does not have

    def products(self, headers, body, action):
        request = IAMRequest(account_id=ACCOUNT, method="POST", path="/", data={}, body=body, headers=headers, action=action)
        try:
            request.check_signature()
            request.check_action_permitted("*")
        except Exception as error:  # moto's, in XML
            denied = "AccessDenied" in type(error).__name__ or "authorized" in str(error)
            code = "AccessDeniedException" if denied else "InvalidSignatureException"
            raise Refused(400, {"__type": code, "message": "not allowed"}) from error
        question = json.loads(body)
        fields = {each["Field"]: each["Value"] for each in question["Filters"]}
        factor = {"us-east-1": 1, "us-west-2": 1, "eu-central-1": 1.15}[fields["regionCode"]]
        if question["ServiceCode"] == "AmazonVPC":
            found = [product({"usagetype": "PublicIPv4:IdleAddress"}, "Hrs", "0.0060000000"),
                     product({"usagetype": "EUC1-PublicIPv4:InUseAddress"}, "Hrs", "0.0050000000")]
        elif fields.get("volumeApiName") == "gp3":
            found = [product({"volumeApiName": "gp3"}, "GB-Mo", "%.10f" % (0.08 * factor))]
        else:
            found = [product({"instanceType": name}, "Hrs", "%.10f" % (float(price) * factor)) for name, price in HOURLY.items()
                     if fields.get("instanceType", name) == name]
        start = int(question.get("NextToken", 0))
        size = min(question.get("MaxResults", 100), 5)  # AWS may send fewer than it was asked for
        more = {"NextToken": str(start + size)} if start + size < len(found) else {}
        return 200, {"FormatVersion": "aws_v1", "PriceList": found[start:start + size], **more}, {"Content-Type": "application/x-amz-json-1.1"}

    # --- what boto3 sees

    def boto(self, service, region):
        client = boto3.client(service, region_name=region, endpoint_url="http://127.0.0.1:1",
                              aws_access_key_id=self.keys["tester"]["id"], aws_secret_access_key=self.keys["tester"]["secret"])
        client.meta.events.register("before-send", self.in_process)
        return client

    def in_process(self, request, **_):
        headers = {name: value.decode() if isinstance(value, bytes) else value for name, value in request.headers.items()}
        headers["Host"] = urllib.parse.urlsplit(request.url).netloc
        body = request.body if isinstance(request.body, bytes) else (request.body or "").encode()
        try:
            status, reply, more = self.answer(request.method, "/", "", headers, body)
        except Refused as no:
            status, reply, more = no.status, no.body, no.headers

        class Raw(io.BytesIO):
            def stream(self, **_):
                yield self.read()
        return botocore.awsrequest.AWSResponse(request.url, status, more, Raw(reply))

    def client(self, url, folder):
        key = self.keys["tester"]
        return {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": key["id"], "AWS_SECRET_ACCESS_KEY": key["secret"], "AWS_REGION": "us-east-1"}

    def left(self):
        things = []
        for region in REGIONS:
            ec2 = self.boto("ec2", region)
            for reservation in ec2.describe_instances()["Reservations"]:
                things += ["instance " + named(each) for each in reservation["Instances"] if each["State"]["Name"] != "terminated"]
            things += ["volume " + named(each) for each in ec2.describe_volumes()["Volumes"]]
            things += ["group " + each["GroupName"] for each in ec2.describe_security_groups()["SecurityGroups"]
                       if each["GroupName"] != "default"]
            things += ["interface" for each in ec2.describe_network_interfaces()["NetworkInterfaces"]]
            things += ["image " + each["Name"] for each in ec2.describe_images(Owners=["self"])["Images"]]
            things += ["snapshot" for each in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"] if each["OwnerId"] == ACCOUNT]
            things += ["key" for each in ec2.describe_key_pairs()["KeyPairs"]]
        return sorted(things)

    def costly(self):
        return [each for each in self.left() if each.split()[0] in ("instance", "volume", "image", "snapshot")]

    def seen(self):
        machines = []
        for region in REGIONS:
            ec2 = self.boto("ec2", region)
            for reservation in ec2.describe_instances()["Reservations"]:
                for each in reservation["Instances"]:
                    if each["State"]["Name"] == "terminated":
                        continue
                    data = ec2.describe_instance_attribute(InstanceId=each["InstanceId"], Attribute="userData")["UserData"]
                    groups = ec2.describe_security_groups(GroupIds=[group["GroupId"] for nic in each["NetworkInterfaces"]
                                                                    for group in nic["Groups"]])
                    volumes = ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [each["InstanceId"]]}])
                    machines.append({
                        "region": region, "type": each["InstanceType"], "image": each["ImageId"], "tags": tags(each),
                        "zone": each["Placement"]["AvailabilityZone"], "user_data": data.get("Value", ""),
                        "tokens": each.get("MetadataOptions", {}).get("HttpTokens"),
                        "groups": [{"name": group["GroupName"], "tags": tags(group), "vpc": group["VpcId"] == each["VpcId"],
                                    "open": sorted([rule["FromPort"], rule["ToPort"], [r["CidrIp"] for r in rule["IpRanges"]],
                                                    [r["CidrIpv6"] for r in rule["Ipv6Ranges"]]] for rule in group["IpPermissions"])}
                                   for group in groups["SecurityGroups"]],
                        "volumes": [{"size": volume["Size"], "type": volume["VolumeType"], "tags": tags(volume),
                                     "ends": [disk["Ebs"]["DeleteOnTermination"] for disk in each["BlockDeviceMappings"]
                                              if disk["Ebs"]["VolumeId"] == volume["VolumeId"]]}
                                    for volume in volumes["Volumes"]]})
        return machines


def tags(thing):
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", [])}


def named(thing):
    return tags(thing).get("tnr", "?")


def product(attributes, unit, price):
    dimension = {"unit": unit, "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": price}}
    reserved = {"dear": {"priceDimensions": {"d": {"unit": unit, "pricePerUnit": {"USD": "9999.0"}}}}}
    return json.dumps({"product": {"attributes": attributes}, "serviceCode": "AmazonEC2",
                       "terms": {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.DIM": dimension}}}, "Reserved": reserved}})


if __name__ == "__main__":
    Aws().serve()
