#!/usr/bin/env python3
"""A stateful DigitalOcean: sizes with prices, droplets, actions, snapshots, keys, tags, firewalls, a balance.

Nothing takes time: what is under way takes its next step each time somebody looks. Knobs: sold_out (["s-2vcpu-4gb@fra1"], found out
by ordering), listed_sold_out (sizes, seen in the list), console_delete (ids), quota (true), deaf (true: no power button).
"""
import hashlib
import uuid

from cloud_mock import MockCloud, Refused, route

NOW = "2026-01-02T03:04:05Z"
REGIONS = {"fra1": "Frankfurt 1", "nyc3": "New York 3", "sfo3": "San Francisco 3"}
# slug, cpus, memory MB, disk GB, hour, month, regions, GPU
SIZES = [("s-1vcpu-1gb", 1, 1024, 25, 0.00893, 6.0, ["fra1", "nyc3", "sfo3"], None),
         ("s-2vcpu-4gb", 2, 4096, 80, 0.03571, 24.0, ["fra1", "nyc3"], None),
         ("s-4vcpu-8gb", 4, 8192, 160, 0.07143, 48.0, ["fra1", "nyc3"], None),
         ("gpu-h100x1-80gb", 20, 245760, 720, 3.39, 2522.16, ["nyc3"], ("nvidia_h100", 1, 80))]


def refuse(status, code, message):
    raise Refused(status, {"id": code, "message": message, "request_id": "11111111-2222-3333-4444-555555555555"})


def mend(spec):
    """A key is named by its number or its fingerprint; openapi-core does not read a number where either will do."""
    for each in spec["paths"]["/v2/account/keys/{ssh_key_identifier}"]["delete"]["parameters"]:
        while "$ref" in each:
            each = spec["components"]["parameters"][each["$ref"].rsplit("/", 1)[1]]
        each["schema"] = {"type": "string"}


class DigitalOcean(MockCloud):
    def __init__(self):
        super().__init__("digitalocean.json", "", mend)
        self.droplets, self.actions, self.keys, self.snapshots, self.walls, self.tags = {}, {}, {}, {}, {}, set()
        self.deleted, self.listed_still = [], []  # deleted; of these, not yet gone from lists
        self.sizes = {each[0]: self.size(*each) for each in SIZES}

    def unauthorized(self):
        refuse(401, "unauthorized", "Unable to authenticate you")

    def unknown_path(self):
        refuse(404, "not_found", "The resource you were accessing could not be found.")

    def client(self, url, folder):
        return {"DIGITALOCEAN_API_URL": url, "DIGITALOCEAN_ACCESS_TOKEN": self.token}

    def left(self):
        return [each["name"] for kind in (self.droplets, self.keys, self.walls, self.snapshots) for each in kind.values()] + sorted(
            self.tags - {"tnr"})

    def costly(self):
        return [each["name"] for kind in (self.droplets, self.snapshots) for each in kind.values()]

    def size(self, slug, cpus, memory, disk, hour, month, regions, gpu):
        size = {"slug": slug, "vcpus": cpus, "memory": memory, "disk": disk, "transfer": 4.0, "price_hourly": hour,
                "price_monthly": month, "regions": regions, "available": True, "description": "Basic"}
        if gpu:
            size["gpu_info"] = {"model": gpu[0], "count": gpu[1], "vram": {"amount": gpu[2], "unit": "gib"}}
        return size

    def region(self, slug):
        return {"slug": slug, "name": REGIONS[slug], "available": True, "features": ["metadata"],
                "sizes": [each["slug"] for each in self.sizes.values() if slug in each["regions"]]}

    def page(self, query, name, items):
        per_page, page = int(query.get("per_page", 20)), int(query.get("page", 1))
        here = f"https://api.digitalocean.com/v2/{name}?page="
        pages = {}
        if page * per_page < len(items):
            pages = {"next": f"{here}{page + 1}", "last": f"{here}{-(-len(items) // per_page)}"}
        return 200, {name: items[(page - 1) * per_page:page * per_page], "links": {"pages": pages} if pages else {},
                     "meta": {"total": len(items)}}

    def found(self, kind, key):
        if key not in kind:
            self.unknown_path()
        return kind[key]

    def begin(self, kind, droplet, finish=lambda: None):
        action = {"id": self.new_id(), "status": "in-progress", "type": kind, "started_at": NOW, "completed_at": None,
                  "resource_id": droplet["id"], "resource_type": "droplet", "region": droplet["region"],
                  "region_slug": droplet["region"]["slug"]}
        self.actions[action["id"]] = (action, finish)
        return dict(action)

    def control(self, path, body):
        if path == "/mock/many":  # copies of the one droplet there is
            one = next(iter(self.droplets.values()))
            for index in range(body["count"]):
                number = self.new_id()
                self.droplets[number] = dict(one, id=number, name=f"copy-{index}")
            return {}
        if path == "/mock/list_again":
            self.listed_still = self.deleted[-1:]
            return {}
        return super().control(path, body)

    # --- account

    @route("GET", "/v2/account")
    def account(self, query, body):
        return 200, {"account": {"droplet_limit": 25, "floating_ip_limit": 5, "email": "sammy@example.com", "uuid": "u" * 40,
                                 "name": "Sammy", "email_verified": True, "status": "active", "status_message": "",
                                 "team": {"uuid": "t" * 40, "name": "My Team"}}}

    @route("GET", "/v2/customers/my/balance")
    def balance(self, query, body):
        return 200, {"month_to_date_balance": "23.44", "account_balance": "12.23", "month_to_date_usage": "11.21",
                     "generated_at": NOW}

    @route("GET", "/v2/sizes")
    def list_sizes(self, query, body):
        for each in self.sizes.values():
            each["available"] = each["slug"] not in self.knobs.get("listed_sold_out", [])
        return self.page(query, "sizes", list(self.sizes.values()))

    # --- droplets

    def sweep_console(self):
        for number in self.knobs.pop("console_delete", []):
            self.droplets.pop(int(number), None)

    def shown(self, droplet):
        seen = {key: value for key, value in droplet.items() if key != "next"}
        if droplet["next"]:
            droplet["status"], droplet["next"] = droplet["next"], None
        return seen

    @route("GET", "/v2/droplets")
    def list_droplets(self, query, body):
        self.sweep_console()
        wanted = query.get("tag_name")
        listed = list(self.droplets.values()) + self.listed_still
        self.listed_still = []
        return self.page(query, "droplets", [self.shown(each) for each in listed if not wanted or wanted in each["tags"]])

    @route("GET", r"/v2/droplets/(\d+)")
    def get_droplet(self, query, body, number):
        self.sweep_console()
        return 200, {"droplet": self.shown(self.found(self.droplets, int(number)))}

    @route("POST", "/v2/droplets")
    def create_droplet(self, query, body):
        size = self.sizes.get(body["size"])
        place = body.get("region", "nyc3")
        if not size or place not in REGIONS:
            refuse(422, "unprocessable_entity", "You specified an invalid size for Droplet creation.")
        if self.knobs.get("quota"):
            refuse(422, "unprocessable_entity", "creating this/these droplet(s) will exceed your droplet limit")
        if place not in size["regions"] or f"{size['slug']}@{place}" in self.knobs.get("sold_out", []):
            refuse(422, "unprocessable_entity", "Size is not available in this region.")
        image = body["image"]
        if image != "debian-12-x64" and str(image) not in self.snapshots:
            refuse(422, "unprocessable_entity", "You specified an invalid image for Droplet creation.")
        for key in body.get("ssh_keys", []):
            if key not in self.keys:
                refuse(422, "unprocessable_entity", f"{key} are invalid key identifiers for Droplet creation.")
        self.tags |= set(body.get("tags") or [])
        number = self.new_id()
        networks = {"v4": [{"ip_address": "10.0.0.2", "netmask": "255.255.0.0", "gateway": "10.0.0.1", "type": "private"},
                           {"ip_address": "192.0.2.20", "netmask": "255.255.255.0", "gateway": "192.0.2.1", "type": "public"}],
                    "v6": []}
        droplet = {"id": number, "name": body["name"], "memory": size["memory"], "vcpus": size["vcpus"], "disk": size["disk"],
                   "locked": False, "status": "new", "next": "active", "created_at": NOW, "features": ["monitoring"],
                   "backup_ids": [], "next_backup_window": None, "snapshot_ids": [], "volume_ids": [], "size": size,
                   "size_slug": size["slug"], "networks": networks, "region": self.region(place), "tags": body.get("tags") or [],
                   "image": {"id": 1, "name": "12 x64", "distribution": "Debian", "slug": "debian-12-x64", "public": True,
                             "regions": list(REGIONS), "type": "base", "min_disk_size": 7, "size_gigabytes": 0.5,
                             "created_at": NOW, "status": "available", "tags": []}}
        self.droplets[number] = droplet
        self.boot(droplet["name"], networks["v4"][1]["ip_address"], (body.get("user_data") or "").encode())
        action = self.begin("create", droplet)
        link = {"id": action["id"], "rel": "create", "href": f"https://api.digitalocean.com/v2/actions/{action['id']}"}
        return 202, {"droplet": {key: value for key, value in droplet.items() if key != "next"}, "links": {"actions": [link]}}

    @route("DELETE", r"/v2/droplets/(\d+)")
    def delete_droplet(self, query, body, number):
        gone = self.found(self.droplets, int(number))
        del self.droplets[int(number)]
        self.listed_still = [gone]  # once more
        self.deleted.append(gone)
        return 204, None

    @route("POST", r"/v2/droplets/(\d+)/actions")
    def act(self, query, body, number):
        droplet = self.found(self.droplets, int(number))
        what = body["type"]
        if what == "shutdown":
            if not self.knobs.get("deaf"):
                droplet["next"] = "off"
            return 201, {"action": self.begin(what, droplet)}
        if what in ("power_off", "power_on"):
            return 201, {"action": self.begin(what, droplet, lambda: droplet.update(
                status="off" if what == "power_off" else "active", next=None))}
        if what == "resize":
            size = self.sizes.get(body["size"])
            if not size or droplet["status"] != "off":
                refuse(422, "unprocessable_entity", "Droplet must be powered off to be resized.")
            return 201, {"action": self.begin(what, droplet, lambda: droplet.update(
                size=size, size_slug=size["slug"], memory=size["memory"], vcpus=size["vcpus"]))}
        if what == "snapshot":
            key = str(self.new_id())
            self.snapshots[key] = {"id": key, "name": body["name"], "created_at": NOW, "regions": [droplet["region"]["slug"]],
                                   "min_disk_size": droplet["disk"], "size_gigabytes": 2.5, "tags": [],
                                   "resource_id": str(droplet["id"]), "resource_type": "droplet"}
            return 201, {"action": self.begin(what, droplet)}
        return self.unknown_path()

    @route("GET", r"/v2/actions/(\d+)")
    def get_action(self, query, body, number):
        action, finish = self.found(self.actions, int(number))
        if action["status"] == "in-progress":
            finish()
            action.update(status="completed", completed_at=NOW)
        return 200, {"action": action}

    # --- snapshots, keys, tags, firewalls

    @route("GET", "/v2/snapshots")
    def list_snapshots(self, query, body):
        return self.page(query, "snapshots", list(self.snapshots.values()))

    @route("DELETE", r"/v2/snapshots/(\d+)")
    def delete_snapshot(self, query, body, key):
        self.found(self.snapshots, key)
        del self.snapshots[key]
        return 204, None

    @route("GET", "/v2/account/keys")
    def list_keys(self, query, body):
        return self.page(query, "ssh_keys", list(self.keys.values()))

    @route("POST", "/v2/account/keys")
    def create_key(self, query, body):
        if any(each["public_key"].split()[:2] == body["public_key"].split()[:2] for each in self.keys.values()):
            refuse(422, "unprocessable_entity", "SSH Key is already in use on your account")
        digest = hashlib.md5(body["public_key"].encode()).hexdigest()
        key = {"id": self.new_id(), "name": body["name"], "public_key": body["public_key"],
               "fingerprint": ":".join(digest[i:i + 2] for i in range(0, 32, 2))}
        self.keys[key["id"]] = key
        return 201, {"ssh_key": key}

    @route("DELETE", r"/v2/account/keys/(\d+)")
    def delete_key(self, query, body, number):
        self.found(self.keys, int(number))
        del self.keys[int(number)]
        return 204, None

    @route("GET", "/v2/tags")
    def list_tags(self, query, body):
        return self.page(query, "tags", [self.tag(name) for name in sorted(self.tags)])

    def tag(self, name):
        count = sum(name in each["tags"] for each in self.droplets.values())
        return {"name": name, "resources": {"count": count, "droplets": {"count": count}}}

    @route("POST", "/v2/tags")
    def create_tag(self, query, body):
        self.tags.add(body["name"])
        return 201, {"tag": self.tag(body["name"])}

    @route("DELETE", r"/v2/tags/([^/]+)")
    def delete_tag(self, query, body, name):
        import urllib.parse
        name = urllib.parse.unquote(name)
        if name not in self.tags:
            self.unknown_path()
        self.tags.discard(name)
        return 204, None

    def wall(self, key, body):
        if not body.get("name") or not (body.get("inbound_rules") or body.get("outbound_rules")):
            refuse(422, "unprocessable_entity", "a firewall needs a name and a rule")
        for name in body.get("tags") or []:
            if name not in self.tags:
                refuse(422, "unprocessable_entity", f"tag {name} does not exist")
        return {"id": key, "name": body["name"], "status": "succeeded", "created_at": NOW, "pending_changes": [],
                "droplet_ids": body.get("droplet_ids") or [], "tags": body.get("tags") or [],
                "inbound_rules": body.get("inbound_rules"), "outbound_rules": body.get("outbound_rules")}

    @route("GET", "/v2/firewalls")
    def list_firewalls(self, query, body):
        return self.page(query, "firewalls", list(self.walls.values()))

    @route("POST", "/v2/firewalls")
    def create_firewall(self, query, body):
        if any(each["name"] == body["name"] for each in self.walls.values()):
            refuse(409, "conflict", "duplicate name")
        key = str(uuid.UUID(int=self.new_id()))
        self.walls[key] = self.wall(key, body)
        return 202, {"firewall": self.walls[key]}

    @route("PUT", r"/v2/firewalls/([0-9a-f-]+)")
    def set_firewall(self, query, body, key):
        self.found(self.walls, key)
        self.walls[key] = self.wall(key, body)
        return 200, {"firewall": self.walls[key]}

    @route("DELETE", r"/v2/firewalls/([0-9a-f-]+)")
    def delete_firewall(self, query, body, key):
        self.found(self.walls, key)
        del self.walls[key]
        return 204, None


if __name__ == "__main__":
    DigitalOcean().serve()
