"""An encrypted server with its accounts, and programs of theirs: what the tests of one server's users have in common."""
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import with_server


class ServerCase(unittest.TestCase):
    folders = None  # of the programs and of the library, as (BIN, LIB)
    serves = ()     # what else `serve` is given

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder, self.server_program = folder.name, self.folders[0] / "tnr-gpu-server"
        log = open(f"{self.folder}/log", "w")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            [self.server_program, "serve", "--listen", "tcp://127.0.0.1:0", "--state", f"{self.folder}/server", *self.serves],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(with_server.stop, server)
        self.address = with_server.address_of(server)
        self.assertIsNotNone(self.address)

    def operator(self, *words):
        return subprocess.run([self.server_program, *words, "--state", f"{self.folder}/server"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def user(self, name, **more):
        """An account, as the environment of its programs; `more` goes into the file for TNR_CONFIG."""
        arguments = types.SimpleNamespace(server=self.server_program, gpu="h100")
        config = with_server.enrolled(arguments, self.folder, self.address, name, **more)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TNR_")}
        return dict(kept, TNR_CONFIG=config, LD_LIBRARY_PATH=str(self.folders[1]), HOME=self.folder)

    def program(self, user, code, *arguments, **more):
        program = subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env=user, **more)
        for cleanup in (program.stdout.close, program.stdin.close, program.wait, program.kill):
            self.addCleanup(cleanup)
        return program
