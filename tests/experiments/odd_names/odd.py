"""A service of an ordinary function, and of functions that are called what no target can name, or hardly."""

import json
import os
import sys
import threading
import time
import types

# Names, and names of files: empty ones, ones that are too long, and what lines, patterns and terminals obey.
ODD = ["", "n" * 5_000, "n\nm", "\n", "n\0m", "\ud800", "\u202en", "\x1b[2J", "*", "[", "?", " n ", " ", "n:m", ":",
       "!n", "#n", "n delay=1ms", "=", "native:n", "\U0001f600" * 1_000]
LINES = [0, -5, 2**31 - 1]


def odd():
    end = clock() + 0.0001
    while clock() < end:
        pass


def called(file, name, line=1):
    names = {"co_filename": file, "co_name": name, "co_firstlineno": line}
    if sys.version_info >= (3, 11):
        names["co_qualname"] = name
    try:
        code = odd.__code__.replace(**names)
    except (SystemError, ValueError):
        # Not every version has negative lines.
        code = odd.__code__.replace(**{**names, "co_firstlineno": 0})
    return types.FunctionType(code, {"clock": time.perf_counter})


def ordinary():
    end = time.perf_counter() + 0.003
    while time.perf_counter() < end:
        pass


def unit():
    """A unit of work was done."""


FUNCTIONS = [called("/srv/odd.py", name) for name in ODD]
FUNCTIONS += [called(file, f"f{number}") for number, file in enumerate(ODD)]
FUNCTIONS += [called("/srv/odd.py", f"l{number}", line) for number, line in enumerate(LINES)]
FUNCTIONS += [called("/" + "f" * 3_000, "n" * 3_000)] * 5


def work():
    while True:
        ordinary()
        for function in FUNCTIONS:
            function()
        unit()
        time.sleep(0.004)


threading.Thread(target=work, daemon=True).start()
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
sys.stdin.read()
