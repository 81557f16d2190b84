#!/usr/bin/env python3
"""A stateful Google Compute Engine: machine types, the billing catalogue, instances, disks, snapshots, firewall rules, operations; the
token endpoint, which checks signatures with openssl, and the metadata server.

Nothing takes time: an operation ends at the second look. Knobs: sold_out (["e2-medium@us-central1-a"]), quota (true), now (seconds since 1970,
for the token endpoint; default: 2026-01-02T03:04:05Z), expire (true: the tokens given until now no longer count), revoked (true: the key is refused),
disabled (true: the billing catalogue is), no_network (true), console_delete (["zone/name"]). POST /mock/key {"url": ours} is the key file of a service account;
GET /mock/key likewise of a user, POST /mock/federated {"url": ours, "source": credential_source} of somebody whom another provider knows:
"hidden-subject-token" is exchanged for a token ("provider": "direct") or for one of the service account.
"""
import base64
import functools
import json
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.parse

from cloud_mock import MockCloud, Refused, route
from gcp_discovery import Discovery

PROJECT = "/compute/v1/projects/my-project"
WWW = "https://www.googleapis.com/compute/v1/projects/my-project"
NOW = "2026-01-02T03:04:05.000-07:00"
EMAIL = "tnr@my-project.iam.gserviceaccount.com"
POOL = "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/ci/providers/"
ZONES = ["us-central1-a", "us-central1-b", "europe-west3-a"]
# name, CPUs, memory in MiB, zones, what else the list says
TYPES = [("e2-medium", 2, 4096, ZONES, {"isSharedCpu": True}),
         ("e2-micro", 2, 1024, ZONES, {"isSharedCpu": True}),
         ("e2-standard-4", 4, 16384, ZONES, {}),
         ("n2-standard-2", 2, 8192, ["us-central1-a", "us-central1-b"], {}),
         ("n1-standard-1", 1, 3840, ZONES, {"deprecated": {"state": "DEPRECATED"}}),
         ("c3-standard-4-lssd", 4, 16384, ["us-central1-a"], {}),
         ("n2-standard-128", 128, 524288, ["us-central1-a"], {}),
         ("c3-arm-1", 1, 4096, ["us-central1-a"], {"architecture": "ARM64"}),
         ("t2a-standard-1", 1, 4096, ["us-central1-a"], {"architecture": "ARM64"}),
         ("g2-standard-4", 4, 16384, ["us-central1-a"], {"accelerators": [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}]})]
# description, unit, rate in billionths of a dollar by region
SKUS = [("E2 Instance Core running in Americas", "h", {"us-central1": 21811590}),
        ("E2 Instance Ram running in Americas", "GiBy.h", {"us-central1": 2923530}),
        ("E2 Instance Core running in Frankfurt", "h", {"europe-west3": 28102000}),
        ("E2 Instance Ram running in Frankfurt", "GiBy.h", {"europe-west3": 3767000}),
        ("N2 Instance Core running in Americas", "h", {"us-central1": 31611000}),
        ("N2 Instance Ram running in Americas", "GiBy.h", {"us-central1": 4237000}),
        ("E2 Custom Instance Core running in Americas", "h", {"us-central1": 999}),
        ("N2 Sole Tenancy Instance Core running in Americas", "h", {"us-central1": 999}),
        ("Balanced PD Capacity", "GiBy.mo", {"us-central1": 100000000}),
        ("Balanced PD Capacity in Frankfurt", "GiBy.mo", {"europe-west3": 120000000}),
        ("Regional Balanced PD Capacity", "GiBy.mo", {"us-central1": 999}),
        ("Storage PD Snapshot in US", "GiBy.mo", {"us": 50000000}),
        ("External IP Charge on a Standard VM", "h", {"global": 5000000})]


def refuse(status, reason, message):
    raise Refused(status, {"error": {"code": status, "message": message,
                                     "errors": [{"domain": "global", "reason": reason, "message": message}]}})


def unbase64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Google(MockCloud):
    def __init__(self):
        super().__init__("none.json", "")
        self.description = Discovery("compute.v1.json", "cloudbilling.v1.json")
        self.instances, self.snapshots, self.walls, self.operations, self.asked = {}, {}, {}, {}, {}

    # The service account's private key: of each twin its own.
    @functools.cached_property
    def key(self):
        openssl = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
        return subprocess.run(openssl, check=True, capture_output=True).stdout

    def unauthorized(self):
        refuse(401, "authError", "Request had invalid authentication credentials.")

    def unknown_path(self):
        refuse(404, "notFound", "The requested URL was not found on this server.")

    def client(self, url, folder):
        self.knobs["now"] = int(time.time())  # which is another one where the driver is tested by itself
        (folder / "key.json").write_text(json.dumps(self.control("/mock/key", {"url": url})))
        return {"CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": url + "/compute/v1/", "NO_GCE_CHECK": "true",
                "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING": url + "/", "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "key.json")}

    def left(self):
        return [each["name"] for kind in (self.instances, self.walls, self.snapshots) for each in kind.values()]

    def costly(self):
        return [each["name"] for kind in (self.instances, self.snapshots) for each in kind.values()]

    def control(self, path, body):
        if path == "/mock/key":
            if not body:
                return {"type": "authorized_user", "client_id": "gcloud", "client_secret": "hidden-client-secret", "account": "me@example.com",
                        "refresh_token": "hidden-refresh-token", "quota_project_id": "my-project"}
            return {"type": "service_account", "project_id": "my-project", "client_email": EMAIL, "private_key_id": "k1",
                    "private_key": self.key.decode(), "token_uri": body["url"] + "/token"}
        if path == "/mock/federated":
            return self.federated(body["url"], body["source"], body.get("provider", "by-account"))
        if path == "/mock/instances":
            return list(self.instances.values())
        if path == "/mock/walls":
            return self.walls
        if path == "/mock/many":
            one = next(iter(self.instances.values()))
            for index in range(body["count"]):
                name = f"copy-{index}"
                self.instances["us-central1-a", name] = dict(one, name=name, labels={"tnr": name})
            return {}
        return super().control(path, body)

    # --- tokens

    def answer(self, method, path, query, headers, body):
        if self.knobs.pop("expire", False):
            self.token += "-next"
        if path == "/token" and method == "POST":
            return self.give_token(dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True)), headers)
        if path == "/sts/v1/token" and method == "POST":
            return self.exchange(dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True)), headers)
        if path == f"/iam/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken":
            return self.impersonate(json.loads(body), headers)
        if path == "/subject":
            if headers.get("Authorization") != "Bearer hidden-request-token":
                raise Refused(401, {"message": "who?"})
            return 200, {"value": "hidden-subject-token", "count": 1}
        if path.startswith("/computeMetadata/"):
            if headers.get("Metadata-Flavor") != "Google":
                raise Refused(403, {"error": "Missing required header"})
            if path.endswith("/project/project-id"):
                return 200, b"my-project"
            return 200, {"access_token": self.token, "expires_in": 3599, "token_type": "Bearer"}
        return super().answer(method, path, query, headers, body)

    def give_token(self, form, headers):
        def no(description):
            raise Refused(400, {"error": "invalid_grant", "error_description": description})
        if headers["Content-Type"] != "application/x-www-form-urlencoded":
            raise Refused(400, {"error": "invalid_request", "error_description": "not a form"})
        if self.knobs.get("revoked"):
            no("Token has been expired or revoked.")
        if form["grant_type"] == "refresh_token":
            if (form["client_secret"], form["refresh_token"]) != ("hidden-client-secret", "hidden-refresh-token"):
                no("Bad Request")
        elif form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer":
            self.check_assertion(form["assertion"], no)
        else:
            no("unsupported grant")
        return 200, {"access_token": self.token, "expires_in": 3599, "token_type": "Bearer"}

    # A file as `gcloud iam workload-identity-pools create-cred-config` writes it.
    def federated(self, url, source, provider):
        key = {"universe_domain": "googleapis.com", "type": "external_account", "audience": POOL + provider,
               "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": url + "/sts/v1/token",
               "credential_source": source}
        account = {} if provider == "direct" else {
            "service_account_impersonation_url": f"{url}/iam/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken"}
        return {**key, **account}

    def exchange(self, form, headers):
        def no(code, description):
            raise Refused(400, {"error": code, "error_description": description})
        if form["grant_type"] == "refresh_token":  # of a workforce
            proof = "Basic " + base64.b64encode(b"client-0:hidden-client-secret").decode()
            if (form["refresh_token"], headers.get("Authorization")) != ("hidden-refresh-token", proof):
                no("invalid_grant", "Bad Request")
            return 200, {"access_token": self.token, "expires_in": 3599, "token_type": "Bearer"}
        if form["grant_type"] != "urn:ietf:params:oauth:grant-type:token-exchange" or not form["audience"].startswith(POOL):
            no("invalid_request", "Invalid value for \"audience\".")
        if (form["requested_token_type"], form["subject_token_type"]) != (
                "urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:jwt"):
            no("invalid_request", "Invalid token type.")
        if form["subject_token"] != "hidden-subject-token":
            no("invalid_grant", f"The ID Token {form['subject_token']} issued by https://idp.example has expired.")
        token = self.token if form["audience"].endswith("/direct") else "hidden-federated-token"
        return 200, {"access_token": token, "issued_token_type": form["requested_token_type"], "token_type": "Bearer", "expires_in": 3599}

    def impersonate(self, body, headers):
        if headers.get("Authorization") != "Bearer hidden-federated-token" and self.knobs.get("impersonator") != headers["Authorization"]:
            refuse(403, "forbidden", "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).")
        if "https://www.googleapis.com/auth/cloud-platform" not in body["scope"]:
            refuse(400, "badRequest", "Request contains an invalid argument.")
        return 200, {"accessToken": self.token, "expireTime": "2040-01-02T03:04:05Z"}

    def check_assertion(self, assertion, no):
        head, claims, signature = assertion.split(".")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "signature").write_bytes(unbase64(signature))
            public = subprocess.run(["openssl", "pkey", "-pubout"], input=self.key, check=True, capture_output=True).stdout
            (folder / "public").write_bytes(public)
            verified = subprocess.run(
                ["openssl", "dgst", "-sha256", "-verify", folder / "public", "-signature", folder / "signature"],
                input=f"{head}.{claims}".encode(), capture_output=True)
        if verified.returncode != 0:
            no("Invalid JWT Signature.")
        head, claims = json.loads(unbase64(head)), json.loads(unbase64(claims))
        if head["alg"] != "RS256" or claims["iss"] != EMAIL or not claims["aud"].endswith("/token") or "scope" not in claims:
            no("Invalid JWT")
        now = self.knobs.get("now", 1767323045)
        if abs(claims["iat"] - now) > 600 or not 0 < claims["exp"] - claims["iat"] <= 3600:
            no("Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
               "Check your iat and exp values in the JWT claim.")

    # --- operations

    def begin(self, kind, zone, target, finish=lambda: None, error=None):
        name = f"operation-{self.new_id()}"
        place = f"{WWW}/zones/{zone}" if zone else f"{WWW}/global"
        operation = {"kind": "compute#operation", "id": str(self.last_id), "name": name, "operationType": kind, "targetLink": target,
                     "targetId": "1", "status": "RUNNING", "user": EMAIL, "progress": 0, "insertTime": NOW, "startTime": NOW,
                     "selfLink": f"{place}/operations/{name}"}
        if zone:
            operation["zone"] = place
        self.operations[name] = (operation, finish, error)
        return 200, dict(operation)

    # The same request id means the same request.
    def once(self, query, run):
        key = query.get("requestId") or f"none-{self.new_id()}"
        if key not in self.asked:
            self.asked[key] = run()
        return self.asked[key]

    def operation(self, name):
        if name not in self.operations:
            refuse(404, "notFound", f"The resource '{name}' was not found")
        operation, finish, error = self.operations[name]
        if operation["status"] != "DONE":
            operation.update(status="DONE", progress=100, endTime=NOW)
            if error:
                operation.update(error={"errors": [error]}, httpErrorStatusCode=503, httpErrorMessage="SERVICE UNAVAILABLE")
            else:
                finish()
        return 200, operation

    @route("GET", PROJECT + r"/zones/([^/]+)/operations/([^/]+)")
    def zone_operation(self, query, body, zone, name):
        return self.operation(name)

    @route("POST", PROJECT + r"/zones/([^/]+)/operations/([^/]+)/wait")
    def wait_in_zone(self, query, body, zone, name):
        self.operation(name)
        return self.operation(name)

    @route("POST", PROJECT + r"/global/operations/([^/]+)/wait")
    def wait_for(self, query, body, name):
        self.operation(name)
        return self.operation(name)

    @route("GET", PROJECT + r"/global/operations/([^/]+)")
    def global_operation(self, query, body, name):
        return self.operation(name)

    # --- what can be bought

    @route("GET", PROJECT)
    def project(self, query, body):
        return 200, {"kind": "compute#project", "id": "1", "name": "my-project", "creationTimestamp": NOW, "selfLink": WWW}

    def machine_type(self, zone, name, cpus, memory, more):
        return {"kind": "compute#machineType", "id": "1", "name": name, "guestCpus": cpus, "memoryMb": memory, "zone": zone, "isSharedCpu": False,
                "architecture": "X86_64", "selfLink": f"{WWW}/zones/{zone}/machineTypes/{name}", **more}

    # Zones as pages: whoever reads the first only knows one zone.
    @route("GET", PROJECT + "/aggregated/machineTypes")
    def machine_types(self, query, body):
        wanted = re.fullmatch(r"name eq (.*)", query.get("filter", "name eq .*"))[1]
        page = int(query.get("pageToken", 0))
        zone = ZONES[page]
        types = [self.machine_type(zone, name, cpus, memory, more) for name, cpus, memory, zones, more in TYPES
                 if zone in zones and re.fullmatch(wanted, name)]
        reply = {"kind": "compute#machineTypeAggregatedList", "id": "x", "items": {f"zones/{zone}": {"machineTypes": types}}}
        if page + 1 < len(ZONES):
            reply["nextPageToken"] = str(page + 1)
        return 200, reply

    @route("GET", "/v1/services/6F81-5844-456A/skus")
    def skus(self, query, body):
        if self.knobs.get("disabled"):
            refuse(403, "accessNotConfigured", "Cloud Billing API has not been used in project 1 before or it is disabled.")
        half = len(SKUS) // 2
        second = query.get("pageToken") == "second"
        skus = []
        for description, unit, rates in SKUS[half:] if second else SKUS[:half]:
            for region, nanos in rates.items():
                free = [{"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 0}}] if unit == "h" else []
                rate = {"startUsageAmount": len(free), "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": nanos}}
                skus += [{"name": "services/6F81-5844-456A/skus/0000-0000-0000", "skuId": "0000-0000-0000", "description": description,
                          "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "resourceGroup": "CPU",
                                       "usageType": usage}, "serviceRegions": [region], "serviceProviderName": "Google",
                          "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "displayQuantity": 1, "tieredRates": free + [rate]}}]}
                         for usage in ("OnDemand",)]
                skus += [dict(skus[-1], category=dict(skus[-1]["category"], usageType="Preemptible"),
                              pricingInfo=[{"pricingExpression": {"usageUnit": unit, "tieredRates": [
                                  {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 1}}]}}])]
        return 200, {"skus": skus, "nextPageToken": "" if second else "second"}

    # --- instances

    def found(self, kind, key, what):
        if key not in kind:
            refuse(404, "notFound", f"The resource 'projects/my-project/{what}' was not found")
        return kind[key]

    def instance(self, zone, name):
        for each in self.knobs.pop("console_delete", []):
            self.instances.pop(tuple(each.split("/")), None)
        return self.found(self.instances, (zone, name), f"zones/{zone}/instances/{name}")

    # What a look at an instance changes. What stops or goes comes to its end, whether anybody asks about the operation or not.
    def seen(self, instance):
        shown = dict(instance)
        for operation, finish, _ in list(self.operations.values()):
            if operation["targetLink"] == instance["selfLink"] and operation["status"] != "DONE" and instance["status"] == "STOPPING":
                operation["progress"] += 30
                if operation["progress"] >= 100:
                    self.operation(operation["name"])
        instance["status"] = {"PROVISIONING": "STAGING", "STAGING": "RUNNING"}.get(instance["status"], instance["status"])
        return shown

    @route("GET", PROJECT + "/aggregated/instances")
    def list_instances(self, query, body):
        for each in self.knobs.pop("console_delete", []):
            self.instances.pop(tuple(each.split("/")), None)
        wanted = query.get("filter", "")
        if wanted not in ("", "labels.tnr:*"):
            refuse(400, "invalid", f"Invalid value for field 'filter': '{wanted}'")
        here = [each for each in self.instances.values() if not wanted or "tnr" in each.get("labels", {})]
        per_page, start = int(query.get("maxResults", 500)), int(query.get("pageToken", 0))
        items = {f"zones/{zone}": {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results."}} for zone in ZONES}
        for each in here[start:start + per_page]:
            items["zones/" + each["zone"].split("/")[-1]] = part = items.get("zones/" + each["zone"].split("/")[-1], {})
            part.pop("warning", None)
            part.setdefault("instances", []).append(self.seen(each))
        reply = {"kind": "compute#instanceAggregatedList", "id": "x", "items": items, "selfLink": WWW}
        if start + per_page < len(here):
            reply["nextPageToken"] = str(start + per_page)
        return 200, reply

    @route("GET", PROJECT + r"/zones/([^/]+)/instances/([^/]+)")
    def get_instance(self, query, body, zone, name):
        return 200, self.seen(self.instance(zone, name))

    def known_type(self, zone, url):
        name = url.split("/")[-1]
        if not url.endswith(f"zones/{zone}/machineTypes/{name}") or not any(name == each[0] and zone in each[3] for each in TYPES):
            refuse(400, "invalid", f"Invalid value for field 'resource.machineType': '{url}'. Machine type does not exist in zone '{zone}'.")
        return name

    @route("POST", PROJECT + r"/zones/([^/]+)/instances")
    def insert(self, query, body, zone):
        return self.once(query, lambda: self.insert_once(body, zone))

    def insert_once(self, body, zone):
        name, link = body["name"], f"{WWW}/zones/{zone}/instances/{body['name']}"
        kind = self.known_type(zone, body["machineType"])
        if (zone, name) in self.instances:
            refuse(409, "alreadyExists", f"The resource 'projects/my-project/zones/{zone}/instances/{name}' already exists")
        disk = body["disks"][0]["initializeParams"]
        size = int(disk.get("diskSizeGb", 10))
        if "sourceSnapshot" in disk:
            shot = self.found(self.snapshots, disk["sourceSnapshot"].split("/")[-1], disk["sourceSnapshot"])
            if size < int(shot["diskSizeGb"]):
                refuse(400, "invalid", "Requested disk size cannot be smaller than the snapshot size")
        elif not re.fullmatch(r"(https?://.*/)?projects/[^/]+/global/images/(family/)?[^/]+", disk.get("sourceImage", "")):
            refuse(404, "notFound", f"The resource '{disk.get('sourceImage')}' was not found")
        if "diskType" in disk and not disk["diskType"].endswith(f"zones/{zone}/diskTypes/pd-balanced"):
            refuse(400, "invalid", "Invalid value for field 'diskType'")
        if self.knobs.get("quota"):
            return self.begin("insert", zone, link, error={"code": "QUOTA_EXCEEDED",
                              "message": "Quota 'CPUS' exceeded.  Limit: 24.0 in region us-central1."})
        if f"{kind}@{zone}" in self.knobs.get("sold_out", []):
            return self.begin("insert", zone, link, error={"code": "ZONE_RESOURCE_POOL_EXHAUSTED",
                              "message": f"The zone 'projects/my-project/zones/{zone}' does not have enough resources available to "
                                         "fulfill the request.  Try a different zone, or try again later."})
        network = body["networkInterfaces"][0]
        instance = {"kind": "compute#instance", "id": str(self.new_id()), "name": name, "zone": f"{WWW}/zones/{zone}", "creationTimestamp": NOW,
                    "status": "PROVISIONING", "machineType": f"{WWW}/zones/{zone}/machineTypes/{kind}", "selfLink": link,
                    "labels": body.get("labels", {}), "tags": body.get("tags", {}), "metadata": body.get("metadata", {}),
                    "disks": [{"kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "boot": True, "autoDelete": True,
                               "source": f"{WWW}/zones/{zone}/disks/{name}", "diskSizeGb": str(size)}],
                    "networkInterfaces": [{"network": f"{WWW}/{network['network']}", "networkIP": "10.128.0.2", "name": "nic0",
                                           "accessConfigs": [dict(each, natIP="192.0.2.30") for each in network.get("accessConfigs", [])]}]}
        self.instances[zone, name] = instance
        handed = {each["key"]: each["value"] for each in body.get("metadata", {}).get("items", [])}
        self.boot(name, "192.0.2.30", handed.get("user-data", "").encode())
        return self.begin("insert", zone, link)

    @route("DELETE", PROJECT + r"/zones/([^/]+)/instances/([^/]+)")
    def delete(self, query, body, zone, name):
        instance = self.instance(zone, name)
        instance["status"] = "STOPPING"
        return self.begin("delete", zone, instance["selfLink"], lambda: self.instances.pop((zone, name), None))

    @route("POST", PROJECT + r"/zones/([^/]+)/instances/([^/]+)/(stop|start|setMachineType)")
    def act(self, query, body, zone, name, what):
        instance = self.instance(zone, name)
        if what == "stop":
            instance["status"] = "STOPPING"
            return self.begin(what, zone, instance["selfLink"], lambda: instance.update(status="TERMINATED"))
        if instance["status"] != "TERMINATED":
            refuse(400, "resourceNotReady", f"The resource '{name}' is not stopped")
        if what == "setMachineType":
            kind = self.known_type(zone, body["machineType"])
            return self.begin(what, zone, instance["selfLink"],
                              lambda: instance.update(machineType=f"{WWW}/zones/{zone}/machineTypes/{kind}"))
        error = None
        if f"{instance['machineType'].split('/')[-1]}@{zone}" in self.knobs.get("sold_out", []):
            error = {"code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "message": "does not have enough resources"}
        return self.begin(what, zone, instance["selfLink"], lambda: instance.update(status="STAGING"), error)

    # --- snapshots, firewall rules

    @route("POST", PROJECT + "/global/snapshots")
    def snapshot(self, query, body):
        return self.once(query, lambda: self.snapshot_once(body))

    def snapshot_once(self, body):
        name = body["name"]
        if name in self.snapshots:
            refuse(409, "alreadyExists", f"The resource 'projects/my-project/global/snapshots/{name}' already exists")
        zone, disk = re.fullmatch(r"(?:.*/)?zones/([^/]+)/disks/([^/]+)", body["sourceDisk"]).groups()
        size = self.instance(zone, disk)["disks"][0]["diskSizeGb"]
        shot = {"kind": "compute#snapshot", "id": str(self.new_id()), "name": name, "labels": body.get("labels", {}), "status": "CREATING",
                "creationTimestamp": NOW, "diskSizeGb": size, "sourceDisk": f"{WWW}/zones/{zone}/disks/{disk}", "storageLocations": ["us"]}
        self.snapshots[name] = shot
        return self.begin("createSnapshot", None, f"{WWW}/global/snapshots/{name}")

    @route("GET", PROJECT + "/global/snapshots")
    def list_snapshots(self, query, body):
        shown = [dict(each) for each in self.snapshots.values() if not query.get("filter") or "tnr" in each["labels"]]
        for each in self.snapshots.values():  # time has passed
            each.update(status="READY", storageBytes=str(5 << 29))
        reply = {"kind": "compute#snapshotList", "id": "x", "selfLink": WWW}
        return 200, dict(reply, items=shown) if shown else reply

    @route("GET", PROJECT + r"/global/snapshots/([^/]+)")
    def get_snapshot(self, query, body, name):
        return 200, self.found(self.snapshots, name, f"global/snapshots/{name}")

    @route("DELETE", PROJECT + r"/global/snapshots/([^/]+)")
    def delete_snapshot(self, query, body, name):
        self.found(self.snapshots, name, f"global/snapshots/{name}")
        return self.begin("delete", None, f"{WWW}/global/snapshots/{name}", lambda: self.snapshots.pop(name, None))

    @route("GET", PROJECT + r"/global/firewalls/([^/]+)")
    def get_wall(self, query, body, name):
        return 200, self.found(self.walls, name, f"global/firewalls/{name}")

    @route("POST", PROJECT + "/global/firewalls")
    def create_wall(self, query, body):
        return self.once(query, lambda: self.wall_once(body))

    def wall_once(self, body):
        name = body["name"]
        if name in self.walls:
            refuse(409, "alreadyExists", f"The resource 'projects/my-project/global/firewalls/{name}' already exists")
        if self.knobs.get("no_network"):
            refuse(404, "notFound", "The resource 'projects/my-project/global/networks/default' was not found")
        if ("allowed" in body) == ("denied" in body):
            refuse(400, "invalid", "Exactly one of allowed and denied must be given")
        self.walls[name] = {"kind": "compute#firewall", "id": str(self.new_id()), "creationTimestamp": NOW, **body}
        return self.begin("insert", None, f"{WWW}/global/firewalls/{name}")

    @route("PATCH", PROJECT + r"/global/firewalls/([^/]+)")
    def patch_wall(self, query, body, name):
        self.found(self.walls, name, f"global/firewalls/{name}").update(body)
        return self.begin("patch", None, f"{WWW}/global/firewalls/{name}")

    @route("DELETE", PROJECT + r"/global/firewalls/([^/]+)")
    def delete_wall(self, query, body, name):
        self.found(self.walls, name, f"global/firewalls/{name}")
        return self.begin("delete", None, f"{WWW}/global/firewalls/{name}", lambda: self.walls.pop(name, None))


if __name__ == "__main__":
    Google().serve()
