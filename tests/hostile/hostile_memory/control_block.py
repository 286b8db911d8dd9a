"""Fills the control block that it shares with the loader with huge names.

    control_block.py RECORDS FIELD=OFFSET…

FIELD is a field of `ControlBlock` (speed-bump-abi/src/control_block.rs). Each name is as long as the block has
room for names.
"""

import json
import os
import struct
import sys
import threading
import time

OFFSETS = {field: int(offset) for field, offset in (argument.split("=") for argument in sys.argv[2:])}
ACTIVE = 2


def victim(x):
    return x + 1


def find():
    """Where the block is mapped, once the helper is in."""
    while True:
        with open("/proc/self/maps") as maps:
            for line in maps:
                if "/memfd:speed-bump-control" in line:
                    return int(line.split("-")[0], 16)
        time.sleep(0.001)


def fill(records):
    block = find()
    memory = os.open("/proc/self/mem", os.O_RDWR)

    def number(field, form):
        size = struct.calcsize(form)
        return struct.unpack(form, os.pread(memory, size, block + OFFSETS[field]))[0]

    while number("state", "I") != ACTIVE:
        time.sleep(0.001)
    names, room = number("names_offset", "Q"), number("names_capacity", "Q")
    functions, capacity = number("functions_offset", "Q"), number("functions_capacity", "I")
    first = number("functions", "I")
    last = min(first + records, capacity)
    # Each name differs, and takes six bytes for one where it is escaped.
    text = bytearray(b"\1" * room)
    text[last] = 2
    os.pwrite(memory, text, block + names)
    length = room - last
    for record in range(first, last):
        words = struct.pack("8I", 1, 0, 7, record, length, record, length, 1)
        os.pwrite(memory, words, block + functions + record * 32)
    os.pwrite(memory, struct.pack("I", last), block + OFFSETS["functions"])


threading.Thread(target=fill, args=(int(sys.argv[1]),), daemon=True).start()
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
for _ in sys.stdin:
    pass
