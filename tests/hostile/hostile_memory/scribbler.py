"""Writes into the control block that it shares with the loader, for as long as it is there.

    scribbler.py MODE FIELD=OFFSET…

FIELD is a field of `ControlBlock` (speed-bump-abi/src/control_block.rs). MODE says what is written, again and
again: `nameless` (a function without a name, once), `counts` (numbers that jump, run back, and are the greatest
there are), `rows` (random bytes in the records and names of functions), `head` (random numbers in what the
helper says), `all` (random bytes anywhere).
"""

import json
import os
import random
import struct
import sys
import threading
import time

MODE = sys.argv[1]
OFFSETS = {field: int(offset) for field, offset in (argument.split("=") for argument in sys.argv[2:])}
ACTIVE = 2
RECORD = 32
calls = 0


def victim():
    global calls
    calls += 1


def work():
    while True:
        victim()
        time.sleep(0.001)


def blocks():
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "/memfd:speed-bump-control" in line:
                first, last = line.split()[0].split("-")
                yield int(first, 16), int(last, 16)


class Block:
    def __init__(self, memory, start, end):
        self.memory, self.start, self.end = memory, start, end

    def number(self, field, form):
        return struct.unpack(form, self.read(OFFSETS[field], struct.calcsize(form)))[0]

    def read(self, place, count):
        return os.pread(self.memory, count, self.start + place)

    def write(self, place, data):
        if place + len(data) <= self.end - self.start:
            os.pwrite(self.memory, data, self.start + place)


def nameless(block):
    number = block.number("functions", "I")
    record = block.number("functions_offset", "Q") + number * RECORD
    block.write(record, struct.pack("8I", 1, 0, 7, 0, 0, 0, 0, 1))
    block.write(OFFSETS["functions"], struct.pack("I", number + 1))


def counts(block):
    wild = [0, 1, 1000, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    count = max(block.number("functions", "I"), 1)
    for table, words in (("calls_offset", 8), ("times_offset", 8), ("callers_offset", 16)):
        if start := block.number(table, "Q"):
            numbers = [random.choice(wild) for _ in range(count * words)]
            block.write(start, struct.pack(f"{len(numbers)}Q", *numbers))


def rows(block):
    block.write(OFFSETS["functions"], struct.pack("I", random.getrandbits(32)))
    for table in ("functions_offset", "names_offset"):
        block.write(block.number(table, "Q"), os.urandom(4096))
    # Ready ones.
    for record in range(64):
        words = [1] + [random.choice([0, 1, random.getrandbits(12), random.getrandbits(32)]) for _ in range(7)]
        block.write(block.number("functions_offset", "Q") + record * RECORD, struct.pack("8I", *words))


def head(block):
    for field in ("state", "notices", "applied_generation", "functions", "python_version", "floor"):
        value = random.choice([0, 1, 2, 3, 4, 5, random.getrandbits(32)])
        block.write(OFFSETS[field], struct.pack("I", value))
    for field in ("names", "surveyed", "times_unmatched", "times_without_room", "callers_without_room"):
        block.write(OFFSETS[field], struct.pack("Q", random.getrandbits(64)))


def everything(block):
    # All but what makes the helper's own code, in this very process, read elsewhere.
    place = random.randrange(0, block.end - block.start - 4096)
    block.write(place, os.urandom(random.choice([8, 64, 4096])))
    counts(block)


WRITE = {"nameless": nameless, "counts": counts, "rows": rows, "head": head, "all": everything}[MODE]


def scribble():
    memory = os.open("/proc/self/mem", os.O_RDWR)
    active = set()
    while True:
        for start, end in blocks():
            block = Block(memory, start, end)
            try:
                is_new = start not in active
                if is_new and block.number("state", "I") != ACTIVE:
                    continue
                active.add(start)
                if is_new or MODE != "nameless":
                    WRITE(block)
            except OSError:
                # It has been unmapped meanwhile.
                pass
        time.sleep(0.002)


threading.Thread(target=work, daemon=True).start()
threading.Thread(target=scribble, daemon=True).start()
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
for line in sys.stdin:
    print(json.dumps({"event": "calls", "calls": calls}), flush=True)
    print(json.dumps({"event": "done", "command": line.strip()}), flush=True)
