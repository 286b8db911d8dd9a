"""Executes a program as soon as its own interpreter has been opened so many times by somebody else.

    executes.py PROGRAM TIMES SECONDS     as nobody; SECONDS are waited after the last opening
"""

import ctypes
import os
import struct
import sys
import threading
import time

IN_OPEN = 0x20

program, times, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
libc = ctypes.CDLL(None, use_errno=True)
events = libc.inotify_init()
if events < 0 or libc.inotify_add_watch(events, os.fsencode(sys.executable), IN_OPEN) < 0:
    raise OSError(ctypes.get_errno(), "inotify")


def work():
    return 1


def serve():
    while True:
        work()


threading.Thread(target=serve, daemon=True).start()
print("ready", flush=True)
seen = 0
while seen < times:
    data = os.read(events, 4096)
    while data:
        length = 16 + struct.unpack_from("iIII", data)[3]
        data = data[length:]
        seen += 1
time.sleep(pause)
os.execv(program, [program])
