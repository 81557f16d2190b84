#!/usr/bin/env python3
"""From `tnr start --provider CLOUD` to a CUDA program that passes, for each cloud: the cloud is a mock, and behind the
machine that it makes there is a local one, which boots with what our driver has sent as user data.

    clouds_test.py BIN PROGRAMS [CLOUD...]     BIN: of tnr, tnr-gpu-server, machine_behind; PROGRAMS: of CUDA programs

It runs in a network of its own, where the machines' public addresses are this computer's.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "api_client" / "clouds"), str(HERE.parent / "support")]
import with_server  # noqa: E402
from with_mock import mock_cloud  # noqa: E402

BIN, PROGRAMS = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
STEP_LIMIT_S = 900  # longer than tnr waits for a machine's SSH, so that its own words about it are heard
AT_ONCE = 2  # a boot under emulation is a core's work
POOL_HOST = "10.0.2.2"  # what a guest of QEMU's user network calls our loopback; here it is ours by that name, too
SKIPPED = 77
OWN_GPUS = {"thunder"}  # its machines bring GPUs of their own, and nobody can name them


def in_a_network_of_our_own():
    """Starts this program anew there; the image comes from the network that there is."""
    subprocess.run([BIN / "machine_behind", "image"], check=True)
    words = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*words, "true"]).returncode != 0:
        print("no network of one's own can be made here; tnr was not tried at clouds with machines")
        sys.exit(SKIPPED)
    os.execvpe(words[0], [*words, sys.executable, *sys.argv], dict(os.environ, TNR_TEST_NETWORK="own"))


def enrolled(name, pool, server_folder):
    """The secret, and how to sign in with it."""
    done = subprocess.run([BIN / "tnr-gpu-server", "user", "add", name, "--token", "--state", server_folder, "--address", pool],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)  # echo SECRET | tnr login pool ADDRESS KEY
    return words[1] + "\n", words[4:]


def life_at(cloud, folder, pool, server_folder):
    """What happened, for whoever reads the test's output."""
    home = folder / cloud
    home.mkdir()
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    # The mock's environment is its own: tnr's cache, of prices as well, is in its home.
    own = cloud in OWN_GPUS
    kind = ["--own-gpu", str(BIN / "tnr")] if own else [str(BIN / "machine_behind")]
    boot = [sys.executable, str(HERE / "machine_behind.py"), *kind]
    behind = {"TNR_MOCK_BOOT": shlex.join(boot), "XDG_STATE_HOME": str(home / "machines"), "XDG_CACHE_HOME": cache,
              "TNR_BEHIND_HOME": str(home / "behind")}
    if own:
        secret, sign_in = enrolled(cloud, pool, server_folder)
        (home / "behind").mkdir()
        subprocess.run([BIN / "tnr", *sign_in], input=secret, text=True, check=True, stdout=subprocess.DEVNULL,
                       env={"PATH": os.environ["PATH"], "HOME": str(home / "behind")})
    with mock_cloud(cloud + "_mock.py", environment=behind) as mock:
        if mock.url.endswith(":0"):
            return f"{cloud}: skipped, its mock needs what is not here"
        environment = {"PATH": os.environ["PATH"], "HOME": str(home),
                       **mock.ask("client", {"url": mock.url, "folder": str(home)})}

        def tnr(*words, given=None):
            # A machine that does not boot says why where nobody else would look.
            with subprocess.Popen([BIN / "tnr", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env=environment, cwd=home) as process:
                try:
                    out, err = process.communicate(given, timeout=STEP_LIMIT_S)
                except subprocess.TimeoutExpired:
                    process.terminate()
                    out, err = process.communicate()
            serial = "".join(log.read_text(errors="replace")[-2000:] for log in home.rglob("serial.log"))
            last_words = "\n".join(err.splitlines()[-5:])  # a line for each ten seconds of waiting is too many
            assert process.returncode == 0, f"{cloud}: tnr {' '.join(map(str, words))}\n{serial}\n{out}\n{last_words}"
            return out

        if not own:
            secret, sign_in = enrolled(cloud, pool, server_folder)
            tnr(*sign_in, given=secret)
        tnr("start", "demo", "--provider", cloud, "--gpu", "h100")
        machine = json.loads(tnr("status", "demo", "--json"))["machines"][0]
        assert (machine["provider"], machine["state"], machine["ready"]) == (cloud, "running", True), machine
        assert machine["price"]["per_hour"] > 0 and machine["ssh_port"] == 22, machine
        named = "instance" if own else "demo"
        assert tnr("connect", "demo", "--", "hostname | cut -d- -f1; nvidia-smi -L | cut -c1-18") == f"{named}\nGPU 0: NVIDIA H100\n"
        shutil.copy(PROGRAMS / "saxpy_static", home / "saxpy")
        tnr("sync", "./saxpy", "demo:")
        assert "PASS" in tnr("connect", "demo", "--", "./saxpy")
        tnr("delete", "demo", "--yes")
        assert mock.ask("left") == [], mock.ask("left")
        mock.check_description()
        return f"{cloud}: from start to a CUDA program that passes"


def clouds():
    """Those that have a mock."""
    mocks = (HERE.parent / "api_client" / "clouds").glob("*_mock.py")
    return sorted({mock.name.removesuffix("_mock.py") for mock in mocks} - {"cloud", "with"})


def main():
    if "TNR_TEST_NETWORK" not in os.environ:
        in_a_network_of_our_own()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", POOL_HOST + "/32", "dev", "lo"], check=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tnr-clouds-"))
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen([BIN / "tnr-gpu-server", "serve", "--listen", "tcp://0.0.0.0:0", "--emulate", "h100:4",
                                   "--state", folder / "server"], stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    try:
        port = with_server.address_of(server).rsplit(":", 1)[1]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as several:
            lives = [several.submit(life_at, cloud, folder, f"tcp://{POOL_HOST}:{port}", folder / "server")
                     for cloud in sys.argv[3:] or clouds()]
            for life in concurrent.futures.as_completed(lives):
                print(life.exception() or life.result(), flush=True)
        sys.exit(any(life.exception() for life in lives))
    finally:
        with_server.stop(server)
        server.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


main()
