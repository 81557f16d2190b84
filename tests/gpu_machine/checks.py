"""What the scripts share: how they say that the machine lacks something; and checks, each of which has a name and gives
something whose bits are compared."""
import hashlib
import json
import os
import sys

LACKS = 77  # the exit status of a script where the machine has not got what it needs


def lacks(script, why):
    print(f"{script}: {why}", file=sys.stderr)
    sys.exit(LACKS)


class Checks:
    def __init__(self, name):
        self.name, self.all = name, []

    def __call__(self, function):
        """As a decorator: the function is a check."""
        self.all.append(function)
        return function

    def lacks(self, why):
        lacks(self.name, why)

    def run(self, bytes_of, wanted=lambda function: True):
        """Prints a line for each, and ends the process: what a library does at exit is not checked here."""
        for function in filter(wanted, self.all):
            try:
                found = {"result": digest(function(), bytes_of)}
            except Exception as error:  # whatever it is, the others are to run
                found = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps({"check": function.__name__, **found}), flush=True)
        os._exit(0)


def digest(result, bytes_of):
    """Of arrays, numbers and texts in any nesting of lists; `bytes_of` gives an array's, and None for what is none."""
    found = hashlib.sha256()

    def add(value):
        if isinstance(value, (list, tuple)):
            for one in value:
                add(one)
        else:
            data = bytes_of(value)
            found.update(repr(value).encode() if data is None else data)
    add(result)
    return found.hexdigest()[:16]
