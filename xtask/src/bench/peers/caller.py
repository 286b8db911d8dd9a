"""Calls a Python function and measures it from inside, as its caller sees it. Runs on CPython 3.8 and newer.

Speaks what tests/fixtures/service.c speaks: a command a line on standard input, one JSON object a line on
standard output. With a folder as its argument it loads `sys_monitoring_peer` from there, and takes `peer on
DELAY_NS FREQUENCY OPENS_AFTER_NS` and `peer off` as well.

`measure CALLS SLEEP_US` answers with an event `times`: for each of so many rounds what a call of `called`
took, in ns, and what the call of `next_called` right after it took. Each round begins with so long a sleep,
if it is not 0.
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


def measure(calls, sleep_us, clock=time.perf_counter_ns, sleep=time.sleep):
    first = [0] * calls
    after = [0] * calls
    seconds = sleep_us / 1e6
    start = clock()
    while not seconds and clock() - start < WARM_UP_NS:
        next_called()
    for i in range(calls):
        if seconds:
            sleep(seconds)
        begin = clock()
        called()
        middle = clock()
        next_called()
        end = clock()
        first[i] = middle - begin
        after[i] = end - middle
    return first, after


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
            first, after = measure(calls, sleep_us)
            say(event="times", called=first, next_called=after)
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
