"""Checks requests and replies against the discovery documents that the PyPI package google-api-python-client carries: paths,
parameters, and each field of each body. Stricter than Google: a field that the document does not name is a violation."""
import json
import re
import urllib.parse

try:
    import googleapiclient
except ImportError:
    googleapiclient = None

TYPES = {"string": str, "integer": int, "boolean": bool, "number": (int, float), "object": dict, "array": list}


def document(name):
    import pathlib
    return json.loads((pathlib.Path(googleapiclient.__file__).parent / "discovery_cache" / "documents" / name).read_text())


def methods_of(resource):
    yield from resource.get("methods", {}).values()
    for part in resource.get("resources", {}).values():
        yield from methods_of(part)


class Discovery:
    """As cloud_mock.Description, for Google's kind of description."""

    def __init__(self, *names):
        self.violations = []
        self.documents = [document(name) for name in names] if googleapiclient else []

    def found(self):
        return bool(self.documents)

    def check(self, method, path, query, headers, body, status, reply):
        if not self.documents or not path.startswith(("/compute/", "/v1/services")):
            return  # tokens and metadata are no part of the documents; Google's own client checks them
        where = f"{method} {path} -> {status}"
        known, call = self.method_for(method, path)
        if not call:
            if status < 400:
                self.violations.append(f"{where}: no such method")
            return
        if status < 400:
            for name, values in urllib.parse.parse_qs(query, keep_blank_values=True).items():
                self.parameter(where, known, call, name, values)
            given = json.loads(body) if body else None
            if given is not None and "request" not in call:
                self.violations.append(f"{where}: a body, where there is none")
            if given is not None and "request" in call:
                self.value(where + ", request", known, {"$ref": call["request"]["$ref"]}, given, "")
            self.value(where + ", reply", known, {"$ref": call["response"]["$ref"]}, json.loads(reply), "")
        elif not isinstance(json.loads(reply).get("error", {}).get("code"), int):
            self.violations.append(f"{where}: a refusal without an error")

    def method_for(self, method, path):
        for known in self.documents:
            for call in methods_of(known):
                template = "/" + known["servicePath"] + call.get("flatPath", call["path"])
                pattern = re.sub(r"\{[^}]*\}", "[^/]+", template)
                if call["httpMethod"] == method and re.fullmatch(pattern, path):
                    return known, call
        return None, None

    def parameter(self, where, known, call, name, values):
        what = call.get("parameters", {}).get(name) or known["parameters"].get(name)
        if not what:
            self.violations.append(f"{where}: unknown parameter {name}")
        elif what["type"] == "integer" and not values[-1].isdigit():
            self.violations.append(f"{where}: {name} is no number")
        elif name == "requestId" and not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", values[-1]):
            self.violations.append(f"{where}: {values[-1]} is no UUID")

    def value(self, where, known, schema, value, at):
        schema = known["schemas"][schema["$ref"]] if "$ref" in schema else schema
        kind = schema.get("type", "any")
        if kind == "any":
            return
        if not isinstance(value, TYPES[kind]) or (kind in ("integer", "number") and isinstance(value, bool)):
            self.violations.append(f"{where}: {at} is {value!r}, no {kind}")
        elif kind == "object":
            for name, each in value.items():
                part = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
                if part is None:
                    self.violations.append(f"{where}: {at}/{name} is not in the description")
                else:
                    self.value(where, known, part, each, f"{at}/{name}")
        elif kind == "array":
            for index, each in enumerate(value):
                self.value(where, known, schema["items"], each, f"{at}/{index}")
        elif kind == "string":
            if "enum" in schema and value not in schema["enum"]:
                self.violations.append(f"{where}: {at} is {value}, none of the known words")
            if schema.get("format") in ("int64", "uint64") and not re.fullmatch(r"-?\d+", value):
                self.violations.append(f"{where}: {at} is {value}, no number")
            if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
                self.violations.append(f"{where}: {at} is {value}, not {schema['pattern']}")
