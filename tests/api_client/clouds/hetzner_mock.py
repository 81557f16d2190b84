#!/usr/bin/env python3
"""A stateful Hetzner Cloud: server types with prices, servers, actions, images, keys, firewalls.

Nothing takes time: what is under way takes its next step each time somebody looks. Knobs: sold_out (["cpx11@fsn1"], found out by
ordering), listed_sold_out (likewise, seen in the list),
console_delete (ids, as if removed in the web console), quota (true: no more servers).
"""
import base64
import hashlib

from cloud_mock import MockCloud, Refused, route

NOW = "2026-01-02T03:04:05+00:00"
LOCATIONS = {"fsn1": ("Falkenstein", "DE", "eu-central"), "nbg1": ("Nuremberg", "DE", "eu-central"),
             "ash": ("Ashburn", "US", "us-east")}
# name, cores, memory GB, disk GB, architecture, net price an hour and a month, locations
TYPES = [("cx23", 2, 4, 40, "x86", "0.0056", "3.4900", ["fsn1", "nbg1"]),
         ("cpx11", 2, 2, 40, "x86", "0.0070", "4.3500", ["fsn1", "nbg1", "ash"]),
         ("cpx21", 3, 4, 80, "x86", "0.0120", "7.5500", ["fsn1", "nbg1", "ash"]),
         ("cpx31", 4, 8, 160, "x86", "0.0210", "13.6000", ["fsn1", "nbg1", "ash"]),
         ("cax11", 2, 4, 40, "arm", "0.0053", "3.2900", ["fsn1"])]


def price(net):
    return {"net": net, "gross": f"{float(net) * 1.19:.4f}"}


def mend(spec):
    """Slips of the published file: lower-case status ranges; `datacenter`, which servers have no longer; keys are text there,
    while Hetzner's own client sends their numbers."""
    spec["components"]["schemas"]["create_server_request"]["properties"]["ssh_keys"]["items"] = {}
    for operations in spec["paths"].values():
        for operation in operations.values():
            if isinstance(operation, dict) and "responses" in operation:
                operation["responses"] = {code.upper() if code.endswith("xx") else code: reply
                                          for code, reply in operation["responses"].items()}
    for schema in spec["components"]["schemas"].values():
        if "datacenter" in schema.get("properties", {}) and "required" in schema:
            schema["required"] = [name for name in schema["required"] if name != "datacenter"]


def refuse(status, code, message):
    raise Refused(status, {"error": {"code": code, "message": message, "details": None}})


class Hetzner(MockCloud):
    def __init__(self):
        self.dying = []
        super().__init__("hetzner.json", "/v1", mend)
        self.servers, self.actions, self.images, self.keys, self.firewalls = {}, {}, {}, {}, {}
        self.images[1] = self.new_image(1, "debian-12", "system", "available", "Debian 12", None)
        self.types = {each[0]: self.server_type(1 + index, *each) for index, each in enumerate(TYPES)}

    def unauthorized(self):
        refuse(401, "unauthorized", "unable to authenticate")

    def unknown_path(self):
        refuse(404, "not_found", "no such path")

    def client(self, url, folder):
        return {"HCLOUD_ENDPOINT": url + "/v1", "HCLOUD_TOKEN": self.token}

    def left(self):
        return [each["name"] for kind in (self.servers, self.keys, self.firewalls) for each in kind.values()] + [
            each["description"] for each in self.images.values() if each["type"] == "snapshot"]

    def costly(self):
        return [each["name"] for each in self.servers.values() if each["status"] != "deleting"] + [
            each["description"] for each in self.images.values() if each["type"] == "snapshot"]

    # --- things

    def server_type(self, number, name, cores, memory, disk, architecture, hour, month, places):
        prices = [{"location": place, "price_hourly": price(hour), "price_monthly": price(month),
                   "included_traffic": 20 << 40, "price_per_tb_traffic": price("1.0000")} for place in places]
        return {"id": number, "name": name, "description": name.upper(), "cores": cores, "memory": float(memory), "disk": disk,
                "architecture": architecture, "cpu_type": "shared", "storage_type": "local", "deprecated": False,
                "deprecation": None, "prices": prices, "category": "Cost-Optimized",
                "locations": [{"id": 1 + list(LOCATIONS).index(place), "name": place, "deprecation": None,
                               "available": True, "recommended": place == "fsn1"} for place in places]}

    def location(self, name):
        city, country, zone = LOCATIONS[name]
        return {"id": 1 + list(LOCATIONS).index(name), "name": name, "description": city, "city": city, "country": country,
                "latitude": 50.4, "longitude": 12.3, "network_zone": zone}

    def new_image(self, number, name, kind, status, description, source, labels=None):
        return {"id": number, "name": name, "type": kind, "status": status, "description": description,
                "image_size": None if status == "creating" else 2.5, "disk_size": 40.0, "created": NOW,
                "created_from": source, "bound_to": None, "os_flavor": "debian", "os_version": "12", "architecture": "x86",
                "protection": {"delete": False}, "deprecated": None, "deleted": None, "labels": labels or {}}

    def begin(self, command, resources, finish=lambda: None):
        action = {"id": self.new_id(), "command": command, "status": "running", "progress": 0, "started": NOW, "finished": None,
                  "error": None, "resources": [{"id": number, "type": kind} for kind, number in resources]}
        self.actions[action["id"]] = (action, finish)
        return dict(action)

    def look(self, number):
        action, finish = self.actions[number]
        if action["status"] == "running":
            finish()
            action.update(status="success", progress=100, finished=NOW)
        return action

    def page(self, query, name, items):
        per_page, page = int(query.get("per_page", 25)), int(query.get("page", 1))
        if "label_selector" in query:
            key, _, value = query["label_selector"].partition("==")
            items = [each for each in items if key in each["labels"] and (not value or each["labels"][key] == value)]
        if "name" in query:
            items = [each for each in items if each["name"] == query["name"]]
        last = max(1, -(-len(items) // per_page))
        return 200, {name: items[(page - 1) * per_page:page * per_page],
                     "meta": {"pagination": {"page": page, "per_page": per_page, "total_entries": len(items), "last_page": last,
                                             "previous_page": page - 1 if page > 1 else None,
                                             "next_page": page + 1 if page < last else None}}}

    def found(self, kind, number):
        if int(number) not in kind:
            refuse(404, "not_found", f"resource with ID '{number}' not found")
        return kind[int(number)]

    # --- what can be bought

    @route("GET", "/pricing")
    def pricing(self, query, body):
        ips = [{"type": kind, "prices": [{"location": place, "price_hourly": price(hour), "price_monthly": price(month)}
                                         for place in LOCATIONS]}
               for kind, hour, month in (("ipv4", "0.0008", "0.5000"), ("ipv6", "0.0000", "0.0000"))]
        types = [{"id": each["id"], "name": each["name"], "prices": each["prices"]} for each in self.types.values()]
        return 200, {"pricing": {"currency": "EUR", "vat_rate": "19.00", "image": {"price_per_gb_month": price("0.0110")},
                                 "volume": {"price_per_gb_month": price("0.0440")}, "server_backup": {"percentage": "20.00"},
                                 "floating_ip": {"price_monthly": price("3.0000")}, "floating_ips": [], "primary_ips": ips,
                                 "load_balancer_types": [], "server_types": types}}

    @route("GET", "/server_types")
    def server_types(self, query, body):
        for each in self.types.values():
            for place in each["locations"]:
                place["available"] = f"{each['name']}@{place['name']}" not in self.knobs.get("listed_sold_out", [])
        return self.page(query, "server_types", list(self.types.values()))

    @route("GET", "/locations")
    def locations(self, query, body):
        return self.page(query, "locations", [self.location(name) for name in LOCATIONS])

    # --- servers

    def step(self, server):
        """What a look at a server changes."""
        following = {"initializing": "starting", "starting": "running", "stopping": "off"}
        shown = dict(server)
        server["status"] = following.get(server["status"], server["status"])
        return shown

    def sweep_console(self):
        for number in self.knobs.pop("console_delete", []):
            self.remove(int(number))
        # A server is shown as being deleted once, whether anybody asks about the action or not.
        for number in self.dying:
            self.remove(number)
        self.dying = [number for number, server in self.servers.items() if server["status"] == "deleting"]

    def remove(self, number):
        self.servers.pop(number, None)
        for wall in self.firewalls.values():
            wall["applied_to"] = [each for each in wall["applied_to"] if each["server"]["id"] != number]

    @route("GET", "/servers")
    def list_servers(self, query, body):
        self.sweep_console()
        return self.page(query, "servers", [self.step(each) for each in self.servers.values()])

    @route("GET", r"/servers/(\d+)")
    def get_server(self, query, body, number):
        self.sweep_console()
        return 200, {"server": self.step(self.found(self.servers, number))}

    def kind(self, body):
        return next((each for each in self.types.values() if str(body["server_type"]) in (each["name"], str(each["id"]))), None)

    @route("POST", "/servers")
    def create_server(self, query, body):
        if any(each["name"] == body["name"] for each in self.servers.values()):
            refuse(409, "uniqueness_error", "server name is already used")
        kind = self.kind(body)
        place = body.get("location", "fsn1")
        if not kind or place not in LOCATIONS:
            refuse(422, "invalid_input", "invalid input in field 'server_type' or 'location'")
        if self.knobs.get("quota"):
            refuse(403, "resource_limit_exceeded", "server limit reached")
        if f"{kind['name']}@{place}" in self.knobs.get("sold_out", []):
            refuse(412, "resource_unavailable", "server location disabled")
        image = next((each for each in self.images.values() if str(body["image"]) in (each["name"], str(each["id"]))), None)
        if not image or image["status"] != "available":
            refuse(422, "invalid_input", "invalid input in field 'image'")
        for key in body.get("ssh_keys", []):
            if not any(str(key) in (str(each["id"]), each["name"]) for each in self.keys.values()):
                refuse(404, "not_found", "SSH key not found")
        walls = [self.found(self.firewalls, each["firewall"]) for each in body.get("firewalls", [])]
        number = self.new_id()
        server = {"id": number, "name": body["name"], "status": "initializing" if body.get("start_after_create", True) else "off",
                  "created": NOW, "server_type": kind, "location": self.location(place), "image": image, "iso": None,
                  "labels": body.get("labels", {}), "locked": False, "backup_window": None, "rescue_enabled": False,
                  "included_traffic": 20 << 40, "ingoing_traffic": 0, "outgoing_traffic": 0, "primary_disk_size": kind["disk"],
                  "private_net": [], "volumes": [], "load_balancers": [], "placement_group": None,
                  "protection": {"delete": False, "rebuild": False},
                  "public_net": {"ipv4": {"id": number + 5000, "ip": self.knobs.get("address", "192.0.2.10"), "blocked": False,
                                          "dns_ptr": "mock.example"},
                                 "ipv6": None, "floating_ips": [],
                                 "firewalls": [{"id": wall["id"], "status": "applied"} for wall in walls]}}
        for wall in walls:
            wall["applied_to"].append({"type": "server", "server": {"id": number}})
        self.servers[number] = server
        self.boot(server["name"], server["public_net"]["ipv4"]["ip"], body.get("user_data", "").encode())
        password = None if body.get("ssh_keys") else "mocked-root-password"
        return 201, {"server": dict(server), "action": self.begin("create_server", [("server", number)]),
                     "next_actions": [self.begin("start_server", [("server", number)])], "root_password": password}

    @route("DELETE", r"/servers/(\d+)")
    def delete_server(self, query, body, number):
        server = self.found(self.servers, number)
        server["status"] = "deleting"
        return 200, {"action": self.begin("delete_server", [("server", server["id"])], lambda: self.remove(server["id"]))}

    @route("POST", r"/servers/(\d+)/actions/(\w+)")
    def act(self, query, body, number, what):
        server = self.found(self.servers, number)
        if server["status"] == "initializing":
            refuse(423, "locked", "server is locked") if self.step(server) else None
        on = [("server", server["id"])]
        if what == "shutdown":
            if not self.knobs.get("deaf"):
                server["status"] = "stopping"
            return 201, {"action": self.begin("shutdown_server", on)}
        if what == "poweroff":
            return 201, {"action": self.begin("stop_server", on, lambda: server.update(status="off"))}
        if what == "poweron":
            return 201, {"action": self.begin("start_server", on, lambda: server.update(status="running"))}
        if what == "change_type":
            kind = self.kind(body)
            if not kind:
                refuse(422, "invalid_input", "invalid input in field 'server_type'")
            if server["status"] != "off":
                refuse(412, "server_not_stopped", "server must be stopped")
            return 201, {"action": self.begin("change_server_type", on, lambda: server.update(server_type=kind))}
        if what == "create_image":
            image = self.new_image(self.new_id(), None, body.get("type", "snapshot"), "creating", body.get("description", ""),
                                   {"id": server["id"], "name": server["name"]}, body.get("labels"))
            self.images[image["id"]] = image
            made = dict(image)
            action = self.begin("create_image", on + [("image", image["id"])],
                                lambda: image.update(status="available", image_size=2.5))
            return 201, {"action": action, "image": made}
        return self.unknown_path()

    @route("GET", r"/actions/(\d+)")
    def get_action(self, query, body, number):
        self.found(self.actions, number)
        return 200, {"action": self.look(int(number))}

    @route("GET", "/actions")
    def get_actions(self, query, body):
        wanted = query["id"] if isinstance(query["id"], list) else [query["id"]]
        return 200, {"actions": [self.look(int(number)) for number in wanted if int(number) in self.actions]}

    # --- images, keys, firewalls

    @route("GET", "/images")
    def list_images(self, query, body):
        for number in list(self.actions):  # time has passed
            self.look(number)
        return self.page(query, "images", [each for each in self.images.values() if query.get("type", each["type"]) == each["type"]])

    @route("GET", r"/images/(\d+)")
    def get_image(self, query, body, number):
        return 200, {"image": self.found(self.images, number)}

    @route("DELETE", r"/images/(\d+)")
    def delete_image(self, query, body, number):
        self.found(self.images, number)
        del self.images[int(number)]
        return 204, None

    @route("GET", "/ssh_keys")
    def list_keys(self, query, body):
        return self.page(query, "ssh_keys", list(self.keys.values()))

    @route("POST", "/ssh_keys")
    def create_key(self, query, body):
        if any(each["name"] == body["name"] or each["public_key"].split()[:2] == body["public_key"].split()[:2]
               for each in self.keys.values()):
            refuse(409, "uniqueness_error", "SSH key not unique")
        digest = hashlib.md5(base64.b64decode(body["public_key"].split()[1])).hexdigest()
        key = {"id": self.new_id(), "name": body["name"], "public_key": body["public_key"], "created": NOW,
               "labels": body.get("labels", {}), "fingerprint": ":".join(digest[i:i + 2] for i in range(0, 32, 2))}
        self.keys[key["id"]] = key
        return 201, {"ssh_key": key}

    @route("DELETE", r"/ssh_keys/(\d+)")
    def delete_key(self, query, body, number):
        self.found(self.keys, number)
        del self.keys[int(number)]
        return 204, None

    def rules(self, rules):
        return [{"direction": each["direction"], "protocol": each["protocol"], "port": each.get("port"), "description": each.get("description"),
                 "source_ips": each.get("source_ips", []), "destination_ips": each.get("destination_ips", [])} for each in rules]

    @route("GET", "/firewalls")
    def list_firewalls(self, query, body):
        return self.page(query, "firewalls", list(self.firewalls.values()))

    @route("POST", "/firewalls")
    def create_firewall(self, query, body):
        if any(each["name"] == body["name"] for each in self.firewalls.values()):
            refuse(409, "uniqueness_error", "name is already used")
        wall = {"id": self.new_id(), "name": body["name"], "labels": body.get("labels", {}), "created": NOW,
                "rules": self.rules(body.get("rules", [])), "applied_to": []}
        self.firewalls[wall["id"]] = wall
        return 201, {"firewall": wall, "actions": [self.begin("set_firewall_rules", [("firewall", wall["id"])])]}

    @route("POST", r"/firewalls/(\d+)/actions/set_rules")
    def set_rules(self, query, body, number):
        wall = self.found(self.firewalls, number)
        wall["rules"] = self.rules(body["rules"])
        return 201, {"actions": [self.begin("set_firewall_rules", [("firewall", wall["id"])])]}

    @route("DELETE", r"/firewalls/(\d+)")
    def delete_firewall(self, query, body, number):
        if self.found(self.firewalls, number)["applied_to"]:
            refuse(409, "resource_in_use", "firewall is still applied to a server")
        del self.firewalls[int(number)]
        return 204, None


if __name__ == "__main__":
    Hetzner().serve()
