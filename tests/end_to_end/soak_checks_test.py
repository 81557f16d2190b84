#!/usr/bin/env python3
"""The soak's checks find what must not be (soak_checks.py)."""
import unittest

import soak_checks as checks

GPU = "ab" * 16


def program(**more):
    return checks.Program(**dict({"machine": "m", "expected": "7", "begun": 10, "ended": 20, "code": 0,
                                  "out": "computes 11.0\nresult 7\nover 20.0\n"}, **more))


def row(**more):
    return dict({"id": 1, "machine": "m", "devices": [GPU], "began_s": 10.9, "until_s": 20.1, "ended": True}, **more)


class Checks(unittest.TestCase):
    def found(self, sentences, *words):
        self.assertEqual(len(sentences), len(words), sentences)
        for sentence, word in zip(sentences, words):
            self.assertIn(word, sentence)

    def programs(self, *given, troubles=()):
        return checks.of_programs(given, troubles, {"m": {"b"}})

    def test_programs(self):
        failed = program(code=1, out="computes 11.0\n", errors="lost")
        early = program(code=1, out="", errors="no answer from the pool")
        self.found(self.programs(program()))
        self.found(self.programs(program(out="result 8\n")), "where 7 is right")
        self.found(self.programs(program(out="result 7\nresult 7\n")), "where 7 is right")
        self.found(self.programs(program(out="")), "where 7 is right")
        self.found(self.programs(program(code=1)), "after its result")
        self.found(self.programs(program(code=None)), "has not ended")
        self.found(self.programs(failed), "while all was well: lost")
        self.found(self.programs(program(code=-9, out="", killed=True)))
        self.found(self.programs(failed, troubles=[checks.Trouble("kill", "b", 15, 17)]))
        self.found(self.programs(failed, troubles=[checks.Trouble("kill", "c", 15, 17)]), "all was well")
        self.found(self.programs(failed, troubles=[checks.Trouble("kill", "b", 1, 3)]), "all was well")
        self.found(self.programs(failed, troubles=[checks.Trouble("cut", "b", 15, 17)]), "all was well")
        self.found(self.programs(early, troubles=[checks.Trouble("kill", "c", 15, 17)]))
        self.found(self.programs(early, troubles=[checks.Trouble("cut", "a", 15, 15)]))
        self.found(self.programs(early), "all was well")

    def test_ledger(self):
        has = {"event": "has", "node": "b", "t_ms": 11_000, "claim": 1, "gpus": [GPU]}
        over = {"event": "has not", "node": "b", "t_ms": 20_000, "claim": 1}
        self.found(checks.of_ledger({"b": [row()]}, [has, over], {}))
        self.found(checks.of_ledger({"b": []}, [has, over], {}), "not in the ledger")
        self.found(checks.of_ledger({"b": [row(devices=["x"])]}, [has, over], {}), "other GPUs")
        self.found(checks.of_ledger({"b": [row()]}, [has], {}), "never ended")
        self.found(checks.of_ledger({"b": [row()]}, [has], {"b": [15]}))
        self.found(checks.of_ledger({"b": [row(ended=False)]}, [has, over], {}), "still open")
        twice = [row(), row(id=2, began_s=15, until_s=30)]
        other = dict(has, t_ms=15_000, claim=2)
        self.found(checks.of_ledger({"b": twice}, [has, over, other, dict(other, event="has not")], {}), "at once")
        ghost = [row(), row(id=2, began_s=25, until_s=26)]  # of a GPU that nobody else has then
        self.found(checks.of_ledger({"b": ghost}, [has, over], {}), "nobody had it")
        self.found(checks.of_ledger({"b": ghost}, [has, over], {"b": [26]}))  # killed before it could write
        self.found(checks.of_ledger({"b": ghost}, [has, over], {"b": [40]}), "nobody had it")

    def test_use(self):
        self.found(checks.of_use([program()], {"b": [row()]}))
        self.found(checks.of_use([program(code=1)], {"b": []}))
        self.found(checks.of_use([program()], {"b": [row(machine="n")]}), "not in the ledger")
        self.found(checks.of_use([program()], {"b": [row(until_s=15)]}), "not in the ledger")

    def test_nodes(self):
        self.assertEqual(checks.nodes_of({"b": [row(), row(machine="n")], "c": [row()]}), {"m": {"b", "c"}, "n": {"b"}})

    def test_growth(self):
        before = {"bytes": 1 << 20, "descriptors": 20, "processes": 3, "files": ["pool.db"]}
        self.found(checks.of_growth(before, before, 0, 0))
        after = {"bytes": 3 << 20, "descriptors": 25, "processes": 4, "files": ["pool.db", "x"]}
        self.found(checks.of_growth(before, after, 1 << 20, 4), "memory", "open files", "processes", "['x']")
        del before["bytes"], after["bytes"]
        self.found(checks.of_growth(before, after, 0, 4), "open files", "processes", "['x']")

    def test_gpus(self):
        rows = {"a": [row(machine="after-0"), row()], "b": [row(machine="after-1", devices=["y"])]}
        self.found(checks.of_gpus({"after-0", "after-1"}, rows, 2))
        self.found(checks.of_gpus({"after-0", "after-1"}, rows, 3), "had 2 GPUs")


if __name__ == "__main__":
    unittest.main()
