#!/usr/bin/env python3
"""What bash, zsh and fish complete for who types at a terminal: shells_test.py TNR"""
import json
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

TNR = os.path.realpath(sys.argv[1])
LIMIT_S = 60
ESCAPES = re.compile(r"\x1b\[[0-9;?>=]*[a-zA-Z]|\x1b[()][AB0]|\x1b[=>]|\x1b\][^\x07]*\x07|\r|.\x08")
# What is typed before Tab, and the words that the command then gets.
CASES = {
    "tnr stat": ["status"],
    "tnr --json sto": ["--json", "stop"],
    "tnr stop dem": ["stop", "demo"],
    "tnr stop demo oth": ["stop", "demo", "other"],
    "tnr rm oth": ["rm", "other"],
    "tnr connect -L 8888 dem": ["connect", "-L", "8888", "demo"],
    "tnr snapshot dem": ["snapshot", "demo"],
    "tnr attach demo h1": ["attach", "demo", "h100"],
    "tnr start --gpu h1": ["start", "--gpu", "h100"],
    "tnr start --gpu=h1": ["start", "--gpu=h100"],
    "tnr start --gpu h100:2 dem": ["start", "--gpu", "h100:2", "demo"],
    "tnr offers --provider het": ["offers", "--provider", "hetzner"],
    "tnr login digi": ["login", "digitalocean"],
    "tnr start --che": ["start", "--cheapest"],
    "tnr sync a-fi": ["sync", "a-file"],
}
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "bind 'set enable-bracketed-paste off'; source tnr.bash"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -D; source tnr.zsh"),
    # As the package has it: compinit finds the file.
    "zsh, from a folder": (["zsh", "-f", "-i"], "fpath=($PWD/folder $fpath); autoload -U compinit; compinit -u -D"),
    "fish": (["fish", "-i"], "source tnr.fish"),
}


class Terminal:
    def __init__(self, words, home, environment):
        self.seen = ""
        self.child, self.fd = pty.fork()
        if self.child == 0:
            os.chdir(home)
            os.execvpe(words[0], words, environment)

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, text):
        """Waits for `text`, and forgets what came up to its end."""
        end = time.monotonic() + LIMIT_S
        while text not in (shown := ESCAPES.sub("", self.seen)):
            assert time.monotonic() < end and select.select([self.fd], [], [], LIMIT_S)[0], f"no {text!r} in {shown!r}"
            self.seen += os.read(self.fd, 65536).decode(errors="replace")
        self.seen = shown[shown.index(text) + len(text):]

    def end(self):
        os.close(self.fd)  # hangs up
        os.waitpid(self.child, 0)


def record(home, name):
    folder = home / ".local/state/tnr/machines"
    folder.mkdir(parents=True, exist_ok=True)
    key = {"public": "", "secret": ""}
    (folder / f"{name}.json").write_text(json.dumps({
        "name": name, "provider": "local", "id": name, "gpu": "h100", "count": 1, "pool": "", "step": "installed",
        "host_key": "", "host_secret": "", "machine_key": key, "created": "2026-11-23T00:00:00Z"}))


def made_home(home):
    """Two machines, types of GPU, a file; and a `tnr` that shows what it was given, unless a script wants values."""
    record(home, "demo")
    record(home, "other")
    (home / ".cache/tnr").mkdir(parents=True)
    (home / ".cache/tnr/gpu_types").write_text("a100\nh100\n")
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)  # else fish makes them, behind our back
    (home / "a-file").touch()
    (home / "bin").mkdir()
    (home / "bin/tnr").write_text(f'#!/bin/sh\n[ "$1" != completion ] || exec {shlex.quote(TNR)} "$@"\n'
                                  "printf 'GOT'; printf '<%s>' \"$@\"; printf 'END\\n'\n")
    (home / "bin/tnr").chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        with open(home / f"tnr.{shell}", "wb") as script:
            subprocess.run([TNR, "completion", shell], check=True, stdout=script)
    (home / "folder").mkdir()
    shutil.copy(home / "tnr.zsh", home / "folder/_tnr")


def completes(shell, home, environment):
    words, ready = SHELLS[shell]
    terminal = Terminal(words, home, environment)
    terminal.type(f"{ready}; echo rea''dy\r")
    terminal.expect("ready")
    for typed, given in CASES.items():
        terminal.type(typed)
        terminal.expect(typed[-4:])
        terminal.type("\t")
        terminal.type("\r")
        terminal.expect("GOT" + "".join(f"<{word}>" for word in given) + "END")
    terminal.end()


with tempfile.TemporaryDirectory() as folder:
    home = pathlib.Path(folder)
    made_home(home)
    environment = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": folder, "TERM": "xterm", "LANG": "C.UTF-8",
                   "PS1": "> ", "PROMPT": "> "}
    for shell in SHELLS:
        if not shutil.which(SHELLS[shell][0][0]):
            print(f"note: no {shell} here: its completion is not tested")
            continue
        completes(shell, home, environment)
print("completed in", ", ".join(SHELLS))
