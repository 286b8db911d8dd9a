"""Defines functions with long names, and measures for how long a thread waits for the interpreter.

    target.py COUNT NAME

`waits` answers with the longest wait, and the sum of all that took a millisecond and more, in seconds.
"""

import json
import os
import sys
import threading
import time

count, name = int(sys.argv[1]), sys.argv[2]
text = "\n".join(f"def {name}_{number}_b(): pass" for number in range(count))
functions = {}
exec(compile(text, "/made/many.py", "exec"), functions)

longest = total = 0.0


def wait():
    global longest, total
    last = time.perf_counter()
    while True:
        time.sleep(0)
        now = time.perf_counter()
        waited = now - last
        if waited >= 0.001:
            longest = max(longest, waited)
            total += waited
        last = now


threading.Thread(target=wait, daemon=True).start()
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
for line in sys.stdin:
    if line.strip() == "waits":
        print(json.dumps({"event": "waits", "longest": longest, "all": total}), flush=True)
        print(json.dumps({"event": "done", "command": "waits"}), flush=True)
