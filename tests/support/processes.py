"""What processes there are and what they hold, each told apart by its number and its start: numbers are used again."""
import collections
import ctypes
import os
import pathlib
import signal
import time

Process = collections.namedtuple("Process", "pid start name")
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def look(pid):
    """The process that has this number now; None if there is none, or only its remains."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, rest = text.split("(", 1)[1].rsplit(")", 1)
    fields = rest.split()
    return None if fields[0] in "ZX" else Process(int(pid), int(fields[19]), name)


def is_there(process):
    return look(process.pid) == process


def child_numbers(pid):
    """Also of those that have ended and that nobody has waited for."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found  # gone meanwhile
    for task in tasks:
        try:
            found += map(int, pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except OSError:
            pass  # the thread is: its children are another's now
    return found


def children(pid):
    return [each for each in map(look, child_numbers(pid)) if each]


def family(pid):
    """It and its descendants."""
    found = [each for each in [look(pid)] if each]
    for child in children(pid):
        found += family(child.pid)
    return found


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def freeze(pid):
    """Stops it. kill() alone returns before the last of its threads stands still, and that one may still answer."""
    os.kill(pid, signal.SIGSTOP)
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        while (task / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "TZ":
            time.sleep(0.002)


def adopt_orphans():
    """Whose parent dies becomes our child from now on, so that children() finds it."""
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def take_own_shared_memory():
    """A /dev/shm that nobody else uses, for this process and all that it starts. False if the system does not let us."""
    libc, private, recursive, new_mounts = ctypes.CDLL(None), 1 << 18, 1 << 14, 0x20000
    return libc.unshare(new_mounts) == 0 and libc.mount(None, b"/", None, private | recursive, None) == 0 and \
        libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None) == 0


def bury(but):
    """Waits for orphans that have ended; `but`: the numbers of children that somebody else waits for."""
    for pid in child_numbers(os.getpid()):
        if pid not in but:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
