#!/usr/bin/env python3
"""A pool as its operator watches and keeps it: metrics, the page, status, the configuration file, stopping, backups.

    pool_watch_test.py BIN CLIENT OUT    BIN: folder of tnr and tnr-gpu-server; CLIENT: of libcuda.so.1; OUT: for screenshots
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import framed_page  # noqa: E402
import ports  # noqa: E402
import processes  # noqa: E402
import with_server  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN, CLIENT, OUT = (pathlib.Path(each).resolve() for each in sys.argv[1:4])
SERVER = BIN / "tnr-gpu-server"

# Has the GPU work for a while, and then holds it idle: as often, and as long, as the arguments say.
PROGRAM = r"""
import ctypes, signal, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
PTX = b'''
.version 7.0
.target sm_70
.address_size 64
.visible .entry nap(.param .u32 ms) {
 .reg .u32 %r; .reg .u64 %end, %now; .reg .pred %p;
 ld.param.u32 %r, [ms];
 mul.wide.u32 %end, %r, 1000000;
 mov.u64 %now, %globaltimer;
 add.u64 %end, %end, %now;
again:
 nanosleep.u32 1000000;
 mov.u64 %now, %globaltimer;
 setp.lt.u64 %p, %now, %end;
 @%p bra again;
 ret;
}
'''
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(function), module, b"nap")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
begun = time.monotonic()
ms = ctypes.c_uint32(int(float(sys.argv[1]) * 1000))
if ms.value:
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(ms), ctypes.c_void_p))
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    call("cuCtxSynchronize")
print(time.monotonic() - begun, flush=True)
time.sleep(float(sys.argv[2]))
"""


PORTS = ports.Ports(ports.BLOCK)
UNUSED = iter(PORTS.all())


def free_port():
    return next(UNUSED)


class PoolWatch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.state = self.folder / "server"
        self.http = f"http://127.0.0.1:{free_port()}"

    def serve(self, *more, emulate="h100:2,a100"):
        log = open(self.folder / "server.log", "ab")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            [SERVER, "serve", "--listen", "tcp://127.0.0.1:0", "--plain", "--emulate", emulate, "--state", self.state,
             "--http", self.http, "--linger-ms", "0", *more],
            stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(with_server.stop, server)
        self.address = with_server.address_of(server)
        self.assertIsNotNone(self.address, self.log())
        self.until(lambda: all(gpu["state"] == "free" for gpu in self.now()["gpus"]))
        return server

    def log(self):
        return (self.folder / "server.log").read_text()

    def operator(self, *arguments, expect=0, state=True):
        done = subprocess.run([SERVER, *arguments, *(["--state", self.state] if state else [])], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def program(self, busy=0, idle=60, gpu="h100", **environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        path = str(CLIENT) + (":" + kept["LD_LIBRARY_PATH"] if "LD_LIBRARY_PATH" in kept else "")
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(busy), str(idle)], stdout=subprocess.PIPE, text=True,
                                   env=dict(kept, HOME=str(self.folder), LD_LIBRARY_PATH=path, TNR_POOL=self.address,
                                            TNR_GPU=gpu, **environment), stderr=subprocess.PIPE)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.stderr.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        return program

    def get(self, path):
        with urllib.request.urlopen(self.http + path, timeout=10) as answer:
            return answer.read().decode()

    def now(self):
        return json.loads(self.get("/api/now"))

    def until(self, true, seconds=20):
        deadline = time.monotonic() + seconds
        while not true():
            self.assertLess(time.monotonic(), deadline, self.log())
            time.sleep(0.1)

    def test_busy_time_is_the_time_in_which_there_was_work(self):
        self.serve()
        busy_s = 1.5
        program = self.program(busy=busy_s, idle=1.5)
        program.wait()
        program.stdout.readline()
        worked = float(program.stdout.readline())
        self.until(lambda: all(gpu["state"] == "free" for gpu in self.now()["gpus"]))
        with sqlite3.connect(self.state / "pool.db") as database:
            lasted, busy, wiped, checked = database.execute(
                "SELECT until_ms - began_ms, busy_ms, wiped_bytes, wipe_checked_bytes FROM claims").fetchone()
        self.assertGreater(busy, 0.8 * busy_s * 1000)
        self.assertLess(busy, worked * 1000 + 400)
        self.assertGreater(lasted, busy + 1000)
        self.assertEqual(checked, wiped)  # the emulated one is read back whole

    def test_nvidia_smi_tells_how_busy_the_gpu_is(self):
        self.serve()

        def percent():
            environment = dict(os.environ, HOME=str(self.folder), LD_LIBRARY_PATH=str(CLIENT), TNR_POOL=self.address, TNR_GPU="h100")
            told = subprocess.run([BIN / "nvidia-smi", "--query-gpu=utilization.gpu,utilization.memory",
                                   "--format=csv,noheader,nounits"], env=environment, capture_output=True, text=True)
            self.assertEqual(told.returncode, 0, told.stderr)
            return int(told.stdout.split(",")[0])
        self.assertEqual(percent(), 0)  # nobody has it
        self.program(busy=8, idle=600).stdout.readline()
        self.until(lambda: percent() > 50)
        self.until(lambda: percent() == 0, 60)  # it is held, and has nothing to do

    def test_prometheus_takes_the_metrics_and_the_dashboard_asks_for_nothing_else(self):
        self.serve()
        self.program().stdout.readline()
        self.until(lambda: 'tnr_gpus{node=' in self.get("/metrics") and "state=\"claimed\"} 1" in self.get("/metrics"))
        text = self.get("/metrics")
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
            self.assertEqual(checked.stderr, "")
        names = set(re.findall(r"^([a-z_]+)", text, re.M))
        dashboard = json.loads((ROOT / "packaging/grafana/tnr-pool.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        queries += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
        asked = set(re.findall(r"\b(?:tnr|process)_[a-z_]+", " ".join(queries)))
        self.assertGreater(len(asked), 15)
        self.assertEqual(asked - names, set())
        for query in queries:  # the labels by which it sums and filters are there, too
            for name, labels in re.findall(r"((?:tnr|process)_[a-z_]+)\{([^}]*)\}", query):
                for label in re.findall(r"(\w+)[=!]", labels):
                    if label != "job":  # Prometheus's own
                        self.assertRegex(text, rf"(?m)^{name}\{{[^}}]*\b{label}=\"")
        if shutil.which("promtool"):
            rules = {"groups": [{"name": "dashboard", "rules": [
                {"record": f"query:{i}", "expr": re.sub(r"\$__rate_interval", "5m", query).replace("$node", ".*").replace("$type", ".*")}
                for i, query in enumerate(queries) if not query.startswith("label_values")]}]}
            (self.folder / "rules.json").write_text(json.dumps(rules))  # JSON is YAML
            checked = subprocess.run(["promtool", "check", "rules", self.folder / "rules.json"], capture_output=True, text=True)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_health_and_what_is_not_there(self):
        server = self.serve()
        self.assertEqual(self.get("/healthz"), "ok\n")
        for path, code in (("/nothing", 404), ("/../etc/passwd", 404)):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.get(path)
            refused.exception.close()
            self.assertEqual(refused.exception.code, code)
        request = urllib.request.Request(self.http + "/api/now", headers={"Host": "evil.example"})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        refused.exception.close()
        self.assertEqual(refused.exception.code, 403)
        processes.freeze(server.pid)  # the address says nothing any more
        with self.assertRaises(OSError):
            urllib.request.urlopen(self.http + "/healthz", timeout=2)
        os.kill(server.pid, signal.SIGCONT)

    @unittest.skipUnless(shutil.which("chromium"), "chromium is not there")
    def test_the_page_shows_it_on_a_desk_on_a_phone_and_at_night(self):
        self.serve("--name", "rack-7")
        self.operator("prices", "set", "h100", "2.5/h")
        self.program(busy=2, idle=600, TNR_PROCESS_NAME="x").stdout.readline()
        self.until(lambda: any(gpu["state"] == "claimed" for gpu in self.now()["gpus"]))
        OUT.mkdir(parents=True, exist_ok=True)
        common = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=6000",
                  f"--user-data-dir={self.folder}/chromium"]
        dark = ["--blink-settings=preferredColorScheme=0"]
        for name, size, more in (("desk", "1200,1500", []), ("phone", "500,2600", []), ("night", "500,2600", dark)):
            shot = OUT / f"watch-page-{name}.png"
            shot.unlink(missing_ok=True)
            subprocess.run([*common, *more, f"--window-size={size}", f"--screenshot={shot}", self.http + "/"], check=True,
                           capture_output=True, timeout=120)
            self.assertGreater(shot.stat().st_size, 20_000)
        self.assertNotEqual((OUT / "watch-page-phone.png").read_bytes(), (OUT / "watch-page-night.png").read_bytes())
        page = subprocess.run([*common, "--window-size=500,2000", "--dump-dom", self.http + "/"], check=True, text=True,
                              capture_output=True, timeout=120).stdout
        self.assertIn('data-ready="now day"', page)
        text = re.sub(r"<[^>]*>", " ", page.split("<main>")[1].split("<script>")[0])
        for wanted in ("claimed", "machine local", "h100 #1", "a100 #2", "Nobody waits.", "USD", "serving"):
            self.assertIn(wanted, text)
        self.assertRegex(page, r'role="img" aria-label="In the last day GPUs were held')
        self.assertNotIn("http://", page.replace(self.http, "").replace("http://www.w3.org/2000/svg", ""))  # nothing from outside

    @unittest.skipUnless(shutil.which("chromium"), "chromium is not there")
    def test_the_page_follows_what_begins_while_it_is_open_and_fits_a_phone(self):
        name, first = "rack" + 60 * "7", []  # as long as one may be
        self.serve("--name", name)

        def before(path, times):
            if path == "/api/now" and times == 0:
                first.append(self.now())
            elif path == "/api/now" and times == 1:  # it has shown a first picture
                self.program(busy=1, idle=600).stdout.readline()
                self.until(lambda: any(gpu["state"] == "claimed" for gpu in self.now()["gpus"]))
        page = framed_page.show(self.http, 360, self.folder, before)
        self.assertEqual([len(now["claims"]) for now in first], [0])
        text = re.sub(r"<[^>]*>", " ", page.html.split("<main>")[1].split("<script>")[0])
        self.assertRegex(text, r"h100 #0\s+claimed\s+machine local")
        for wanted in ("live, ", name):
            self.assertIn(wanted, text)
        self.assertEqual(page.inner, 360)
        self.assertLessEqual(page.scroll, page.inner)

    def test_status_and_top_show_who_holds_what(self):
        self.serve(emulate="h100")
        self.program().stdout.readline()
        self.program(TNR_WAIT="60", TNR_MACHINE="x")  # of the same machine: it joins
        self.until(lambda: self.now()["claims"])
        shown = self.operator("status")
        self.assertRegex(shown, r"h100 #0  claimed  machine local  local")
        document = json.loads(self.operator("status", "-o", "json"))
        self.assertEqual(document["gpus"][0]["state"], "claimed")
        self.assertEqual(document["limits"], [])
        top = [BIN / "tnr", "pool", "top", "--pool", self.address]
        plain = subprocess.run(top, capture_output=True, text=True, check=True, env=dict(os.environ, HOME=str(self.folder)))
        self.assertNotIn("\033", plain.stdout)
        self.assertRegex(plain.stdout, r"h100 #0  claimed  machine local")
        document = json.loads(subprocess.run([*top, "--json"], capture_output=True, text=True, check=True,
                                             env=dict(os.environ, HOME=str(self.folder))).stdout)
        self.assertEqual(document["gpus"][0]["user"], "machine local")
        for columns in (40, 80):
            for seconds in (3, 10, 30):  # there is one each second, unless the machine is busy
                live = subprocess.run(["script", "-qec", f"stty cols {columns} rows 12; timeout -s INT {seconds} " +
                                       " ".join(str(word) for word in top), "/dev/null"], capture_output=True, text=True,
                                      env=dict(os.environ, HOME=str(self.folder), NO_COLOR="1", TERM="xterm"),
                                      stdin=subprocess.DEVNULL)
                pictures = live.stdout.split("\033[H")[1:]
                if len(pictures) > 1:
                    break
            self.assertGreater(len(pictures), 1, live.stdout)
            for line in pictures[-1].split("\n"):
                self.assertLessEqual(len(re.sub(r"\033\[[0-9;]*[A-Za-z]", "", line).rstrip("\r")), columns)
            self.assertNotIn("\033[3", live.stdout)  # NO_COLOR

    def test_who_is_asked_to_stop_waits_for_programs_and_no_longer(self):
        server = self.serve("--stop-grace", "60")
        program = self.program()
        program.stdout.readline()
        server.send_signal(signal.SIGTERM)
        self.until(lambda: "waiting for programs of local" in self.log())
        self.until(lambda: self.now()["nodes"][0]["ending"])
        late = self.program(gpu="a100")
        self.assertNotEqual(late.wait(timeout=30), 0)
        self.assertIn("about to stop", late.stderr.read())
        program.terminate()
        self.assertEqual(program.wait(timeout=30), 0)  # it ends as if nothing were
        self.assertEqual(server.wait(timeout=30), 0)
        again = self.serve("--stop-grace", "600")
        program = self.program()
        program.stdout.readline()
        again.send_signal(signal.SIGTERM)
        self.until(lambda: self.log().count("waiting for programs of local") == 2)
        again.send_signal(signal.SIGTERM)
        self.assertEqual(again.wait(timeout=15), 0)

    def test_a_backup_is_one_moment_of_a_server_that_serves(self):
        server = self.serve()
        self.operator("prices", "set", "h100", "2.5/h")
        self.program().stdout.readline()
        file = self.folder / "backup"
        self.operator("backup", file)
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.assertIn("is there already", self.operator("backup", file, expect=2))
        self.assertIn("already serves", self.operator("restore", file, "--replace", expect=2))
        server.kill()
        server.wait()
        key = (self.state / "server.key").read_bytes()
        shutil.rmtree(self.state)
        self.operator("restore", file)
        self.assertEqual((self.state / "server.key").read_bytes(), key)
        self.assertIn("--replace", self.operator("restore", file, expect=2))
        self.operator("restore", file, "--replace")
        again = self.serve()
        self.assertIn("2.50", self.operator("prices"))
        again.kill()
        again.wait()
        with sqlite3.connect(self.state / "pool.db") as database:
            self.assertEqual(database.execute("SELECT reason FROM claims").fetchall(), [("server restarted",)])
            self.assertEqual(database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'backup'").fetchone(), (0,))
        damaged = self.folder / "damaged"
        content = bytearray(file.read_bytes())
        content[5000:9000] = bytes(4000)
        damaged.write_bytes(content)
        self.assertIn("is damaged", self.operator("restore", damaged, "--replace", expect=2))
        self.assertIn("/etc/passwd is no backup", self.operator("restore", "/etc/passwd", "--replace", expect=2))
        self.assertEqual((self.state / "server.key").read_bytes(), key)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_a_folder_that_may_not_be_written_is_not_called_damaged(self):
        self.operator("user", "add", "alice", "--address", "tcp://127.0.0.1:1")
        nobody, server = 65534, shutil.copy(SERVER, self.folder)  # where that one may go
        self.folder.chmod(0o711)
        for path in (self.state, *self.state.iterdir()):
            os.chown(path, nobody, nobody)
        self.state.chmod(0o500)

        def said(command):
            return subprocess.run([server, command, "--emulate", "h100", "--listen", "tcp://127.0.0.1:0", "--state", self.state],
                                  user=nobody, group=nobody, capture_output=True, text=True, timeout=60)
        checked = said("check").stdout
        self.assertRegex(checked, "fail +store +this user may not write .*/pool.db")
        self.assertNotIn("damaged", checked)  # nor that a backup would help
        self.assertNotIn("a server runs", checked)
        self.assertIn("hint: check who owns it", said("serve").stderr)

    def test_the_unit_leaves_the_server_the_gpus_devices(self):
        """Each of these makes systemd, or an older one, allow no devices but a few of its own."""
        unit = (ROOT / "packaging/dist/debian/tnr-gpu-server.service").read_text()
        self.assertEqual(re.findall(r"^(?:PrivateDevices|ProtectClock|DevicePolicy|DeviceAllow)=.*$", unit, re.M), [])

    def test_a_configuration_is_taken_and_a_mistake_in_it_named(self):
        file = self.folder / "server.conf"
        shipped = (ROOT / "packaging/dist/debian/tnr-gpu-server.conf").read_text()
        settings = re.findall(r"^(?:# )?([a-z-]+) = ", shipped, re.M)
        options = set(re.findall(r"^ +(?:-\w,)?--([a-z-]+)", self.operator("serve", "--help", state=False), re.M))
        self.assertEqual(set(settings) - options, set())  # all that it shows there is,
        self.assertEqual(options - set(settings), {"help", "config", "state"})  # and it shows all: the unit says the folder
        emulating = re.sub(r"^# (emulate = .*)$", r"\1", shipped, flags=re.M)
        file.write_text(re.sub(r"14900|14980", lambda _: str(free_port()), emulating))
        checks = json.loads(self.operator("check", "--config", file, "-o", "json"))["checks"]
        self.assertIn("2 h100", checks[0]["what"])
        for line, wanted in (("emulat = \"x\"", r"there is no setting 'emulat'\nhint: did you mean 'emulate'"),
                             ("linger-ms = \"soon\"", "linger-ms"), ("plain = 7", "true or false"),
                             ("driver = \"/x\"", "exclude each other"), ("[serve]\nx = 1", "no sections"),
                             ("listen tcp://127.0.0.1:0", "there is no setting 'listen tcp://127.0.0.1:0'")):
            file.write_text(emulating + line + "\n")
            self.assertRegex(self.operator("check", "--config", file, expect=2),
                             rf"server.conf, line {len(emulating.splitlines()) + 1}: .*(\n.*)*{wanted}" if "sections" not in wanted
                             else wanted)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            where = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            failed = subprocess.run([SERVER, "check", "--emulate", "h100", "--state", self.state, "--listen", where],
                                    capture_output=True, text=True)
        self.assertEqual(failed.returncode, 1)
        self.assertRegex(failed.stdout, "fail +listen")
        file.write_text("emulate = \"t4\"\nlog-format = \"json\"\n")
        self.serve("--config", str(file), emulate="a100")  # the command line wins
        self.assertEqual({gpu["type"] for gpu in self.now()["gpus"]}, {"a100"})
        for line in self.log().splitlines():
            self.assertEqual(set(json.loads(line)), {"time", "level", "message"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
