"""A Python service that calls functions of libc and measures them from inside. Runs on CPython 3.8 and newer.

Speaks what tests/fixtures/service.c speaks: the commands `report`, `reset` and `quit` on standard input, one JSON
object a line on standard output.
"""

import ctypes
import json
import os
import statistics
import sys
import threading
import time
from collections import deque

SAMPLES = 4096
LIBC = ctypes.CDLL(None)

# Straight calls of the C functions: what ctypes costs is the same with and without a delay.
FUNCTIONS = {
    "strtol": (LIBC.strtol, (b"42", None, 10)),
    "getenv": (LIBC.getenv, (b"NO_SUCH_VARIABLE",)),
    "labs": (LIBC.labs, (-42,)),
}


class Service:
    def __init__(self):
        self.lock = threading.Lock()
        self.reset()
        threading.Thread(target=self.work, daemon=True).start()

    def reset(self):
        with self.lock:
            self.calls = dict.fromkeys(FUNCTIONS, 0)
            self.times_ns = {name: deque(maxlen=SAMPLES) for name in FUNCTIONS}

    def work(self, clock=time.perf_counter_ns):
        while True:
            with self.lock:
                for name, (function, arguments) in FUNCTIONS.items():
                    before = clock()
                    function(*arguments)
                    after = clock()
                    self.calls[name] += 1
                    self.times_ns[name].append(after - before)
            time.sleep(200e-6)

    def report(self):
        with self.lock:
            for name in FUNCTIONS:
                times = self.times_ns[name]
                median = int(statistics.median(times)) if times else 0
                say(event="function", pid=os.getpid(), name=name, calls=self.calls[name], median_ns=median)


def say(**event):
    os.write(1, (json.dumps(event) + "\n").encode())


def main():
    service = Service()
    say(event="ready", program="libc_caller.py", pid=os.getpid())
    for line in sys.stdin:
        command = line.strip()
        if command == "quit":
            break
        if command in ("report", "reset"):
            getattr(service, command)()
            say(event="done", command=command)
        else:
            say(event="error", command=command, message="unknown command")
    say(event="done", command="quit")


if __name__ == "__main__":
    main()
