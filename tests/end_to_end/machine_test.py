#!/usr/bin/env python3
"""The whole way on real parts: a GPU server with keys, a QEMU machine without a GPU, unmodified CUDA programs on it.

    machine_test.py BIN PROGRAMS        BIN: folder of tnr and tnr-gpu-server; PROGRAMS: folder of the built CUDA programs

Files, keys and the machine live in a temporary folder; only the machine image is shared, through the user's cache.
"""
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN, PROGRAMS = map(pathlib.Path, sys.argv[1:3])
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NODE_SCRIPT, UPGRADE_SCRIPT, HOLDING_PROGRAM = (HERE / name for name in
                                                ("node_in_a_unit.sh", "upgrade_in_a_unit.sh", "holding_program.py"))
STEP_LIMIT_S = 900  # an emulated machine on a busy host takes minutes to boot


# The GPU fills managed memory, and system calls write it to a file and read another into it.
MANAGED_PROGRAM = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    assert error == 0, (name, error)
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
size = 1 << 20
call("cuMemAllocManaged", ctypes.byref(memory), ctypes.c_size_t(size), 1)
here = (ctypes.c_char * size).from_address(memory.value)
file = os.memfd_create("copy")
def fill(byte):
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(byte), ctypes.c_size_t(size))
fill(7)
assert os.writev(file, [here]) == size and os.pread(file, size, 0) == bytes([7]) * size
os.pwrite(file, bytes([9]) * size, 0)
fill(8)
assert os.preadv(file, [here], 0) == size and here.raw == bytes([9]) * size
back = ctypes.create_string_buffer(size)
other = ctypes.c_uint64()
call("cuMemAlloc_v2", ctypes.byref(other), ctypes.c_size_t(size))
call("cuMemcpyDtoD_v2", other, memory, ctypes.c_size_t(size))
call("cuMemcpyDtoH_v2", back, other, ctypes.c_size_t(size))
assert back.raw == bytes([9]) * size
print("written and read")
"""


class World:
    """A laptop (its own XDG folders) and a GPU node, in one temporary folder."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tnr-e2e-"))
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")))
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(cache), XDG_CONFIG_HOME=str(self.folder / "config"),
                                XDG_STATE_HOME=str(self.folder / "state"))
        for name in ("TNR_POOL", "TNR_GPU", "TNR_CONFIG", "LD_LIBRARY_PATH"):
            self.environment.pop(name, None)
        self.server = None

    def start_server(self):
        with open(self.folder / "server.log", "w") as log:
            self.server = subprocess.Popen(
                [BIN / "tnr-gpu-server", "serve", "--listen", "tcp://127.0.0.1:0", "--emulate", "h100:2,a100",
                 "--state", self.folder / "server"], stdout=subprocess.PIPE, stderr=log, env=self.environment, text=True)
        line = self.server.stdout.readline()
        assert line.startswith("listening on "), (self.folder / "server.log").read_text()
        self.address = line.split()[2]

    def sign_in(self):
        line = subprocess.run([BIN / "tnr-gpu-server", "user", "add", "tester", "--token", "--state", self.folder / "server"],
                              capture_output=True, text=True, check=True, env=self.environment).stdout
        words = shlex.split(line)
        assert words[0] == "echo" and words[2:6] == ["|", "tnr", "login", "pool"], line
        done = self.tnr(*words[4:], input=words[1] + "\n")
        assert done.returncode == 0, done.stderr

    def tnr(self, *arguments, **options):
        return subprocess.run([BIN / "tnr", *arguments], capture_output=True, text=True, timeout=STEP_LIMIT_S,
                              env=self.environment, cwd=self.folder, **options)

    def begin(self, *arguments):
        """A tnr that goes on while the test does something else."""
        def hear_ctrl_c():  # which whoever runs tests in the background of a script has made us ignore
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        return subprocess.Popen([BIN / "tnr", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                stdin=subprocess.DEVNULL, env=self.environment, cwd=self.folder, preexec_fn=hear_ctrl_c)

    def machine_folder(self):
        return self.folder / "state" / "tnr" / "local" / "demo"

    def qemus(self):
        found = subprocess.run(["pgrep", "-f", f"qemu.*{self.folder.name}"], capture_output=True, text=True).stdout
        return [int(pid) for pid in found.split()]

    def close(self):
        self.tnr("delete", "demo", "twin", "--yes")
        if self.server:
            self.server.terminate()
            self.server.wait(timeout=20)
            self.server.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Machine(unittest.TestCase):
    """The tests run in the order of their names: one machine, from its start to its end."""

    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.start_server()
        cls.world.sign_in()

    def tnr(self, *arguments, **options):
        return self.world.tnr(*arguments, **options)

    def succeeds(self, *arguments, **options):
        done = self.tnr(*arguments, **options)
        self.assertEqual(done.returncode, 0, f"tnr {' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def test_01_an_unknown_gpu_type_is_refused_with_those_there_are(self):
        done = self.tnr("start", "demo", "--provider", "local", "--gpu", "h300")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"h300[\s\S]*a100[\s\S]*h100")

    def machines(self):
        return json.loads(self.succeeds("status", "--json"))["machines"]

    def fails(self, code, *arguments):
        done = self.tnr(*arguments)
        self.assertEqual(done.returncode, code, f"tnr {' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}")
        return done.stderr

    def begin_start(self, step="creating the machine"):
        """A start that is at this step."""
        start, said = self.world.begin("start", "demo", "--provider", "local", "--gpu", "h100"), ""
        for line in start.stderr:
            said += line
            if step in line:
                return start
        self.fail(said)

    def interrupt(self, process):
        """Ctrl-C; what it says then."""
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=STEP_LIMIT_S)[1]
        self.assertEqual(process.returncode, 130, said)
        return said

    def test_02_a_start_that_is_interrupted_says_what_exists(self):
        start = self.begin_start()
        self.assertIn("another tnr is working on 'demo'", self.fails(1, "start", "demo", "--gpu", "h100"))
        said = self.interrupt(start)
        self.assertRegex(said, "tnr: interrupted\n.*'demo' exists.*`tnr start demo` continues.*`tnr delete demo`")
        self.assertEqual([(m["name"], m["state"], m["ready"]) for m in self.machines()], [("demo", "running", False)])
        self.assertIn("tnr start demo", self.machines()[0]["hint"])
        self.assertEqual(len(self.world.qemus()), 1)

    def test_03_start_continues_and_proves_the_gpu(self):
        before = self.world.qemus()
        done = self.tnr("start", "demo")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("H100", done.stdout + done.stderr)
        self.assertEqual(self.world.qemus(), before)  # the machine that there was
        machine = self.machines()[0]
        self.assertEqual((machine["state"], machine["ready"], machine["gpu"]), ("running", True, {"type": "h100", "count": 1}))

    def test_04_the_bus_shows_no_gpu(self):
        devices = self.succeeds("connect", "demo", "--", "lspci", "-n")
        classes = re.findall(r"^\S+ (\w{4}):", devices, re.M)
        self.assertTrue(classes)
        self.assertFalse([c for c in classes if c.startswith("03")], devices)

    def test_04b_what_people_expect_on_a_machine_is_there(self):
        self.succeeds("connect", "demo", "--", "git --version && gcc --version && curl --version && tmux -V && nano --version && "
                      "rsync --version && infocmp xterm-kitty alacritty && infocmp foot tmux-256color && python3 -m venv env && env/bin/pip --version")
        # What keeps services from starting in an image that is being built must not be in one that was.
        self.succeeds("connect", "demo", "--", "! test -e /usr/sbin/policy-rc.d && ! test -e /sbin/start-stop-daemon.REAL && "
                      "/sbin/start-stop-daemon --version | grep -q Debian")
        # Each session, that of `attach` too, would wait for it.
        self.succeeds("connect", "demo", "--", "! test -e /etc/update-motd.d")

    def test_05_nvidia_smi_shows_the_gpu(self):
        self.assertEqual(self.succeeds("connect", "demo", "--", "nvidia-smi").count("NVIDIA H100"), 1)

    def test_06_a_synced_program_runs_on_the_remote_gpu(self):
        shutil.copy(PROGRAMS / "saxpy_static", self.world.folder / "saxpy")
        self.succeeds("sync", "./saxpy", "demo:")
        done = self.tnr("connect", "demo", "--", "TNR_STATS=1 ./saxpy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("PASS", done.stdout)
        self.assertRegex(done.stderr, r"tnr: .*cuLaunchKernel")  # it was our libcuda that ran it

    def test_06b_system_calls_reach_memory_that_the_gpu_had_last(self):
        """As an ordinary user: the machine's kernel is told to let us see accesses."""
        (self.world.folder / "managed.py").write_text(MANAGED_PROGRAM)
        self.succeeds("sync", "./managed.py", "demo:")
        self.assertEqual(self.succeeds("connect", "demo", "--", "python3 managed.py"), "written and read\n")

    def test_07_the_remote_commands_exit_code_is_mirrored(self):
        self.assertEqual(self.tnr("connect", "demo", "--", "exit 7").returncode, 7)
        self.assertEqual(self.tnr("connect", "demo", "--", "kill -9 $$").returncode, 137)

    def test_08_starting_again_says_so_and_changes_nothing(self):
        before = json.loads(self.succeeds("status", "--json"))["machines"]
        self.succeeds("start", "demo", "--gpu", "h100")
        after = json.loads(self.succeeds("status", "--json"))["machines"]
        self.assertEqual([m["name"] for m in after], ["demo"])
        self.assertEqual([m["address"] for m in before], [m["address"] for m in after])

    def test_09_sync_brings_a_folder_there_and_back(self):
        folder = self.world.folder / "data"
        (folder / "deep er").mkdir(parents=True)
        (folder / "deep er" / "ünicode").write_bytes(os.urandom(100_000))
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o755)
        os.utime(folder / "run.sh", (1_000_000_000, 1_000_000_000))
        self.succeeds("sync", "./data", "demo:")
        self.succeeds("sync", "demo:data", "./back")
        back = next(self.world.folder.glob("back/**/run.sh"))
        self.assertEqual(back.stat().st_mode & 0o777, 0o755)
        self.assertEqual(int(back.stat().st_mtime), 1_000_000_000)
        self.assertEqual((back.parent / "deep er" / "ünicode").read_bytes(), (folder / "deep er" / "ünicode").read_bytes())

    def test_10_the_machine_keeps_no_credentials_of_the_account(self):
        secrets = json.dumps(json.loads((self.world.folder / "config" / "tnr" / "pool.json").read_text()))
        keys = [k for k in re.findall(r'"([^"]{40})"', secrets)]
        there = self.succeeds("connect", "demo", "--", "sudo cat /etc/tnr/gpu.json; sudo grep -rl secret /etc/tnr")
        public = json.loads(there[:there.rindex("}") + 1])["server_key"]
        self.assertFalse([k for k in keys if k != public and k in there])

    def test_11_ctrl_c_ends_the_remote_command_too(self):
        connect = self.world.begin("connect", "demo", "--", "echo $$; exec sleep 1000")
        pid = connect.stdout.readline().strip()
        self.interrupt(connect)
        self.succeeds("connect", "demo", "--", f"timeout 60 sh -c 'while kill -0 {pid}; do sleep 0.1; done'")

    def test_12_closed_standard_streams_are_no_harm(self):
        closed = subprocess.run(["sh", "-c", '"$@" <&- 2>&-', "sh", BIN / "tnr", "connect", "demo", "--", "cat; echo end"],
                                stdout=subprocess.PIPE, text=True, env=self.world.environment, timeout=STEP_LIMIT_S)
        self.assertEqual((closed.returncode, closed.stdout), (0, "end\n"))

    def test_13_a_full_disk_is_called_that_by_sync(self):
        (self.world.folder / "large").write_bytes(os.urandom(4_000_000))
        self.succeeds("connect", "demo", "--", "mkdir full && sudo mount -t tmpfs -o size=1m,mode=777 tmpfs full")
        said = self.fails(1, "sync", "./large", "demo:full/")
        self.assertRegex(said, "the disk there is full\nhint: .*df -h")
        self.assertEqual(self.succeeds("connect", "demo", "--", "ls -A full; sudo umount full; rmdir full"), "")

    def test_14_a_full_disk_is_called_that_by_start_which_goes_on_when_there_is_space(self):
        self.succeeds("connect", "demo", "--", "sudo mount -t tmpfs -o size=64k tmpfs /usr/local/lib/tnr")
        said = self.fails(1, "start", "demo")
        self.assertRegex(said, "its disk is full[\\s\\S]*hint: .*df -h[\\s\\S]*`tnr start demo` continues")
        left = "find /usr/local /tmp -name '*.new' -o -name 'tnr-install.*'"
        self.assertEqual(self.succeeds("connect", "demo", "--", f"sudo {left}; sudo umount /usr/local/lib/tnr"), "")
        self.succeeds("start", "demo")

    def test_15_ssh_that_is_away_for_a_while_is_waited_for(self):
        self.succeeds("connect", "demo", "--",
                      "sudo systemctl stop ssh && sudo systemd-run --quiet sh -c 'sleep 15; systemctl start ssh'")
        done = self.tnr("connect", "demo", "--", "echo back")
        self.assertEqual((done.returncode, done.stdout), (0, "back\n"), done.stderr)
        self.assertIn("waiting for SSH on 'demo'", done.stderr)

    def test_15b_a_server_in_its_unit_holds_its_workers(self):
        """Our packaged unit on a real systemd: the GPU node is the machine itself, without a GPU."""
        dist = ROOT / "packaging" / "dist" / "debian"
        self.succeeds("sync", BIN / "tnr-gpu-server", BIN.parent / "lib" / "libcuda-emulated.so.1",
                      *(dist / f"tnr-gpu-server.{part}" for part in ("service", "sysusers")), NODE_SCRIPT, "demo:node/")
        said = self.succeeds("connect", "demo", "--", "sudo sh node/node_in_a_unit.sh")
        lines = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
        self.assertEqual(lines.get("limits"), f"{(64 + 64) << 20} 1024 100", said)
        self.assertRegex(lines.get("process"), r"^\d+ 1$", said)  # the host's number, and its own
        self.assertEqual(lines.get("namespaces of its own"), "cgroup:no ipc:yes mnt:yes net:yes pid:yes user:yes", said)
        self.assertEqual(lines.get("a hog"), "137", said)
        self.assertEqual(lines.get("threads"), "1024 at most", said)
        self.assertEqual(lines.get("afterwards"), "active, 1 worker", said)
        self.assertNotIn("sandbox lacks", said)
        self.assertIn("held to their part of memory, pids, cpu by control groups", said)

    def server_package(self, version):
        """The package as packaging/release makes it, of this build. Each version's program is another file."""
        stage, out = self.world.folder / f"stage-{version}", self.world.folder / f"deb-{version}"
        for folder in ("bin", "lib", "share/man/man1"):
            (stage / folder).mkdir(parents=True)
        out.mkdir()
        server = stage / "bin" / "tnr-gpu-server"
        subprocess.run(["strip", "-o", server, BIN / "tnr-gpu-server"], check=True)
        with open(server, "ab") as program:
            program.write(version.encode())
        shutil.copy(BIN.parent / "lib" / "libcuda-emulated.so.1", stage / "lib")
        (stage / "bin" / "tnr").write_text("#!/bin/sh\n")  # the other package, which nobody installs
        for text in ("copyright", "share/man/man1/tnr-gpu-server.1"):
            (stage / text).write_text("of the tests\n")
        subprocess.run([ROOT / "packaging" / "dist" / "deb", version, stage, out, "1700000000"], check=True,
                       capture_output=True)
        return out / f"tnr-gpu-server_{version}_amd64.deb"

    @unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg-deb: Debian's packages are made on Debian")
    def test_15c_the_package_is_upgraded_under_systemd_while_a_program_holds_a_gpu(self):
        files = self.world.folder / "upgrade"
        files.mkdir()
        for name, version in (("old.deb", "0.0.1"), ("new.deb", "0.0.2")):
            shutil.copy(self.server_package(version), files / name)
        shutil.copy(HOLDING_PROGRAM, files / "program.py")
        self.succeeds("sync", *files.iterdir(), UPGRADE_SCRIPT, "demo:upgrade/")
        said = self.succeeds("connect", "demo", "--", "sudo sh upgrade/upgrade_in_a_unit.sh")
        lines = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
        self.assertEqual(lines.get("reloads"), "1 done, 0 failed", said)
        self.assertEqual(lines.get("main process"), "the same", said)
        running, installed = re.fullmatch(r"(\w+), installed: (\w+)", lines.get("running", "")).groups()
        self.assertEqual(running, installed, said)
        # The worker that serves has its group, with its limits; the one that waits is a new one.
        self.assertEqual(lines.get("groups kept with their limits"), "1", said)
        self.assertEqual(lines.get("groups with a process"), "2", said)
        self.assertEqual(lines.get("limits"), str((64 + 64) << 20), said)
        self.assertEqual(lines.get("reload"), "done", said)
        self.assertEqual(lines.get("reload of a mistake"), "refused", said)
        self.assertEqual(lines.get("after it"), "active, 2 done, 1 failed", said)
        self.assertRegex(lines.get("program", ""), r"^0, computed \d+ times", said)
        self.assertEqual(lines.get("backup"), "600", said)
        self.assertRegex(lines.get("stopped", ""), r"^inactive, ", said)
        self.assertEqual(lines.get("check"), "good", said)
        self.assertRegex(lines.get("ledger", ""), r"^1 \[\(1, ", said)
        self.assertEqual(lines.get("purged"), "", said)
        self.assertNotIn("sandbox lacks", said)

    def test_16_stop_keeps_the_disk(self):
        self.succeeds("connect", "demo", "--", "echo kept > unsynced.txt")  # a stop that pulled the plug would lose it
        self.succeeds("stop", "demo")
        self.assertEqual(self.machines()[0]["state"], "stopped")
        self.assertRegex(self.fails(1, "connect", "demo", "--", "true"), "'demo' is stopped[\\s\\S]*`tnr start demo`")

        disk = self.world.machine_folder() / "disk.qcow2"
        disk.rename(disk.with_name("elsewhere"))
        self.assertRegex(self.fails(1, "start", "demo"), "disk.qcow2[\\s\\S]*lost[\\s\\S]*`tnr delete demo`")
        disk.with_name("elsewhere").rename(disk)

    def test_17_a_machine_that_dies_while_it_boots_is_not_waited_for_and_comes_back(self):
        start = self.begin_start("waiting for SSH")
        pid = self.world.qemus()[0]
        ended = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([ended], [], [])
        os.close(ended)
        said = start.communicate(timeout=60)[1]  # far less than a boot may take
        self.assertEqual(start.returncode, 1, said)
        self.assertRegex(said, "ended while it was booting: it is stopped[\\s\\S]*`tnr start demo` continues")
        self.assertEqual(self.machines()[0]["state"], "stopped")

        self.succeeds("start", "demo")
        self.assertEqual(self.succeeds("connect", "demo", "--", "cat unsynced.txt"), "kept\n")
        self.assertIn("PASS", self.succeeds("connect", "demo", "--", "./saxpy"))

    def test_18_a_local_program_needs_no_machine(self):
        self.assertIn("PASS", self.succeeds("run", "--gpu", "h100", "--", PROGRAMS / "saxpy_shared"))

    def test_18b_a_machine_that_nobody_uses_switches_itself_off(self):
        self.assertIn("switches itself off when nobody has used it for 1 min", self.succeeds("start", "demo", "--idle-stop", "1m"))
        told = self.succeeds("connect", "demo", "--", "systemctl is-enabled tnr-idle; systemctl is-active tnr-idle")
        self.assertEqual(told, "enabled\nactive\n")
        # `status` does not wait for a busy machine to tell its idle time.
        self.assertIn(json.loads(self.succeeds("status", "demo", "--json"))["machines"][0]["idle_s"], [None, *range(100)])
        self.assertRegex(self.succeeds("connect", "demo", "--", "until cat /run/tnr/idle; do sleep 1; done"), r"^idle_s=\d+\n")
        # From here on it is left alone: to sign in is so much work for an emulated machine that it is in use.
        deadline = time.monotonic() + STEP_LIMIT_S
        while self.world.qemus():
            self.assertLess(time.monotonic(), deadline, "it is still on")
            time.sleep(1)
        self.assertEqual(self.machines()[0]["state"], "stopped")

    def test_18c_a_stopped_machine_is_resized_and_its_disk_copied(self):
        self.succeeds("resize", "demo", "--size", "medium")
        self.succeeds("snapshot", "demo", "--name", "copy")
        self.succeeds("start", "demo", "--idle-stop", "off")
        self.assertEqual(self.succeeds("connect", "demo", "--", "nproc"), "4\n")
        self.succeeds("stop", "demo")

    def test_18d_a_machine_made_from_the_copy_is_one_of_its_own(self):
        setup = self.world.folder / "setup.sh"
        setup.write_text("#!/bin/sh\nhostname >set-up.txt\n")
        self.succeeds("start", "twin", "--gpu", "a100", "--image", "copy", "--setup", setup)
        # Its own name and host key (which `start` has checked), the files of the machine that was copied, no timer of that
        # one: what it brought sees at its next look that there is nothing to do.
        no_timer = "while systemctl is-active --quiet tnr-idle; do sleep 1; done; systemctl is-active tnr-idle; true"
        said = self.succeeds("connect", "twin", "--", "hostname; cat set-up.txt unsynced.txt; " + no_timer)
        self.assertEqual(said, "twin\ntwin\nkept\ninactive\n")
        # And it lets in its own key, no longer that of the machine that was copied.
        self.assertEqual(self.succeeds("connect", "twin", "--", "grep -c ' tnr$' ~/.ssh/authorized_keys"), "1\n")
        self.assertEqual(self.succeeds("connect", "twin", "--", "nvidia-smi").count("NVIDIA A100"), 1)
        self.assertIn("PASS", self.succeeds("connect", "twin", "--", "./saxpy"))
        self.succeeds("delete", "twin", "--yes")
        self.succeeds("snapshot", "--delete", "copy", "--yes")

    def test_19_delete_leaves_nothing_behind(self):
        self.succeeds("delete", "demo", "--yes")
        self.assertEqual(json.loads(self.succeeds("status", "--json"))["machines"], [])
        left = [p for p in (self.world.folder / "state" / "tnr").rglob("*") if p.is_file() and "demo" in str(p)]
        self.assertEqual(left, [])
        self.assertEqual(self.world.qemus(), [])

    def test_20_a_machine_that_is_gone_is_said_to_be_gone(self):
        done = self.tnr("connect", "demo", "--", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("demo", done.stderr)

    def test_21_a_machine_deleted_behind_our_back_does_not_run_on_unnoticed(self):
        self.interrupt(self.begin_start())
        shutil.rmtree(self.world.machine_folder())
        self.assertEqual(len(self.world.qemus()), 1)
        self.assertEqual(self.machines()[0]["state"], "gone")
        said = self.fails(1, "connect", "demo", "--", "true")
        self.assertRegex(said, "was deleted outside tnr\nhint: `tnr delete demo` forgets it")
        self.succeeds("delete", "demo", "--yes")
        self.assertEqual(self.world.qemus(), [])
        self.assertEqual(self.machines(), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2, failfast=True)
