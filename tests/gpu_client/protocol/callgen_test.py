#!/usr/bin/env python3
"""The generator refuses tables that would make the two ends disagree. Run: callgen_test.py CALLGEN TABLE HEADERS"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CALLGEN, TABLE, HEADERS = sys.argv[1:4]


def generate(text, file="cuda_calls.hpp"):
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "cuda.calls"
        table.write_text(text)
        done = subprocess.run([sys.executable, CALLGEN, "--table", table, "--headers", HEADERS, "--out", folder + "/out"],
                              capture_output=True, text=True)
        header = pathlib.Path(folder) / "out" / file
        return done.returncode, done.stderr, header.read_text() if header.exists() else ""


README = pathlib.Path(CALLGEN).resolve().parents[2] / "README.md"


def support(text):
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "cuda.calls"
        table.write_text(text)
        subprocess.run([sys.executable, CALLGEN, "--table", table, "--headers", HEADERS, "--out", folder + "/out"], check=True)
        return (pathlib.Path(folder) / "out" / "support.md").read_text()


class Table(unittest.TestCase):
    text = pathlib.Path(TABLE).read_text()

    def line_of(self, symbol):
        return next(line for line in self.text.splitlines() if f" {symbol} " in line + " ")

    def refused(self, text, why):
        code, stderr, _ = generate(text)
        self.assertNotEqual(code, 0)
        self.assertIn(why, stderr)

    def test_the_table_itself_is_sound(self):
        self.assertEqual(generate(self.text)[0], 0)

    def test_a_symbol_of_the_header_may_not_be_missing(self):
        self.refused(self.text.replace(self.line_of("cuMemsetD8Async") + "\n", ""), "cuMemsetD8Async")

    def test_an_id_may_not_stand_twice(self):
        line = self.line_of("cuInit")
        self.refused(self.text.replace(line, line.replace(line.split()[0], self.line_of("cuDeviceGet").split()[0])), "twice")

    def test_a_pointer_needs_a_direction(self):
        line = self.line_of("cuCtxGetLimit")
        self.refused(self.text.replace(line, line.replace("pvalue:out", "")), "pvalue")

    def test_a_handle_that_the_worker_cannot_resolve_does_not_travel(self):
        line = self.line_of("cuArrayDestroy")
        self.refused(self.text.replace(line, line.replace("unsupported", "async      ")), "CUarray")

    def test_a_parameter_must_exist(self):
        line = self.line_of("cuCtxGetLimit")
        self.refused(self.text.replace(line, line.replace("pvalue", "value")), "no parameter")

    def test_a_note_must_be_known(self):
        line = self.line_of("cuCtxSetLimit")
        self.refused(self.text.replace(line, line + " needs_luck"), "needs_luck")

    def test_each_abi_needs_a_line_of_its_own(self):
        line = self.line_of("cuCtxCreate_v3")
        self.refused(self.text.replace(line + "\n", ""), "cuCtxCreate")

    def test_every_exported_function_can_be_watched(self):
        watched = generate(self.text, "watched_calls.cpp")[2]
        exported = {words[0] for words in re.findall(r"CUresult CUDAAPI (cu\w+)\(()", watched)}
        for symbol in ("cuMemAlloc_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuGetErrorName", "cuGraphicsUnregisterResource"):
            self.assertIn(symbol, exported)
        entry_points = generate(self.text, "entry_points.cpp")[2]
        self.assertEqual(exported, set(re.findall(r"int (cu\w+)\(\);", entry_points)))

    def test_what_a_call_writes_is_told_from_lists_and_buffers(self):
        watched = generate(self.text, "watched_calls.cpp")[2]
        arguments_of = lambda symbol: re.search(rf"ended\(tnr_{symbol}\(.*?\), (.*)\);", watched)[1]
        self.assertEqual(arguments_of("cuMemAlloc_v2"), '{Argument::out_address("dptr", dptr), Argument::of("bytesize", bytesize)}')
        self.assertIn('Argument::of("kernelParams"', arguments_of("cuLaunchKernel"))
        self.assertIn('Argument::of("options"', arguments_of("cuModuleLoadDataEx"))
        self.assertIn('Argument::out("module"', arguments_of("cuModuleLoadDataEx"))
        self.assertIn('Argument::of("nodes"', arguments_of("cuGraphGetNodes"))
        self.assertIn('Argument::out("numNodes"', arguments_of("cuGraphGetNodes"))
        self.assertIn('Argument::of("dstHost"', arguments_of("cuMemcpyDtoH_v2"))
        self.assertIn('Argument::address("srcDevice"', arguments_of("cuMemcpyDtoH_v2"))
        self.assertIn('Argument::out_text("name"', arguments_of("cuDeviceGetName"))

    def test_the_hash_changes_with_meaning_and_not_with_comments(self):
        hash_of = lambda text: next(l for l in generate(text)[2].splitlines() if "calls_table_hash" in l)
        line = self.line_of("cuCtxSetLimit")
        self.assertEqual(hash_of(self.text), hash_of("# a remark\n" + self.text))
        self.assertNotEqual(hash_of(self.text), hash_of(self.text.replace(line, line.replace("sync ", "async"))))

    def test_support_names_the_areas_that_are_lacking_and_the_readme_says_the_same(self):
        not_yet = next(line for line in support(self.text).splitlines() if line.startswith("Not yet: "))
        self.assertIn("graphs", not_yet)
        self.assertIn(not_yet, " ".join(README.read_text().split()), "README.md should say what support.md says")

    def test_an_area_that_runs_is_lacking_no_more(self):
        lines = [line.replace("unsupported ", "custom      ") if "TensorMap" in line else line for line in self.text.splitlines()]
        self.assertNotIn("tensor maps", support("\n".join(lines)))

    def test_support_has_a_row_for_each_symbol(self):
        rows = support(self.text).partition("| call |")[2].splitlines()[2:]
        symbols = [line for line in self.text.splitlines() if line.startswith("0x")]
        self.assertEqual(len(rows), len(symbols))
        self.assertIn("| cuMemAlloc | cuMemAlloc_v2 | 3.2 | custom |", rows)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
