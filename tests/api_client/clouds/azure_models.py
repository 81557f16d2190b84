"""Checks requests and replies against the models of the PyPI packages azure-mgmt-compute, -network and -resource: each field of each
body by its name and type. Stricter than Azure: a field that the models do not name is a violation, and so is one that only
Azure may write in a request."""
import enum
import json
import re
import sys
import typing
import urllib.parse

try:
    from azure.mgmt.compute import models as compute
    from azure.mgmt.network import models as network
    from azure.mgmt.resource.resources import models as resources
except ImportError:
    compute = None

GROUP = r"/subscriptions/[^/]+/resourcegroups/[^/]+"
SUB = r"/subscriptions/[^/]+"
COMPUTE, NETWORK = "/providers/microsoft.compute/", "/providers/microsoft.network/"


def table():
    """(method, path, model of the request, model of the reply); a list has its items' model."""
    return [("GET PUT", GROUP, resources.ResourceGroup, resources.ResourceGroup),
            ("GET", SUB + "/resourcegroups", None, [resources.ResourceGroup]),
            ("GET PUT", GROUP + NETWORK + "networksecuritygroups/[^/]+", network.NetworkSecurityGroup, network.NetworkSecurityGroup),
            ("PUT", GROUP + NETWORK + "networksecuritygroups/[^/]+/securityrules/[^/]+", network.SecurityRule, network.SecurityRule),
            ("GET PUT", GROUP + NETWORK + "publicipaddresses/[^/]+", network.PublicIPAddress, network.PublicIPAddress),
            ("GET", SUB + NETWORK + "publicipaddresses", None, [network.PublicIPAddress]),
            ("GET PUT", GROUP + NETWORK + "virtualnetworks/[^/]+", network.VirtualNetwork, network.VirtualNetwork),
            ("GET PUT", GROUP + NETWORK + "networkinterfaces/[^/]+", network.NetworkInterface, network.NetworkInterface),
            ("GET PUT", GROUP + COMPUTE + "virtualmachines/[^/]+", compute.VirtualMachine, compute.VirtualMachine),
            ("PATCH", GROUP + COMPUTE + "virtualmachines/[^/]+", compute.VirtualMachineUpdate, compute.VirtualMachine),
            ("GET", SUB + COMPUTE + "virtualmachines", None, [compute.VirtualMachine]),
            ("GET PUT", GROUP + COMPUTE + "images/[^/]+", compute.Image, compute.Image),
            ("GET PUT", GROUP + COMPUTE + "snapshots/[^/]+", compute.Snapshot, compute.Snapshot),
            ("GET", SUB + COMPUTE + "snapshots", None, [compute.Snapshot]),
            ("GET", SUB + COMPUTE + "skus", None, [compute.ResourceSku])]


class Models:
    """As cloud_mock.Description, for Azure's kind of description."""

    def __init__(self):
        self.violations = []
        self.table = table() if compute else []

    def found(self):
        return bool(self.table)

    def check(self, method, path, query, headers, body, status, reply):
        if not self.table or not path.startswith("/subscriptions"):
            return  # tokens and prices
        where = f"{method} {path} -> {status}"
        versions = urllib.parse.parse_qs(query).get("api-version", [])
        if status < 400 and (len(versions) != 1 or not re.fullmatch(r"20\d\d-\d\d-\d\d", versions[0])):
            self.violations.append(f"{where}: no version of the API")
        if status >= 400:
            error = json.loads(reply).get("error", {})
            if not isinstance(error.get("code"), str) or not isinstance(error.get("message"), str):
                self.violations.append(f"{where}: a refusal without code and message")
            return
        for methods, pattern, asked, answered in self.table:
            if method in methods.split() and re.fullmatch(pattern, path.lower()):
                if body:
                    self.value(where + ", request", asked, json.loads(body), "", True)
                if isinstance(answered, list):
                    for each in json.loads(reply)["value"]:
                        self.value(where + ", reply", answered[0], each, "", False)
                elif reply:
                    self.value(where + ", reply", answered, json.loads(reply), "", False)

    def value(self, where, kind, value, at, request):
        origin, parts = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Union:  # of one type and None, or of a text and its known words
            words = [part for part in parts if isinstance(part, type) and issubclass(part, enum.Enum)]
            rest = [part for part in parts if part not in words and part is not type(None)]
            if words and "Size" not in words[0].__name__ and isinstance(value, str) and \
                    value.lower() not in [word.value.lower() for word in words[0]]:
                self.violations.append(f"{where}: {at} is {value}, none of the known words")
            if rest:
                self.value(where, rest[0], value, at, request)
        elif origin is list:
            if not isinstance(value, list):
                self.violations.append(f"{where}: {at} is no list")
            else:
                for index, each in enumerate(value):
                    self.value(where, parts[0], each, f"{at}/{index}", request)
        elif origin is dict:
            if not isinstance(value, dict):
                self.violations.append(f"{where}: {at} is no object")
        elif getattr(kind, "_is_model", False):
            self.model(where, kind, value, at, request)
        elif kind in (str, int, float, bool):
            expected = (int, float) if kind is float else kind
            if not isinstance(value, expected) or (kind is int and isinstance(value, bool)):
                self.violations.append(f"{where}: {at} is {value!r}, no {kind.__name__}")

    def model(self, where, kind, value, at, request):
        if not isinstance(value, dict):
            self.violations.append(f"{where}: {at} is no object")
            return
        kind({})  # the class learns its fields when it is first used
        fields = {field._rest_name: (attribute, field) for attribute, field in kind._attr_to_rest_field.items()}
        for name, each in value.items():
            if name not in fields:
                self.violations.append(f"{where}: {at}/{name} is not in {kind.__name__}")
                continue
            attribute, field = fields[name]
            # Models of references share classes with what is referred to, whose id only Azure writes.
            if request and field._visibility == ["read"] and name not in ("id", "name"):
                self.violations.append(f"{where}: {at}/{name} is for Azure alone to write")
            for ancestor in kind.__mro__:
                if attribute in getattr(ancestor, "__annotations__", {}):
                    module = sys.modules[ancestor.__module__]
                    names = dict(vars(module), _models=sys.modules[ancestor.__module__.rpartition(".")[0]])
                    annotation = ancestor.__annotations__[attribute]
                    resolved = eval(annotation, names) if isinstance(annotation, str) else annotation
                    self.value(where, self.unquoted(resolved, names), each, f"{at}/{name}", request)
                    break

    # Names in quotes inside an annotation are references that typing leaves as they are.
    def unquoted(self, kind, names):
        if isinstance(kind, typing.ForwardRef):
            return eval(kind.__forward_arg__, names)
        if isinstance(kind, str):
            return eval(kind, names)
        parts = typing.get_args(kind)
        if not parts:
            return kind
        resolved = tuple(self.unquoted(part, names) for part in parts)
        origin = typing.get_origin(kind)
        return typing.Union[resolved] if origin is typing.Union else origin[resolved]
