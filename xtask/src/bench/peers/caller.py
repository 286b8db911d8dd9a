"""Calls a Python function and measures it from inside, as its caller sees it. Runs on CPython 3.8 and newer.

Speaks what tests/fixtures/service.c speaks: a command a line on standard input, one JSON object a line on
standard output. With a folder as its argument it loads `sys_monitoring_peer` from there, and takes `peer on
DELAY_NS FREQUENCY OPENS_AFTER_NS` and `peer off` as well.

`measure CALLS 0` answers with an event `times`: for each of so many rounds what a call of `called` took, in
ns, and what the call of another function right after it took (`other`). `measure CALLS SLEEP_US` calls both
in turn, each after a sleep of its own.
"""

import json
import os
import sys
import time

# So long the processor works before calls are measured that do not sleep.
WARM_UP_NS = 20_000_000


def called():
    pass


def next_called():
    pass


def twin():
    pass


def measure_at_once(calls, clock=time.perf_counter_ns):
    first = [0] * calls
    after = [0] * calls
    start = clock()
    while clock() - start < WARM_UP_NS:
        next_called()
    for i in range(calls):
        begin = clock()
        called()
        middle = clock()
        next_called()
        end = clock()
        first[i] = middle - begin
        after[i] = end - middle
    return first, after


def measure_slept(calls, seconds, clock=time.perf_counter_ns, sleep=time.sleep):
    first = [0] * calls
    other = [0] * calls
    for i in range(calls):
        sleep(seconds)
        begin = clock()
        called()
        end = clock()
        first[i] = end - begin
        sleep(seconds)
        begin = clock()
        twin()
        end = clock()
        other[i] = end - begin
    return first, other


def measure(calls, sleep_us):
    return measure_slept(calls, sleep_us / 1e6) if sleep_us else measure_at_once(calls)


def say(**event):
    os.write(1, (json.dumps(event, separators=(",", ":")) + "\n").encode())


def main():
    peer = None
    if len(sys.argv) > 1:
        sys.path.insert(0, sys.argv[1])
        import sys_monitoring_peer as peer
    measure(200, 0)
    say(event="ready", program="caller.py", pid=os.getpid())
    for line in iter(sys.stdin.readline, ""):
        command, *arguments = line.split()
        if command == "measure":
            calls, sleep_us = map(int, arguments)
            first, other = measure(calls, sleep_us)
            say(event="times", called=first, other=other)
        elif command == "peer" and arguments[0] == "on":
            peer.install(__file__, "called", *map(int, arguments[1:]))
        elif command == "peer":
            say(event="counted", calls=peer.uninstall())
        elif command == "quit":
            break
        say(event="done", command=command)
    say(event="done", command="quit")


if __name__ == "__main__":
    main()
