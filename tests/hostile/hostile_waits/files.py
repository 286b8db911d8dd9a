"""A process that executes a library on a FUSE file system of its own, which answers until it is told not to.

    files.py LIBRARY

Commands: `hang` has the file system answer no read any more. The PID is 0 where there can be none.
"""

import ctypes
import json
import os
import struct
import sys
import tempfile
import threading

LOOKUP, GETATTR, OPEN, READ, STATFS, RELEASE, INIT = 1, 3, 14, 15, 17, 18, 26
FORGET, INTERRUPT, BATCH_FORGET = 2, 36, 42
ENOENT, ENOSYS = 2, 38
CLONE_NEWNS, MS_PRIVATE, MS_REC = 0x20000, 1 << 18, 1 << 14
NAME = b"library.so"

libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
with open(sys.argv[1], "rb") as file:
    content = file.read()


def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def attributes(node):
    size, mode = (0, 0o40755) if node == 1 else (len(content), 0o100755)
    return struct.pack("<6Q10I", node, size, -(-size // 512), 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(code, node, body):
    """The error of a request, and what it gives."""
    if code == INIT:
        return 0, struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, *[0] * 8)
    if code == LOOKUP:
        if body.rstrip(b"\0") != NAME:
            return ENOENT, b""
        return 0, struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
    if code == GETATTR:
        return 0, struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if code == OPEN:
        return 0, struct.pack("<Q2I", 0, 0, 0)
    if code == READ:
        _, offset, size = struct.unpack_from("<2QI", body)
        return 0, content[offset : offset + size]
    if code == STATFS:
        return 0, struct.pack("<5Q10I", 0, 0, 0, 0, 0, 4096, 255, 4096, 0, *[0] * 6)
    return (0, b"") if code == RELEASE else (ENOSYS, b"")


hangs = threading.Event()


def serve(device):
    while True:
        request = os.read(device, 1 << 17)
        _, code, unique, node = struct.unpack_from("<2I2Q", request)
        if (code == READ and hangs.is_set()) or code in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        error, given = answer(code, node, request[40:])
        os.write(device, struct.pack("<IiQ", 16 + len(given), -error, unique) + given)


try:
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(b"none", b"/", None, MS_PRIVATE | MS_REC, None))
    device = os.open("/dev/fuse", os.O_RDWR)
    folder = tempfile.mkdtemp()
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    check(libc.mount(b"hang", folder.encode(), b"fuse", 0, options.encode()))
except OSError:
    print(json.dumps({"event": "ready", "pid": 0}), flush=True)
    sys.exit()
# The process that the tool reads.
if os.fork() == 0:
    os.close(device)
    libc.prctl(1, 9)
    library = ctypes.CDLL(os.path.join(folder, NAME.decode()))
    os.write(1, (json.dumps({"event": "ready", "pid": os.getpid()}) + "\n").encode())
    while True:
        library.work()
threading.Thread(target=serve, args=(device,), daemon=True).start()
for command in sys.stdin:
    hangs.set()
    print(json.dumps({"event": "done", "command": command.strip()}), flush=True)
# Whatever waits for an answer gets an error, and the folder is one again.
os.close(device)
libc.umount2(folder.encode(), 2)
os.rmdir(folder)
os._exit(0)
