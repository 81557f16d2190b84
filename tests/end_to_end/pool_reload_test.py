#!/usr/bin/env python3
"""A server is replaced by a newer one (SIGHUP, `tnr-gpu-server reload`) while programs run: they notice a pause, and what they
have stays theirs.

    pool_reload_test.py BIN LIB    BIN: folder of tnr-gpu-server; LIB: folder of libcuda.so.1
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import etcd  # noqa: E402
import history  # noqa: E402
import nodes  # noqa: E402
import with_server  # noqa: E402
from nodes import wait_until  # noqa: E402

BIN, LIB = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
LOADED_S = 60  # what takes a moment, on a machine that is busy

# How both programs below begin.
BEGIN = """
import ctypes, signal, sys, time
cuda, context, at = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} returned {code}")
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
"""

# A kernel counts up, and each number is checked, until it is asked to end. What it allocates first is `sys.argv[1]` MiB.
PROGRAM = BEGIN + """
PTX = b'''
.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 at) {
    .reg .u64 %a, %o;
    .reg .u32 %t, %v;
    ld.param.u64 %a, [at];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %t, 4;
    add.u64 %a, %a, %o;
    ld.global.u32 %v, [%a];
    add.u32 %v, %v, 1;
    st.global.u32 [%a], %v;
    ret;
}
'''
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it is looked for between calls
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"count")
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(int(sys.argv[1]) << 20))
call("cuMemsetD32_v2", at, 0, ctypes.c_size_t(32))
print("ready", flush=True)
done, back = 0, (ctypes.c_uint32 * 32)()
parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(at), ctypes.c_void_p))
while signal.SIGTERM not in signal.sigpending():
    call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, None, parameters, None)
    call("cuMemcpyDtoH_v2", back, at, ctypes.c_size_t(128))
    done += 1
    if list(back) != [done] * 32:
        sys.exit(f"{list(back)} after {done}")
    time.sleep(0.01)
print("counted", done, flush=True)
"""


# Lends memory to another process of its claim, or with a handle borrows it, and reads there what the other has written.
SHARING = BEGIN + """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]
if len(sys.argv) > 1:
    call("cuIpcOpenMemHandle_v2", ctypes.byref(at), Handle.from_buffer_copy(bytes.fromhex(sys.argv[1])), 1)
    back = ctypes.c_uint32()
    call("cuMemcpyDtoH_v2", ctypes.byref(back), at, ctypes.c_size_t(4))
    print(back.value)
    call("cuIpcCloseMemHandle", at)
    sys.exit()
handle = Handle()
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(1 << 20))
call("cuMemsetD32_v2", at, 4711, ctypes.c_size_t(32))
call("cuCtxSynchronize")
call("cuIpcGetMemHandle", ctypes.byref(handle), at)
print(bytes(handle.bytes).hex(), flush=True)
sys.stdin.readline()
call("cuMemFree_v2", at)
print("freed")
"""


class Installed:
    """A copy of the server where packages would have it, to be replaced."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "bin").mkdir()
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libcuda-emulated.so.1").symlink_to((LIB / "libcuda-emulated.so.1").resolve())
        self.program = self.folder / "bin" / "tnr-gpu-server"
        self.replace(BIN / "tnr-gpu-server")

    def replace(self, by):
        """As dpkg does: another file, under the same name."""
        new = self.program.with_suffix(".new")
        shutil.copy(by, new)
        os.chmod(new, 0o755)
        new.rename(self.program)

    def replace_with_script(self, text):
        path = self.folder / "script"
        path.write_text("#!/bin/sh\n" + text)
        self.replace(path)


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Reload(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder, self.config = folder.name, None
        self.installed = Installed(self.folder)

    def serve(self, *more, encrypted=True, emulate="h100"):
        self.arguments = argparse.Namespace(server=str(self.installed.program), client=str(LIB), driver=None,
                                                        emulate=emulate, memory_mib="256", gpu="h100")
        self.server = with_server.start_server(self.arguments, self.folder, encrypted=encrypted, more=more)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(with_server.stop, self.server)
        self.address = with_server.address_of(self.server)
        self.assertIsNotNone(self.address, self.log())
        if not encrypted:
            self.config = {"gpu": "h100"}
        elif self.config is None:
            enrolled = with_server.enrolled(self.arguments, self.folder, self.address)
            self.config = json.loads(pathlib.Path(enrolled).read_text())
        self.config["pool"] = self.address

    def log(self):
        return pathlib.Path(with_server.log_of(self.folder)).read_text(errors="replace")

    def start(self, mib=1, machine="box", program=None, **environment):
        config = dict(self.config, gpu="h100")
        if "machine" in config:
            config["machine"] = dict(config["machine"], name=machine)
        path = f"{self.folder}/{machine}.json"
        pathlib.Path(path).write_text(json.dumps(config))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        program = subprocess.Popen([sys.executable, "-c", *(program or [PROGRAM, str(mib)])], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=dict(kept, TNR_CONFIG=path, LD_LIBRARY_PATH=str(LIB), HOME=self.folder, **environment))
        for cleanup in (program.stdin.close, program.stdout.close, program.stderr.close, program.wait, program.kill):
            self.addCleanup(cleanup)
        return program

    def running(self, **more):
        program = self.start(**more)
        begun = program.stdout.readline()
        self.assertEqual(begun, "ready\n", (begun or program.communicate()[1]) + self.log()[-6000:])
        return program

    def ends_well(self, program):
        program.terminate()
        out, errors = program.communicate(timeout=LOADED_S)
        self.assertEqual(program.returncode, 0, errors + self.log()[-6000:])
        self.assertIn("counted", out)

    def reloads(self):
        return json.loads(self.operator("status", "-o", "json"))["nodes"][0]["reloads"]

    def operator(self, *arguments, expect=0):
        done = subprocess.run([self.installed.program, *arguments, "--state", f"{self.folder}/server"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, expect, f"{arguments}\n{done.stdout}{done.stderr}{self.log()[-6000:]}")
        return done.stdout + done.stderr

    def reload(self, expect=0):
        return self.operator("reload", expect=expect)

    def reload_fails(self):
        asked = subprocess.run([BIN / "tnr-gpu-server", "reload", "--state", f"{self.folder}/server"], text=True,
                               capture_output=True)
        self.assertEqual(asked.returncode, 1, asked.stdout + asked.stderr)
        return asked.stderr

    def ledger(self):
        with sqlite3.connect(f"{self.folder}/server/pool.db") as pool:
            return pool.execute("SELECT id, ended_ms IS NOT NULL, reason, until_ms - began_ms FROM claims").fetchall()

    # ---- what goes on

    def test_a_program_computes_across_three_reloads_and_its_ledger_line_is_one(self):
        self.serve()
        program, pid = self.running(), self.server.pid
        for count in range(1, 4):
            self.installed.replace(BIN / "tnr-gpu-server")
            self.reload()
            self.assertEqual(self.reloads()["done"], count)
        self.assertIsNone(self.server.poll(), self.log())
        self.assertEqual(self.server.pid, pid)
        second = self.running()  # of the same machine: it joins the claim
        self.assertEqual(len(self.ledger()), 1)
        self.ends_well(second)
        self.ends_well(program)
        (line,), _ = wait_until(lambda: [one for one in self.ledger() if one[1]], LOADED_S)
        self.assertEqual(line[2], "its last process has ended")
        self.ends_well(self.running(machine="other"))  # the GPU was wiped, and is another's
        self.assertEqual(len(self.ledger()), 2)
        self.assertIn("wiped", self.log())

    def test_who_is_asked_while_it_still_takes_over_does_so_first(self):
        self.serve(emulate="h100:3")
        programs = [self.running(machine=f"lasting{i}") for i in range(2)]
        until = time.monotonic() + 5
        while time.monotonic() < until:
            os.kill(self.server.pid, signal.SIGHUP)
            time.sleep(0.002)
        self.reload()
        for program in programs:
            self.ends_well(program)
        self.assertNotIn("makes no sense", self.log())

    def test_a_storm_of_reloads_while_programs_come_and_go_loses_nothing(self):
        self.serve(emulate="h100:2")
        program = self.running(machine="lasting")
        self.reload()
        before, others = descriptors_of(self.server.pid), []
        for _ in range(20):
            others.append(self.start(machine=f"m{len(others)}", TNR_WAIT="60"))
            os.kill(self.server.pid, signal.SIGHUP)
            time.sleep(0.2)
            for other in others:
                other.poll() is None and other.terminate()  # some before they have begun: what they held is to come free
        for other in others:
            other.communicate(timeout=LOADED_S)
        self.reload()
        self.ends_well(program)
        wait_until(lambda: all(one[1] for one in self.ledger()), LOADED_S)
        reasons = {one[2] for one in self.ledger()}
        self.assertNotIn("server restarted", reasons)
        self.assertGreater(self.reloads()["done"], 2)
        # Those that were ended while they waited have their places for some seconds more.
        self.ends_well(self.running(machine="after", TNR_WAIT="60"))
        wait_until(lambda: descriptors_of(self.server.pid) <= before + 4, LOADED_S)

    def test_what_a_program_holds_counts_and_can_be_taken_away(self):
        self.serve()
        program = self.running(mib=120)
        self.reload()
        greedy = self.start(mib=200)  # of the same claim: there is not as much
        out, errors = greedy.communicate(timeout=LOADED_S)
        self.assertEqual((out, greedy.returncode), ("", 1), errors)
        self.assertIn("cuMemAlloc_v2 returned 2", errors)
        self.ends_well(self.running(mib=60))
        self.operator("user", "remove", "tester")
        out, errors = program.communicate(timeout=LOADED_S)
        self.assertNotEqual(program.returncode, 0)
        self.assertIn("not enrolled any more", self.log())

    def test_the_server_that_took_over_ends_its_workers_when_it_is_killed(self):
        self.serve()
        program = self.running()
        self.reload()
        self.server.kill()
        self.server.wait()
        out, errors = program.communicate(timeout=LOADED_S)
        self.assertNotEqual(program.returncode, 0, out)
        self.serve()
        self.ends_well(self.running())
        self.assertIn("server restarted", [one[2] for one in self.ledger()])

    def test_what_processes_of_a_claim_lend_each_other_stays_lent(self):
        self.serve()
        owner = self.start(program=[SHARING])
        handle = owner.stdout.readline().strip()
        self.assertEqual(len(handle), 128, self.log())
        for _ in range(2):
            self.reload()
            borrower = self.start(program=[SHARING, handle])
            self.assertEqual(borrower.communicate(timeout=LOADED_S)[0], "4711\n", self.log())
        self.assertEqual(owner.communicate("\n", timeout=LOADED_S)[0], "freed\n")

    def test_who_waits_keeps_their_place(self):
        self.serve()
        holder = self.running(machine="holder")
        first = self.start(machine="first", TNR_WAIT="60")
        wait_until(lambda: "first waits for 1 h100" in self.log(), LOADED_S)
        second = self.start(machine="second", TNR_WAIT="60")
        wait_until(lambda: "second waits for 1 h100" in self.log(), LOADED_S)
        self.reload()
        self.ends_well(holder)
        self.assertEqual(first.stdout.readline(), "ready\n", self.log())
        self.ends_well(first)
        self.assertEqual(second.stdout.readline(), "ready\n", self.log())
        self.ends_well(second)

    def test_one_port_and_no_keys(self):
        for more, encrypted in ((["--one-port"], True), ([], False)):
            with self.subTest(more=more, encrypted=encrypted):
                self.serve(*more, encrypted=encrypted)
                program = self.running()
                self.reload()
                self.ends_well(self.running())
                self.reload()
                self.ends_well(program)
                with_server.stop(self.server)

    def test_settings_that_may_change_do_and_others_wait_for_a_restart(self):
        (path := pathlib.Path(self.folder) / "server.conf").write_text('linger-ms = 0\n')
        self.serve("--config", str(path))
        program = self.running()
        path.write_text('linger-ms = 0\nhttp = "127.0.0.1:0"\nworker-address = "192.0.2.1"\nname = "another"\n')
        self.reload()
        for told in ("watch it at http://127.0.0.1:", "setting worker-address has changed", "setting node has changed"):
            self.assertIn(told, self.log())
        path.write_text('no-such-setting = 1\n')
        self.assertIn("goes on", self.reload(expect=1))
        self.ends_well(program)
        self.ends_well(self.running())  # the pool knows the node by the name that it had, which the GPU is under

    # ---- what goes wrong

    def test_a_binary_that_cannot_take_over_ends_nothing(self):
        self.serve()
        program = self.running()
        no = "does not say that it can take over"
        for script, why in (("exit 1", no), ("echo handover", no), ("kill -SEGV $$", no), ("sleep 60", "has not said in time")):
            self.installed.replace_with_script(script)
            self.assertIn(why, self.reload_fails())
        self.installed.program.unlink()
        self.reload_fails()
        # One that takes its time to answer, as on a busy machine, can.
        shutil.copy(BIN / "tnr-gpu-server", f"{self.installed.program}.real")
        self.installed.replace_with_script('[ -z "$TNR_HANDOVER_QUESTION" ] || sleep 8\nexec "$0.real" "$@"')
        self.reload()
        self.assertEqual([self.reloads()[what] for what in ("done", "failed")], [1, 5])
        for one in (self.running(), program):
            self.ends_well(one)
        self.installed.replace_with_script(f'[ -z "$TNR_HANDOVER_QUESTION" ] || exec {BIN}/tnr-gpu-server "$@"')
        self.installed.program.rename(f"{self.installed.program}.real")  # which runs now; this one can, and dies
        self.assertIn("the server has ended", self.reload_fails())

    def test_a_binary_that_is_gone_when_it_is_to_be_executed_leaves_the_old_one(self):
        self.serve()
        program = self.running()
        self.installed.replace_with_script(f'"$0.real" "$@" && rm "$0"')
        shutil.copy(BIN / "tnr-gpu-server", f"{self.installed.program}.real")
        self.assertIn("cannot execute", self.reload_fails() + self.log())
        self.installed.replace(BIN / "tnr-gpu-server")
        self.reload()
        self.ends_well(program)

    def between(self, python):
        """What happens when the new server is executed, before it begins; `document` and `text` are what it is given."""
        real = pathlib.Path(f"{self.installed.program}.real")
        real.unlink(missing_ok=True)
        shutil.copy(BIN / "tnr-gpu-server", real)
        path = pathlib.Path(self.folder) / "between.py"
        path.write_text(f"""#!{sys.executable}
import fcntl, json, os, signal, sys
real = {str(self.installed.program)!r} + ".real"
if "TNR_HANDOVER_QUESTION" not in os.environ:
    file = int(os.environ["TNR_HANDOVER_DOCUMENT"])
    text = os.pread(file, 1 << 24, 0).decode()
    document = json.loads(text)
{chr(10).join("    " + line for line in python.splitlines())}
    new = os.memfd_create("document", os.MFD_ALLOW_SEALING)
    os.write(new, (text if document is None else json.dumps(document)).encode())
    fcntl.fcntl(new, 1033, 15)
    os.set_inheritable(new, True)
    os.environ["TNR_HANDOVER_DOCUMENT"] = str(new)
os.execv(real, [{str(self.installed.program)!r}] + sys.argv[1:])
""")
        self.installed.replace(path)

    def test_a_document_that_makes_no_sense_ends_programs_and_the_server_begins_anew(self):
        self.serve()
        for damage in ("text, document = text[:-7], None",
                       "text, document = '', None",
                       "document['handover'] = 99",
                       "del document['claims']",
                       "document['gpus'][0]['state'] = 99",
                       "document['gpus'] = []",
                       "document['workers'][0]['control'] = 9999",
                       "document['workers'][0]['devices'] = 'many'",
                       "document['claims']['claims'][0]['gpus'] = [-1]",
                       "document['claims']['claims'][0]['sessions'][0]['worker'] = 1",
                       "document['files'].append(9999)"):
            with self.subTest(damage):
                program = self.running()
                self.between(damage)
                self.reload_fails()
                out, errors = program.communicate(timeout=LOADED_S)
                self.assertNotEqual(program.returncode, 0, out + errors)
                self.installed.replace(BIN / "tnr-gpu-server")
                # Anew it listens at any port that is free.
                self.config["pool"] = json.loads(self.operator("status", "-o", "json"))["nodes"][0]["address"]
                self.ends_well(self.running())
        self.assertIsNone(self.server.poll())

    def test_a_worker_that_dies_in_between_is_noticed(self):
        self.serve()
        program = self.running()
        self.between("os.kill(document['workers'][0]['pid'], signal.SIGKILL)")
        asked = subprocess.run([BIN / "tnr-gpu-server", "reload", "--state", f"{self.folder}/server"])
        self.assertEqual(asked.returncode, 0, self.log())
        out, errors = program.communicate(timeout=LOADED_S)
        self.assertNotEqual(program.returncode, 0, out + errors)
        wait_until(lambda: all(one[1] for one in self.ledger()), LOADED_S)
        self.ends_well(self.running())


@unittest.skipUnless(etcd.program(), "no etcd: apt-get install etcd-server")
class ReloadOfNodes(unittest.TestCase):
    """Of a pool of two, one after the other."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        installed = Installed(folder.name)
        self.pool = nodes.Pool(installed.program.parent, LIB, folder.name)
        self.pool.__enter__()
        self.addCleanup(self.pool.__exit__)

    def running(self, user):
        program = self.pool.start(user, [sys.executable, "-c", PROGRAM, "1"])
        for cleanup in (program.stdout.close, program.stderr.close, program.wait, program.kill):
            self.addCleanup(cleanup)
        self.assertEqual(program.stdout.readline(), "ready\n", self.pool.log("a")[-3000:] + self.pool.log("b")[-3000:])
        return program

    def registrations(self):
        return {key: since for key, since in self.pool.etcd.leased().items() if "/free/" not in key}

    def keeps_registrations(self, what):
        """They are the same afterwards. A machine that stands still for three seconds loses a lease whatever a node
        does, so a second and a third time tell."""
        for _ in range(3):
            before = self.registrations()
            what()
            after = self.registrations()
            if after == before:
                return
        self.assertEqual(after, before, self.pool.log("a")[-3000:] + self.pool.log("b")[-3000:])

    def test_nodes_are_replaced_one_after_the_other_and_stay_registered_with_their_claims(self):
        told = [f"{self.pool.folder}/{node}.history" for node in "ab"]
        for node, path in zip("ab", told):
            self.pool.serve(node, "h100", "--history", path)
        programs = [self.running(dict(self.pool.user(name), gpu="h100")) for name in ("alice", "bob")]
        before = self.registrations()
        self.assertEqual(len([key for key in before if "/held/" in key]), 2, before)
        for node in "abab":
            self.keeps_registrations(lambda: self.pool.operator("reload", node=node))
        self.keeps_registrations(lambda: time.sleep(4))  # longer than a lease lasts that nobody renews
        wait_until(lambda: self.registrations().keys() == before.keys(), LOADED_S)
        for program in programs:
            program.terminate()
            out, errors = program.communicate(timeout=LOADED_S)
            self.assertIn("counted", out, errors + self.pool.log("a") + self.pool.log("b"))
        wait_until(lambda: not [key for key in self.registrations() if "/held/" in key], LOADED_S)
        self.assertEqual(history.complaints(history.read(told), {}), [])  # none took another for dead

    def test_a_node_that_is_out_of_touch_with_its_pool_ends_nothing(self):
        self.pool.serve("a", "h100")
        program, log = self.running(dict(self.pool.user("alice"), gpu="h100")), lambda: self.pool.log("a")
        self.pool.etcd.kill()
        os.kill(self.pool.servers["a"].pid, signal.SIGHUP)  # it does not know yet
        time.sleep(4)
        self.pool.etcd.start()
        wait_until(lambda: self.pool.node("a")["state"] == "ready", LOADED_S)
        self.pool.etcd.kill()
        time.sleep(4)
        self.assertIn("out of touch", self.pool.operator("reload", expect=1))
        self.pool.etcd.start()
        command = [self.pool.server_program, "reload", "--state", f"{self.pool.folder}/a"]
        wait_until(lambda: subprocess.run(command, capture_output=True).returncode == 0, LOADED_S)  # it has to hear of that
        self.assertIn("has taken over", log())
        program.terminate()
        self.assertIn("counted", program.communicate(timeout=LOADED_S)[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
