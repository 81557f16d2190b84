#!/usr/bin/env python3
"""A stateful Thunder Compute: specifications, prices, instances, snapshots, keys.

Nothing takes time: what is under way takes its next step each time somebody looks. Knobs: sold_out (["h100"], found out by ordering),
quota (true), console_delete (uuids), ssh ({"ip": …, "port": …}: where its machines' SSH servers are).
"""
import uuid

from cloud_mock import MockCloud, Refused, route

# GPU, how many, mode, price an hour, CPUs to choose from, GiB for each CPU, disk from, to, GiB of the GPU
SIZES = [("a6000", 1, "prototyping", 0.35, [4, 8], 8, 100, 500, 48), ("a100xl", 1, "prototyping", 0.78, [4, 8, 12], 8, 100, 500, 80),
         ("h100", 1, "prototyping", 1.38, [4, 8, 16], 8, 100, 500, 80), ("h100", 1, "production", 2.49, [18], 5, 100, 1000, 80),
         ("h100", 2, "production", 4.98, [36], 5, 200, 1000, 80)]
ADDRESS = "192.0.2.50"
PRICES = {**{f"{gpu}_x{count}_{mode}": price for gpu, count, mode, price, *_ in SIZES},
          "additional_vcpus": 0.04, "disk_gb": 0.0003, "a100xl": 0.78}


def refuse(status, code, message):
    raise Refused(status, {"code": status, "error": code, "message": message})


class Thunder(MockCloud):
    public_paths = ("/v1/pricing", "/v1/specs", "/v1/thunder-templates")

    def __init__(self):
        super().__init__("thundercompute.json", "/v1")
        self.instances, self.snapshots, self.keys = {}, {}, {}

    def unauthorized(self):
        refuse(401, "unauthorized", "invalid token")

    def unknown_path(self):
        refuse(404, "not_found", "no such path")

    def client(self, url, folder):
        return {"TNR_API_URL": url + "/v1", "TNR_API_TOKEN": self.token}

    def left(self):
        return [each["name"] for kind in (self.instances, self.snapshots, self.keys) for each in kind.values()]

    def costly(self):
        return [each["name"] for kind in (self.instances, self.snapshots) for each in kind.values()]

    def found(self, kind, key):
        if key not in kind:
            refuse(404, "not_found", "Instance not found")
        return kind[key]

    @route("GET", "/pricing")
    def pricing(self, query, body):
        return 200, {"pricing": PRICES}

    @route("GET", "/specs")
    def specs(self, query, body):
        return 200, {"specs": {f"{gpu}_x{count}_{mode}": {
            "displayName": gpu.upper(), "gpuCount": count, "mode": mode, "vcpuOptions": cpus, "ramPerVCPUGiB": ram,
            "storageGB": {"min": low, "max": high}, "vramGB": vram} for gpu, count, mode, _, cpus, ram, low, high, vram in SIZES}}

    @route("GET", "/thunder-templates")
    def templates(self, query, body):
        return 200, {"base": {"displayName": "Base", "default": True, "openPorts": []}}

    @route("GET", "/instances/list")
    def list_instances(self, query, body):
        for gone in self.knobs.pop("console_delete", []):
            self.instances = {key: each for key, each in self.instances.items() if each["uuid"] != gone}
        shown = {key: dict(each) for key, each in self.instances.items()}
        following = {"PROVISIONING": "STARTING", "STARTING": "RUNNING", "MODIFYING": "RUNNING", "SNAPPING": "RUNNING"}
        for each in self.instances.values():
            each["status"] = following.get(each["status"], each["status"])
            if each["status"] == "RUNNING":
                each.update(self.knobs.get("ssh", {"ip": ADDRESS}))
        return 200, shown

    @route("POST", "/instances/create")
    def create(self, query, body):
        size = f"{body['gpu_type']}_x{body['num_gpus']}_{body['mode']}"
        spec = self.specs(query, None)[1]["specs"].get(size)
        if not spec or body["cpu_cores"] not in spec["vcpuOptions"]:
            refuse(400, "invalid_request", f"no such configuration: {size} with {body['cpu_cores']} CPUs")
        if not spec["storageGB"]["min"] <= body["disk_size_gb"] <= spec["storageGB"]["max"]:
            refuse(400, "invalid_request", "disk size out of range")
        if body["template"] != "base" and body["template"] not in [each["name"] for each in self.snapshots.values()] + list(self.snapshots):
            refuse(400, "invalid_request", "no such template")
        if self.knobs.get("quota"):
            refuse(400, "quota_exceeded", "instance limit reached; contact support")
        if body["gpu_type"] in self.knobs.get("sold_out", []):
            refuse(400, "no_capacity", "no capacity for this GPU at the moment")
        number = len(self.log)
        key = str(number)
        self.instances[key] = {
            "uuid": str(uuid.UUID(int=number)), "name": f"instance-{number}", "status": "PROVISIONING", "ip": "", "port": 0,
            "cpuCores": str(body["cpu_cores"]), "memory": str(body["cpu_cores"] * spec["ramPerVCPUGiB"]), "storage": body["disk_size_gb"],
            "numGpus": str(body["num_gpus"]), "gpuType": body["gpu_type"].upper(), "template": body["template"], "mode": body["mode"],
            "createdAt": "2026-01-02T03:04:05Z", "httpPorts": [], "sshPublicKeys": [body["public_key"]] if "public_key" in body else []}
        self.boot(self.instances[key]["name"], ADDRESS, body.get("public_key", "").encode())
        private = "" if "public_key" in body else "-----BEGIN OPENSSH PRIVATE KEY-----"
        return 201, {"uuid": self.instances[key]["uuid"], "key": private, "identifier": number}

    @route("POST", r"/instances/(\w+)/delete")
    def delete(self, query, body, key):
        self.found(self.instances, key)
        del self.instances[key]
        return 200, {"message": "Success"}

    @route("POST", r"/instances/(\w+)/modify")
    def modify(self, query, body, key):
        instance = self.found(self.instances, key)
        if instance["status"] != "RUNNING":
            refuse(400, "invalid_request", "instance must be running")
        renamed = {"cpu_cores": "cpuCores", "num_gpus": "numGpus", "mode": "mode"}
        for name, ours in renamed.items():
            if name in body:
                instance[ours] = str(body[name])
        if "gpu_type" in body:
            instance["gpuType"] = body["gpu_type"].upper()
        ports = set(instance["httpPorts"]) | set(body.get("add_ports", []))
        instance["httpPorts"] = sorted(ports - set(body.get("remove_ports", [])))
        instance["status"] = "MODIFYING"
        return 200, {"identifier": key, "instance_name": instance["name"], "http_ports": instance["httpPorts"]}

    @route("POST", r"/instances/(\w+)/add_key")
    def add_key(self, query, body, key):
        instance = self.found(self.instances, key)
        instance["sshPublicKeys"].append(body["public_key"])
        return 200, {"uuid": instance["uuid"], "success": True, "message": "Key added"}

    def control(self, path, body):
        if path == "/mock/foreign":  # as the original tnr orders one, with a key that the cloud makes; its number
            return self.create({}, {"cpu_cores": 4, "disk_size_gb": 100, "gpu_type": "a100xl", "mode": "prototyping", "num_gpus": 1,
                                    "template": "base"})[1]["identifier"]
        return super().control(path, body)

    @route("POST", "/snapshots/create")
    def snapshot(self, query, body):
        instance = self.found(self.instances, body["instanceId"])
        key = f"snap-{len(self.log)}"
        self.snapshots[key] = {"id": key, "name": body["name"], "minimumDiskSizeGb": instance["storage"], "status": "CREATING",
                               "createdAt": 1767323045}
        instance["status"] = "SNAPPING"
        return 202, {"message": "Snapshot creation started"}

    @route("GET", "/snapshots/list")
    def list_snapshots(self, query, body):
        shown = [dict(each) for each in self.snapshots.values()]
        for each in self.snapshots.values():
            each["status"] = "READY"
        return 200, shown

    @route("DELETE", r"/snapshots/([\w-]+)")
    def delete_snapshot(self, query, body, key):
        self.found(self.snapshots, key)
        del self.snapshots[key]
        return 200, {"message": "Snapshot deleted successfully"}


if __name__ == "__main__":
    Thunder().serve()
