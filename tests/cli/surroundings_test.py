#!/usr/bin/env python3
"""The real `tnr` where it is started in odd ways: streams that are closed, no home, terminals that obey nothing: surroundings_test.py TNR"""
import json
import os
import pty
import subprocess
import sys
import tempfile

TNR = sys.argv[1]


def shell(line, home, **variables):
    environment = {"PATH": os.environ["PATH"], "HOME": home, "TNR": TNR, **variables}
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment, timeout=30)


def at_terminal(words, **variables):
    """What a terminal gets of it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(TNR, [TNR, *words], {"PATH": os.environ["PATH"], **variables})
    said = b""
    while True:
        try:
            got = os.read(terminal, 65536)
        except OSError:  # Linux says so that the other end is closed
            break
        if not got:
            break
        said += got
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


with tempfile.TemporaryDirectory() as home:
    # Results that nobody can get are an error, also where there is not even a stream for them.
    lost = shell('"$TNR" version >&-', home)
    assert lost.returncode == 1 and "cannot write the results" in lost.stderr, lost
    assert shell('"$TNR" version > /dev/full', home).returncode == 1
    # More than a pipe or a buffer holds: the reason is told all the same, and a reader that has seen enough is no error.
    full = shell('"$TNR" support > /dev/full', home)
    assert full.returncode == 1 and "No space left on device" in full.stderr, full
    reader, writer = os.pipe()
    os.close(reader)
    enough = subprocess.run([TNR, "support"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=30)
    os.close(writer)
    assert enough.returncode == 141 and enough.stderr == "", enough
    # Results and notes to one place come in the order in which they were said.
    both = shell('"$TNR" whoami 2>&1', home, HCLOUD_TOKEN="x", HCLOUD_ENDPOINT="http://127.0.0.1:1/v1")
    assert both.returncode == 1 and both.stdout.find("local") < both.stdout.find("tnr: "), both
    # The streams of others stay as they are; what is asked of a closed one has no answer.
    assert shell('"$TNR" version 2>&- <&-', home).stdout.startswith("tnr "), lost
    nobody = shell('"$TNR" start <&-', home)
    assert nobody.returncode == 2 and "needs NAME" in nobody.stderr, nobody

    # A folder that cannot be made keeps nobody from looking.
    nowhere = shell('"$TNR" status', "/proc/nowhere")
    assert nowhere.returncode == 0 and "No machines" in nowhere.stdout, nowhere
    assert shell('unset HOME; "$TNR" version', home).returncode == 0

    # What the doctor finds of this computer, each with how to mend it.
    def doctor(line='exec "$TNR" doctor --json', code=0):
        done = shell(line, home)
        assert done.returncode == code, done
        return {each["name"]: each for each in json.loads(done.stdout)["checks"]}

    well = doctor()
    assert [well[name]["finding"] for name in ("folders", "config", "machines", "ssh key")] == ["good"] * 4, well
    qemu = doctor('PATH=/nowhere exec "$TNR" doctor --json')["qemu"]
    assert qemu["finding"] == "doubtful" and "apt-get install qemu-system-x86" in qemu["mend"], qemu
    if os.geteuid() == 0:
        alone = doctor('exec unshare --net "$TNR" doctor --json')["network"]
        assert alone["finding"] == "doubtful" and "connect this computer" in alone["mend"], alone
        mounted = 'exec unshare --mount sh -ec \'mount -t tmpfs -o %s tmpfs "$HOME"; exec "$TNR" doctor --json\''
        full = doctor(mounted % "size=50m", code=1)["disk space"]
        assert full["finding"] == "bad" and "free some" in full["mend"], full
        assert doctor(mounted % "size=1g")["disk space"]["finding"] == "doubtful"
        closed = doctor(mounted % "ro", code=1)["folders"]
        assert closed["finding"] == "bad" and closed["what"] == home + " cannot be written to", closed

    # Terminals that obey nothing are sent nothing to obey; others get colours.
    for dumb in ({"TERM": "dumb"}, {"TERM": ""}, {}):
        code, said = at_terminal(["whoami"], HOME=home, **dumb)
        assert code == 0 and "not signed in" in said and "\033" not in said, (dumb, said)
    assert "\033[1mPROVIDER\033[0m" in at_terminal(["whoami"], HOME=home, TERM="xterm")[1]
    assert "\033[1m" in at_terminal(["whoami"], HOME=home, TERM="xterm", NO_COLOR="")[1]
    assert "\033[1m" not in at_terminal(["whoami"], HOME=home, TERM="xterm", NO_COLOR="1")[1]
print("tnr keeps its manners")
