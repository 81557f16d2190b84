#!/usr/bin/env python3
"""Google's own command line lives a machine's whole life at our mock. It is in no Debian; where it is missing, this is skipped."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from with_mock import mock_cloud

if not shutil.which("gcloud"):
    print("skipped: gcloud is not installed")
    sys.exit(77)

AT = ["--zone", "us-central1-a", "--quiet"]
IMAGE = ["--image", "ubuntu-2404-noble-amd64-v20260101", "--image-project", "ubuntu-os-cloud"]

with mock_cloud("gcp_mock.py") as mock, tempfile.TemporaryDirectory() as home:
    mock.ask("knobs", {"now": time.time()})
    key = pathlib.Path(home, "key.json")
    key.write_text(json.dumps(mock.ask("key", {"url": mock.url})))
    environment = {"PATH": os.environ["PATH"], "HOME": home, "CLOUDSDK_CONFIG": home + "/gcloud", "CLOUDSDK_CORE_PROJECT": "my-project",
                   "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
                   "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
                   "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": mock.url + "/compute/v1/"}

    def gcloud(*words, status=0):
        done = subprocess.run(["gcloud", *words], capture_output=True, text=True, env=environment, timeout=100)
        assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
        return done

    gcloud("auth", "activate-service-account", "--key-file", str(key))
    gcloud("compute", "firewall-rules", "create", "wall", "--allow", "tcp:22", "--target-tags", "tnr-demo")
    gcloud("compute", "instances", "create", "demo", "--machine-type", "e2-medium", "--labels", "tnr=demo", "--tags", "tnr-demo",
           *IMAGE, *AT)
    listed = json.loads(gcloud("compute", "instances", "list", "--filter", "labels.tnr:*", "--format", "json(name,labels)").stdout)
    assert listed == [{"name": "demo", "labels": {"tnr": "demo"}}], listed
    gcloud("compute", "instances", "stop", "demo", *AT)
    gcloud("compute", "instances", "set-machine-type", "demo", "--machine-type", "e2-standard-4", *AT)
    gcloud("compute", "snapshots", "create", "before", "--source-disk", "demo", "--source-disk-zone", "us-central1-a")
    gcloud("compute", "instances", "start", "demo", *AT)
    mock.ask("knobs", {"sold_out": ["e2-medium@us-central1-a"]})
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in gcloud("compute", "instances", "create", "other", "--machine-type", "e2-medium", *IMAGE, *AT, status=1).stderr
    gcloud("compute", "instances", "delete", "demo", *AT)
    gcloud("compute", "snapshots", "delete", "before", "--quiet")
    gcloud("compute", "firewall-rules", "delete", "wall", "--quiet")
    assert mock.ask("left") == [], mock.ask("left")
    # gcloud asks with a parameter that is newer than the description.
    violations = [each for each in mock.ask("violations") or [] if "returnPartialSuccess" not in each]
    assert not violations, violations
print("gcloud lived a machine's whole life at the mock")
