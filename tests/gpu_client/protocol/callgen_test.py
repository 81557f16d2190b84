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
        line = self.line_of("cuDestroyExternalMemory")
        self.refused(self.text.replace(line, line.replace("unsupported", "async      ")), "CUexternalMemory")

    def test_a_parameter_must_exist(self):
        line = self.line_of("cuCtxGetLimit")
        self.refused(self.text.replace(line, line.replace("pvalue", "value")), "no parameter")

    def test_a_note_must_be_known(self):
        line = self.line_of("cuCtxSetLimit")
        self.refused(self.text.replace(line, line + " needs_luck"), "needs_luck")

    def test_each_abi_needs_a_line_of_its_own(self):
        line = self.line_of("cuCtxCreate_v3")
        self.refused(self.text.replace(line + "\n", ""), "cuCtxCreate")

    def changed(self, symbol, old, new):
        line = self.line_of(symbol)
        self.assertIn(old, line)
        return self.text.replace(line, line.replace(old, new))

    def stub(self, symbol, text=None):
        stubs = generate(text or self.text, "client_stubs.cpp")[2]
        return re.search(rf"CUDAAPI {symbol}\(.*?^}}", stubs, re.S | re.M)[0]

    def handler(self, symbol, text=None):
        handlers = generate(text or self.text, "generated_handlers.cpp")[2]
        return re.search(rf"handle_{symbol}\(.*?^}}", handlers, re.S | re.M)[0]

    def test_an_array_of_handles_travels_as_numbers_with_its_count(self):
        self.assertIn("call.put_count(dependencies ? numDependencies : 0);", self.stub("cuGraphAddEmptyNode"))
        self.assertIn("call.handle_or_null(dependencies[i]);", self.stub("cuGraphAddEmptyNode"))
        handler = self.handler("cuGraphAddEmptyNode")
        self.assertIn("dependencies[i] = in.named_or_null<Resolved::GraphNode>().handle;", handler)
        self.assertIn("if (dependencies.size() != numDependencies) return CUDA_ERROR_INVALID_VALUE;", handler)

    def test_an_array_needs_a_parameter_that_counts_it(self):
        self.refused(self.changed("cuGraphAddEmptyNode", "(numDependencies)", "(hGraph_)"), "'hGraph_' cannot count it")
        self.refused(self.changed("cuGraphGetNodes", "nodes:out(numNodes)", "nodes:in(numNodes)"), "'numNodes' cannot count it")

    def test_an_array_may_be_null_only_where_the_table_says_so(self):
        self.assertIn("if (!from && numDependencies != 0) return", self.stub("cuGraphAddDependencies_v2"))
        self.assertNotIn("!edgeData", self.stub("cuGraphAddDependencies_v2"))

    def test_a_list_of_handles_comes_back_within_the_room_there_is(self):
        handler = self.handler("cuGraphGetNodes")
        self.assertLess(handler.index("wire::list_items_max"), handler.index("nodes.resize(numNodes)"))
        self.assertIn("out.put(in.number_of(nodes[i]));", handler)
        stub = self.stub("cuGraphGetNodes")
        self.assertIn("call.put(uint64_t{nodes ? *numNodes : 0});", stub)
        self.assertIn("if (i < *numNodes) { call.out_handle(&nodes[i]); }", stub)

    def test_handles_in_a_struct_travel_as_numbers(self):
        # CUgraphExecUpdateResultInfo names two nodes.
        self.assertIn("out.put(in.number_of(resultInfo.errorNode));", self.handler("cuGraphExecUpdate_v2"))
        self.assertIn("call.out_handle(&(*resultInfo).errorFromNode);", self.stub("cuGraphExecUpdate_v2"))

    def test_a_struct_whose_pointers_lead_elsewhere_does_not_travel(self):
        line = self.line_of("cuGraphHostNodeSetParams")
        how = line.split()[1]
        plain = line.split("cuGraphHostNodeSetParams")[0].replace(how.ljust(11), "sync".ljust(11))
        self.refused(self.text.replace(line, plain + "cuGraphHostNodeSetParams nodeParams:in"), "a pointer does not travel")

    def test_what_a_call_makes_has_the_clients_number_and_is_forgotten_if_it_fails(self):
        stub = self.stub("cuGraphCreate")
        self.assertLess(stub.index("Minted<CUgraph> phGraph_made;"), stub.index("call.put(phGraph_made.number());"))
        self.assertLess(stub.index("if (result != CUDA_SUCCESS) return result;"), stub.index("phGraph_made.keep(call)"))
        self.assertIn("if (!in.enter(phGraph_number, phGraph)) return CUDA_ERROR_INVALID_VALUE;", self.handler("cuGraphCreate"))

    def test_only_what_both_ends_can_enter_is_made(self):
        line = self.line_of("cuStreamCreate")
        table = self.text.replace(line, line.replace("custom", "async ").rstrip() + "  phStream:new")
        self.refused(table, "cannot make or find a CUstream")

    def test_what_a_call_destroys_is_forgotten_at_both_ends(self):
        self.assertIn("forget(hGraphExec);", self.stub("cuGraphExecDestroy"))
        self.assertIn("in.handles().end(hGraphExec, [&] { return driver().cuGraphExecDestroy(hGraphExec.handle); })",
                      self.handler("cuGraphExecDestroy"))
        # Nobody knows what became of an async call; a sync one that fails has destroyed nothing.
        self.assertNotIn("!= CUDA_SUCCESS", self.stub("cuGraphExecDestroy"))
        self.assertLess(self.stub("cuGraphDestroyNode").index("!= CUDA_SUCCESS) return"),
                        self.stub("cuGraphDestroyNode").index("forget(hNode);"))

    def test_a_call_that_is_not_waited_for_answers_nothing(self):
        self.refused(self.changed("cuGraphNodeGetType", "sync ", "async"), "cannot be async")

    def test_every_exported_function_can_be_watched(self):
        watched = generate(self.text, "watched_calls.cpp")[2]
        exported = {words[0] for words in re.findall(r"CUresult CUDAAPI (cu\w+)\(()", watched)}
        for symbol in ("cuMemAlloc_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuGetErrorName", "cuGraphicsUnregisterResource"):
            self.assertIn(symbol, exported)
        entry_points = generate(self.text, "entry_points.cpp")[2]
        self.assertEqual(exported, set(re.findall(r"int (cu\w+)\(\);", entry_points)))

    def test_what_a_call_writes_is_told_from_lists_and_buffers(self):
        watched = generate(self.text, "watched_calls.cpp")[2]
        arguments_of = lambda symbol: re.search(rf"ended\([^\n]*?\btnr_{symbol}\(.*?\), (.*)\);", watched)[1]
        self.assertEqual(arguments_of("cuMemAlloc_v2"), '{Argument::out_address("dptr", dptr), Argument::of("bytesize", bytesize)}')
        self.assertIn('Argument::of("kernelParams"', arguments_of("cuLaunchKernel"))
        self.assertIn('Argument::of("options"', arguments_of("cuModuleLoadDataEx"))
        self.assertIn('Argument::out("module"', arguments_of("cuModuleLoadDataEx"))
        self.assertIn('Argument::of("nodes"', arguments_of("cuGraphGetNodes"))
        self.assertIn('Argument::out("numNodes"', arguments_of("cuGraphGetNodes"))
        self.assertIn('Argument::of("dstHost"', arguments_of("cuMemcpyDtoH_v2"))
        self.assertIn('Argument::address("srcDevice"', arguments_of("cuMemcpyDtoH_v2"))
        self.assertIn('Argument::out_text("name"', arguments_of("cuDeviceGetName"))

    def test_functions_that_streams_call_are_refused_what_does_something(self):
        watched = generate(self.text, "watched_calls.cpp")[2]
        refused = lambda symbol: f"is_program_function_calling() ? CUDA_ERROR_NOT_PERMITTED : tnr_{symbol}(" in watched
        for symbol in ("cuMemAlloc_v2", "cuStreamSynchronize", "cuLaunchKernel_ptsz", "cuGraphDestroy", "cuMemAllocHost_v2"):
            self.assertTrue(refused(symbol), symbol)
        for symbol in ("cuCtxGetCurrent", "cuDeviceGetAttribute", "cuGetErrorName", "cuCtxGetStreamPriorityRange"):
            self.assertFalse(refused(symbol), symbol)

    def test_the_hash_changes_with_meaning_and_not_with_comments(self):
        hash_of = lambda text: next(l for l in generate(text)[2].splitlines() if "calls_table_hash" in l)
        line = self.line_of("cuDeviceGraphMemTrim")
        self.assertEqual(hash_of(self.text), hash_of("# a remark\n" + self.text))
        self.assertNotEqual(hash_of(self.text), hash_of(self.text.replace(line, line.replace("sync ", "async"))))

    def test_support_names_the_areas_that_are_lacking_and_the_readme_says_the_same(self):
        not_yet = next(line for line in support(self.text).splitlines() if line.startswith("Not yet: "))
        self.assertIn("checkpoints and core dumps", not_yet)
        self.assertNotIn("graphs", not_yet)
        self.assertIn(not_yet, " ".join(README.read_text().split()), "README.md should say what support.md says")

    def test_an_area_that_runs_is_lacking_no_more(self):
        area = re.compile("Checkpoint|Coredump")
        lines = [line.replace("unsupported ", "custom      ") if area.search(line) else line for line in self.text.splitlines()]
        self.assertNotIn("checkpoints and core dumps", support("\n".join(lines)))

    def test_support_has_a_row_for_each_symbol(self):
        rows = support(self.text).partition("| call |")[2].splitlines()[2:]
        symbols = [line for line in self.text.splitlines() if line.startswith("0x")]
        self.assertEqual(len(rows), len(symbols))
        self.assertIn("| cuMemAlloc | cuMemAlloc_v2 | 3.2 | custom |", rows)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
