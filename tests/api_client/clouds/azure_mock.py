#!/usr/bin/env python3
"""A stateful Azure: the resource manager with groups, networks, machines, images, snapshots and operations, the retail prices, and the token
endpoints.

Nothing takes time: an operation ends at the second look. Knobs: sold_out (["Standard_B2s@eastus"]: at once), no_room (likewise, told by the
operation), listed_sold_out (likewise, in the list of sizes), quota (true), subscriptions (their ids), expire (true: the tokens given until now no
longer count), secret_expired (true), prices_down (true), console_delete (names of groups), switched_off (names of machines: from inside),
cost_column (its name).
"""
import base64
import json
import re
import sys
import urllib.parse

from azure_models import Models
from cloud_mock import MockCloud, Refused, route

ME = "00000000-1111-2222-3333-444444444444"
TENANT = "tenant-1"
SUB = "/subscriptions/([^/]+)"
GROUP = SUB + "/resourceGroups/([^/]+)"
COMPUTE, NETWORK = "/providers/Microsoft.Compute/", "/providers/Microsoft.Network/"
LOCATIONS = ["eastus", "westeurope"]
# name, CPUs, GiB, architecture, locations, other capabilities, an hour of it
SIZES = [("Standard_B2s", 2, 4, "x64", LOCATIONS, {}, 0.0416),
         ("Standard_B1ms", 1, 2, "x64", LOCATIONS, {}, 0.0207),
         ("Standard_D2s_v5", 2, 8, "x64", LOCATIONS, {}, 0.096),
         ("Standard_D4s_v5", 4, 16, "x64", ["eastus"], {}, 0.192),
         ("Standard_E2_v9", 2, 16, "x64", ["eastus"], {}, None),  # no price
         ("Standard_D2ps_v5", 2, 8, "Arm64", LOCATIONS, {}, 0.077),
         ("Standard_D2s_v6", 2, 8, "x64", LOCATIONS, {"DiskControllerTypes": "NVMe"}, 0.101),
         ("Standard_A1", 1, 1.75, "x64", LOCATIONS, {"HyperVGenerations": "V1"}, 0.06),
         ("Standard_NC4as_T4_v3", 4, 28, "x64", LOCATIONS, {"GPUs": "1"}, 0.526)]


def refuse(status, code, message):
    raise Refused(status, {"error": {"code": code, "message": message}})


class Azure(MockCloud):
    def __init__(self):
        super().__init__("none.json", "")
        self.description, self.tls = Models(), sys.argv[1:2] == ["--tls"]
        self.routes = [(method, re.compile(pattern.pattern, re.IGNORECASE), handler) for method, pattern, handler in self.routes]
        self.groups, self.things, self.power, self.operations, self.deleting = {}, {}, {}, {}, {}

    def unauthorized(self):
        refuse(401, "InvalidAuthenticationToken", "The access token is invalid.")

    def unknown_path(self):
        refuse(404, "InvalidResourceType", "The resource type could not be found.")

    def client(self, url, folder):
        return {"AZURE_RESOURCE_MANAGER_HOST": url, "AZURE_AUTHORITY_HOST": url + "/", "AZURE_RETAIL_PRICES_HOST": url,
                "AZURE_TENANT_ID": TENANT, "AZURE_CLIENT_ID": "app-1", "AZURE_CLIENT_SECRET": "hidden-client-secret",
                "AZURE_SUBSCRIPTION_ID": ME}

    def left(self):
        return sorted([each["name"] for each in self.groups.values()] + [key.split("/")[-1] for key in self.things])

    def costly(self):
        free = ("networksecuritygroups", "virtualnetworks", "networkinterfaces")
        return [key for key in self.things if key.split("/")[1].lower() not in free and key.split("/")[0] not in self.deleting]

    def control(self, path, body):
        if path == "/mock/things":
            return self.things
        if path == "/mock/half":  # what a start that was killed leaves
            self.groups["tnr-half"] = self.group(ME, "tnr-half", "eastus", {"tnr": "half"})
            return {}
        if path == "/mock/foreign":
            self.groups["tnr-foreign"] = self.group(ME, "tnr-foreign", "eastus", {})
            return {}
        return super().control(path, body)

    # --- tokens and prices, which are other hosts in truth

    def answer(self, method, path, query, headers, body):
        self.here = ("https://" if self.tls else "http://") + headers["Host"]
        if self.knobs.pop("expire", False):
            self.token += "-next"
        for each in self.knobs.pop("console_delete", []):
            self.remove(each)
        for each in self.knobs.pop("switched_off", []):
            self.power[each] = "stopped"
        if path == f"/{TENANT}/oauth2/v2.0/token":
            return self.give_token(dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True)))
        if path == f"/{TENANT}/v2.0/.well-known/openid-configuration":
            return 200, {"token_endpoint": f"{self.here}/{TENANT}/oauth2/v2.0/token", "issuer": f"{self.here}/{TENANT}/v2.0",
                         "authorization_endpoint": f"{self.here}/{TENANT}/oauth2/v2.0/authorize"}
        if path.endswith("/oauth2/v2.0/token"):
            raise Refused(400, {"error": "invalid_request", "error_description": "AADSTS90002: Tenant not found.\r\nTrace ID: 1"})
        if path == "/identity":
            if headers.get("X-IDENTITY-HEADER") != "hidden-identity-header" or "resource=https%3A%2F%2Fmanagement" not in query:
                raise Refused(400, {"error": "bad"})
            return 200, {"access_token": self.token, "expires_on": "1767326645", "resource": "x", "token_type": "Bearer"}
        if path == "/api/retail/prices":
            return self.prices(dict(urllib.parse.parse_qsl(query)))
        if path.startswith("/subscriptions") and "api-version=" not in query:
            refuse(400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
        return super().answer(method, path, query, headers, body)

    def give_token(self, form):
        if form["grant_type"] == "client_credentials":
            if self.knobs.get("secret_expired"):
                raise Refused(401, {"error": "invalid_client", "error_description": "AADSTS7000222: The provided client secret keys for app "
                                    "'app-1' are expired.\r\nTrace ID: 1\r\nTimestamp: 2"})
            good = (form["client_id"], form["client_secret"]) == ("app-1", "hidden-client-secret")
            good = good and form["scope"] == f"https://management.{self.knobs.get('cloud', 'azure.com')}/.default"
        else:
            good = form["grant_type"] == "refresh_token" and form["refresh_token"] == "hidden-refresh-token"
            good = good and form["scope"] == f"https://management.core.{self.knobs.get('cloud', 'windows.net')}//.default"
        if not good:
            raise Refused(401, {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1"})
        return 200, {"token_type": "Bearer", "expires_in": 3599, "access_token": self.token}

    def prices(self, query):
        if self.knobs.get("prices_down"):
            raise Refused(503, {"message": "down"})
        wanted = dict(re.findall(r"(\w+) eq '([^']*)'", query["$filter"]))
        items = []
        for name, _, _, _, places, _, hour in SIZES:
            for place in places:
                if hour is None:
                    continue
                base = {"currencyCode": "USD", "armRegionName": place, "armSkuName": name, "serviceName": "Virtual Machines",
                        "meterName": name, "skuName": name, "productName": "Virtual Machines Series", "unitOfMeasure": "1 Hour",
                        "type": "Consumption", "retailPrice": hour, "isPrimaryMeterRegion": True}
                items += [base, dict(base, productName="Virtual Machines Series Windows", retailPrice=9),
                          dict(base, skuName=name + " Spot", retailPrice=0.001), dict(base, skuName=name + " Low Priority", retailPrice=0.002)]
        items += [dict(items[0], serviceName="Storage", productName="Standard SSD Managed Disks", meterName="E6 LRS Disk", armRegionName=place,
                       unitOfMeasure="1/Month", retailPrice=4.8) for place in LOCATIONS]
        items += [dict(items[0], serviceName="Virtual Network", productName="IP Addresses", meterName="Standard IPv4 Static Public IP",
                       armRegionName=place, retailPrice=price) for place, price in (("", 0.005), ("westeurope", 0.006))]
        found = [item for item in items if all(item.get({"priceType": "type"}.get(name, name)) == value for name, value in wanted.items())]
        start, size = int(query.get("$skip", 0)), 10
        following = None
        if start + size < len(found):
            following = f"https://prices.azure.com:443/api/retail/prices?$filter={urllib.parse.quote(query['$filter'])}&$skip={start + size}"
        return 200, {"BillingCurrency": "USD", "Items": found[start:start + size], "NextPageLink": following, "Count": size}

    # --- operations

    def begin(self, finish=lambda: None, error=None, by="Azure-AsyncOperation"):
        name = f"operation-{self.new_id()}"
        self.operations[name] = {"looks": 0, "finish": finish, "error": error}
        kind = "operations" if by == "Azure-AsyncOperation" else "operationresults"
        return {by: f"{self.here}/subscriptions/{ME}{COMPUTE}locations/eastus/{kind}/{name}?api-version=2024-07-01"}

    def look(self, name):
        if name not in self.operations:
            refuse(404, "NotFound", "no such operation")
        operation = self.operations[name]
        operation["looks"] += 1
        if operation["looks"] == 2 and not operation["error"]:
            operation["finish"]()
        return operation

    @route("GET", SUB + COMPUTE + r"locations/[^/]+/operations/([^/]+)")
    def operation(self, query, body, subscription, name):
        operation = self.look(name)
        if operation["looks"] < 2:
            return 200, {"name": name, "status": "InProgress", "startTime": "2026-01-02T03:04:05Z"}
        if operation["error"]:
            return 200, {"name": name, "status": "Failed", "error": operation["error"]}
        return 200, {"name": name, "status": "Succeeded"}

    @route("GET", SUB + COMPUTE + r"locations/[^/]+/operationresults/([^/]+)")
    def result(self, query, body, subscription, name):
        done = self.look(name)["looks"] >= 2
        return (200, None) if done else (202, None, {"Location": f"{self.here}/subscriptions/{ME}{COMPUTE}locations/eastus/operationresults/{name}"
                                                                 "?api-version=2024-07-01"})

    # --- subscriptions, sizes, costs

    @route("GET", "/subscriptions")
    def subscriptions(self, query, body):
        return 200, {"value": [{"id": "/subscriptions/" + each, "subscriptionId": each, "displayName": "Pay-As-You-Go", "state": "Enabled"}
                               for each in self.knobs.get("subscriptions", [ME])]}

    @route("GET", SUB)
    def subscription(self, query, body, subscription):
        self.known(subscription)
        return 200, {"id": "/subscriptions/" + ME, "subscriptionId": ME, "displayName": "Pay-As-You-Go", "state": "Enabled"}

    def known(self, subscription):
        if subscription != ME:
            refuse(404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")

    @route("GET", SUB + "/locations")
    def locations(self, query, body, subscription):
        return 200, {"value": [{"name": each, "displayName": each} for each in LOCATIONS]}

    @route("GET", SUB + COMPUTE + "skus")
    def skus(self, query, body, subscription):
        location = re.search(r"location eq '([^']*)'", query.get("$filter", ""))
        location = location[1] if location else None
        skus = [{"resourceType": "disks", "name": "Premium_LRS", "locations": [location], "capabilities": [{"name": "MaxSizeGiB", "value": "4"}],
                 "restrictions": []}] if location in LOCATIONS else []
        for name, cpus, memory, architecture, places, more, _ in SIZES:
            if location not in places:
                continue
            capabilities = {"vCPUs": str(cpus), "MemoryGB": str(memory), "CpuArchitectureType": architecture, "HyperVGenerations": "V1,V2", **more}
            hidden = f"{name}@{location}" in self.knobs.get("listed_sold_out", [])
            skus.append({"resourceType": "virtualMachines", "name": name, "tier": "Standard", "size": name[9:], "family": "family",
                         "locations": [location], "locationInfo": [{"location": location, "zones": ["1", "2"]}],
                         "capabilities": [{"name": key, "value": value} for key, value in capabilities.items()],
                         "restrictions": [{"type": "Location", "values": [location], "reasonCode": "NotAvailableForSubscription",
                                           "restrictionInfo": {"locations": [location]}}] if hidden else
                         [{"type": "Zone", "values": [location], "reasonCode": "NotAvailableForSubscription", "restrictionInfo": {"zones": ["3"]}}]})
        return 200, {"value": skus}

    @route("POST", SUB + "/providers/Microsoft.CostManagement/query")
    def costs(self, query, body, subscription):
        if body["type"] != "ActualCost" or body["dataset"]["aggregation"]["totalCost"] != {"name": "Cost", "function": "Sum"}:
            refuse(400, "BadRequest", "Invalid query definition")
        return 200, {"id": "x", "name": "x", "type": "Microsoft.CostManagement/query", "properties": {
            "nextLink": None, "columns": [{"name": self.knobs.get("cost_column", "Cost"), "type": "Number"}, {"name": "Currency", "type": "String"}], "rows": [[12.5, "EUR"]]}}

    # --- groups

    def group(self, subscription, name, location, tags):
        return {"id": f"/subscriptions/{subscription}/resourceGroups/{name}", "name": name, "type": "Microsoft.Resources/resourceGroups",
                "location": location, "tags": tags, "properties": {"provisioningState": "Succeeded"}}

    def remove(self, group):
        self.groups.pop(group.lower(), None)
        self.deleting.pop(group.lower(), None)
        for key in [key for key in self.things if key.startswith(group.lower() + "/")]:
            del self.things[key]

    def in_group(self, group):
        if group.lower() not in self.groups:
            refuse(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
        if group.lower() in self.deleting:
            refuse(409, "ResourceGroupBeingDeleted", f"The resource group '{group}' is in deprovisioning state.")
        return self.groups[group.lower()]

    @route("GET", SUB + "/resourceGroups")
    def list_groups(self, query, body, subscription):
        self.known(subscription)
        tag = re.search(r"tagName eq '([^']*)'", query.get("$filter", ""))
        found = [self.shown_group(name) for name, each in self.groups.items() if not tag or tag[1] in each["tags"]]
        return 200, {"value": found}

    @route("GET", GROUP)
    def get_group(self, query, body, subscription, name):
        self.known(subscription)
        if name.lower() not in self.groups:
            self.in_group(name)
        shown = self.shown_group(name.lower())
        if name.lower() in self.deleting:  # goes on, whoever looks
            self.deleting[name.lower()] += 1
            if self.deleting[name.lower()] > 3:
                self.remove(name)
        return 200, shown

    def shown_group(self, name):
        state = "Deleting" if name in self.deleting else "Succeeded"
        return dict(self.groups[name], properties={"provisioningState": state})

    @route("PUT", GROUP)
    def put_group(self, query, body, subscription, name):
        self.known(subscription)
        there = self.groups.get(name.lower())
        if there and there["location"] != body["location"]:
            refuse(409, "InvalidResourceGroupLocation", f"The Resource group already exists in location '{there['location']}'.")
        self.groups[name.lower()] = self.group(subscription, name, body["location"], body.get("tags", {}))
        if self.knobs.pop("removal_comes_late", False):
            self.deleting[name.lower()] = 0
        return 200 if there else 201, self.groups[name.lower()]

    @route("DELETE", GROUP)
    def delete_group(self, query, body, subscription, name):
        self.in_group(name)
        self.deleting[name.lower()] = 0
        return 202, None, self.begin(lambda: self.remove(name), by="Location")

    # --- what is in them

    def thing(self, kind, group, name):
        self.in_group(group)
        key = f"{group.lower()}/{kind}/{name.lower()}"
        if key not in self.things:
            refuse(404, "ResourceNotFound", f"The Resource '{kind}/{name}' under resource group '{group}' was not found.")
        return self.things[key]

    def put_thing(self, kind, provider, group, name, body, **properties):
        self.in_group(group)
        key = f"{group.lower()}/{kind}/{name.lower()}"
        there = key in self.things
        body["id"] = f"/subscriptions/{ME}/resourceGroups/{group.upper()}{provider}{kind}/{name}"
        body["name"] = name
        body["type"] = provider.strip("/").split("/")[-1] + "/" + kind
        body["properties"].update(provisioningState="Updating", **properties)
        self.things[key] = body
        status = 202 if kind == "snapshots" else 200 if there else 201
        return (status, dict(body, properties=dict(body["properties"])),
                self.begin(lambda: body["properties"].update(provisioningState="Succeeded")))

    def referred(self, reference, kind):
        key = re.fullmatch(r"/subscriptions/[^/]+/resourcegroups/([^/]+)/providers/microsoft\.[a-z]+/([^/]+)/([^/]+)(?:/subnets/default)?",
                           reference["id"].lower())
        thing = key and self.things.get(f"{key[1]}/{key[2]}/{key[3]}")
        if not thing or key[2] != kind.lower():
            refuse(400, "InvalidResourceReference", f"Resource {reference['id']} was not found.")
        if thing["properties"]["provisioningState"] != "Succeeded":
            refuse(429, "ReferencedResourceNotProvisioned", f"{reference['id']} is not ready")
        return thing

    @route("PUT", GROUP + NETWORK + r"networkSecurityGroups/([^/]+)")
    def put_wall(self, query, body, subscription, group, name):
        return self.put_thing("networksecuritygroups", NETWORK, group, name, body)

    @route("PUT", GROUP + NETWORK + r"networkSecurityGroups/([^/]+)/securityRules/([^/]+)")
    def put_rule(self, query, body, subscription, group, name, rule):
        rules = self.thing("networksecuritygroups", group, name)["properties"]["securityRules"]
        rules[:] = [each for each in rules if each["name"] != rule] + [dict(body, name=rule)]
        return 200, dict(body, name=rule), self.begin()

    @route("PUT", GROUP + NETWORK + r"publicIPAddresses/([^/]+)")
    def put_address(self, query, body, subscription, group, name):
        return self.put_thing("publicipaddresses", NETWORK, group, name, body, ipAddress="192.0.2.40")

    @route("GET", SUB + NETWORK + "publicIPAddresses")
    def list_addresses(self, query, body, subscription):
        return self.listed("publicipaddresses", query)

    @route("PUT", GROUP + NETWORK + r"virtualNetworks/([^/]+)")
    def put_network(self, query, body, subscription, group, name):
        for subnet in body["properties"]["subnets"]:
            if "networkSecurityGroup" in subnet["properties"]:
                self.referred(subnet["properties"]["networkSecurityGroup"], "networksecuritygroups")
        return self.put_thing("virtualnetworks", NETWORK, group, name, body)

    @route("PUT", GROUP + NETWORK + r"networkInterfaces/([^/]+)")
    def put_card(self, query, body, subscription, group, name):
        ip = body["properties"]["ipConfigurations"][0]["properties"]
        self.referred(ip["subnet"], "virtualnetworks")
        self.referred(ip["publicIPAddress"], "publicipaddresses")
        return self.put_thing("networkinterfaces", NETWORK, group, name, body)

    @route("GET", GROUP + NETWORK + r"(networkSecurityGroups|publicIPAddresses|virtualNetworks|networkInterfaces)/([^/]+)")
    def get_network_thing(self, query, body, subscription, group, kind, name):
        return 200, self.thing(kind.lower(), group, name)

    @route("PUT", GROUP + COMPUTE + r"images/([^/]+)")
    def put_image(self, query, body, subscription, group, name):
        shot = self.referred(body["properties"]["storageProfile"]["osDisk"]["snapshot"], "snapshots")
        if shot["location"] != body["location"]:
            refuse(400, "InvalidParameter", "The snapshot is in another location.")
        return self.put_thing("images", COMPUTE, group, name, body)

    @route("PUT", GROUP + COMPUTE + r"snapshots/([^/]+)")
    def put_snapshot(self, query, body, subscription, group, name):
        disk = body["properties"]["creationData"]["sourceResourceId"]
        if not any(each["properties"].get("storageProfile", {}).get("osDisk", {}).get("managedDisk", {}).get("id") == disk
                   for each in self.things.values()):
            refuse(400, "InvalidParameter", f"The disk {disk} was not found.")
        return self.put_thing("snapshots", COMPUTE, group, name, body, timeCreated="2026-01-02T03:04:05.0000000+00:00", diskSizeGB=64,
                              completionPercent=100.0)

    @route("GET", SUB + COMPUTE + "snapshots")
    def list_snapshots(self, query, body, subscription):
        return self.listed("snapshots", query)

    @route("GET", GROUP + COMPUTE + r"(snapshots|images)/([^/]+)")
    def get_copy(self, query, body, subscription, group, kind, name):
        return 200, self.thing(kind.lower(), group, name)

    @route("DELETE", GROUP + COMPUTE + r"(snapshots|images)/([^/]+)")
    def delete_copy(self, query, body, subscription, group, kind, name):
        self.thing(kind.lower(), group, name)
        return 202, None, self.begin(lambda: self.things.pop(f"{group.lower()}/{kind.lower()}/{name.lower()}", None))

    # Two a page.
    def listed(self, kind, query, shown=lambda thing: thing):
        found = [shown(each) for key, each in self.things.items() if key.split("/")[1] == kind and key.split("/")[0] not in self.deleting]
        start = int(query.get("$skiptoken", 0))
        reply = {"value": found[start:start + 2]}
        if start + 2 < len(found):
            only = "&statusOnly=true" if "statusOnly" in query else ""
            provider = NETWORK if kind == "publicipaddresses" else COMPUTE
            reply["nextLink"] = f"{self.here}/subscriptions/{ME}{provider}{kind}?api-version=2024-07-01{only}&$skiptoken={start + 2}"
        return 200, reply

    # --- machines

    def room_for(self, size, location):
        if not any(size == each[0] and location in each[4] for each in SIZES):
            refuse(400, "InvalidParameter", f"The value {size} provided for the VM size is not valid.")
        if self.knobs.get("quota"):
            refuse(409, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.")
        if f"{size}@{location}" in self.knobs.get("sold_out", []):
            refuse(409, "SkuNotAvailable", f"The requested VM size '{size}' is currently not available in location '{location}'.")
        if f"{size}@{location}" in self.knobs.get("no_room", []):
            return {"code": "AllocationFailed", "message": "Allocation failed. We do not have sufficient capacity for the requested VM size in this region."}
        return None

    def step(self, key):
        self.power[key] = {"new": "starting", "starting": "running"}.get(self.power[key], self.power[key])

    def view(self, server):
        power = self.power[server["name"]]
        statuses = [{"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"}]
        if power != "new":
            statuses.append({"code": "PowerState/" + power, "level": "Info", "displayStatus": "VM " + power})
        self.step(server["name"])
        return {"statuses": statuses}

    @route("PUT", GROUP + COMPUTE + r"virtualMachines/([^/]+)")
    def put_server(self, query, body, subscription, group, name):
        properties = body["properties"]
        error = self.room_for(properties["hardwareProfile"]["vmSize"], body["location"])
        self.referred(properties["networkProfile"]["networkInterfaces"][0], "networkinterfaces")
        image = properties["storageProfile"]["imageReference"]
        if "id" in image:
            self.referred(image, "images")
        elif (image["publisher"], image["offer"], image["sku"]) != ("Debian", "debian-12", "12-gen2"):
            refuse(404, "PlatformImageNotFound", "The platform image is not available.")
        system = properties["osProfile"]
        user_data = base64.b64decode(system.pop("customData"), validate=True)  # Azure never gives it back
        if not system["linuxConfiguration"]["disablePasswordAuthentication"] and "adminPassword" not in system:
            refuse(400, "InvalidParameter", "Required parameter 'adminPassword' is missing (null).")
        disk = properties["storageProfile"]["osDisk"]
        disk["name"] = name + "_OsDisk"
        disk["osType"] = "Linux"
        disk["managedDisk"]["id"] = f"/subscriptions/{ME}/resourceGroups/{group.upper()}{COMPUTE}disks/{disk['name']}"
        status, reply, headers = self.put_thing("virtualmachines", COMPUTE, group, name, body)
        self.power.setdefault(name, "new")
        if error:
            headers = self.begin(error=error)
        elif status == 201:
            self.boot(name, "192.0.2.40", user_data)
        return status, reply, headers

    @route("GET", GROUP + COMPUTE + r"virtualMachines/([^/]+)")
    def get_server(self, query, body, subscription, group, name):
        server = self.thing("virtualmachines", group, name)
        if query.get("$expand") == "instanceView":
            return 200, dict(server, properties=dict(server["properties"], instanceView=self.view(server)))
        return 200, server

    @route("GET", SUB + COMPUTE + "virtualMachines")
    def list_servers(self, query, body, subscription):
        if query.get("statusOnly") == "true":
            return self.listed("virtualmachines", query, lambda server: {"id": server["id"], "name": server["name"], "location": server["location"],
                                                                         "properties": {"instanceView": self.view(server)}})
        return self.listed("virtualmachines", query)

    @route("PATCH", GROUP + COMPUTE + r"virtualMachines/([^/]+)")
    def patch_server(self, query, body, subscription, group, name):
        server = self.thing("virtualmachines", group, name)
        size = body["properties"]["hardwareProfile"]["vmSize"]
        error = self.room_for(size, server["location"])
        if error:
            return 200, server, self.begin(error=error)
        return 200, server, self.begin(lambda: server["properties"]["hardwareProfile"].update(vmSize=size))

    @route("POST", GROUP + COMPUTE + r"virtualMachines/([^/]+)/(deallocate|start|powerOff)")
    def act(self, query, body, subscription, group, name, what):
        server = self.thing("virtualmachines", group, name)
        if what == "start":
            error = self.room_for(server["properties"]["hardwareProfile"]["vmSize"], server["location"])
            return 202, None, self.begin(lambda: self.power.update({name: "starting"}), error)
        self.power[name] = "deallocating" if what == "deallocate" else "stopping"
        after = "deallocated" if what == "deallocate" else "stopped"
        headers = self.begin(lambda: self.power.update({name: after}))
        return 202, None, dict(headers, Location=headers["Azure-AsyncOperation"].replace("/operations/", "/operationresults/"))


if __name__ == "__main__":
    Azure().serve()
