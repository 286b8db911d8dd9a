"""Servers for `cargo xtask bench truth`: a byte in, a byte out. Standard library alone, CPython 3.8 and newer.

    servers.py pool|asyncio SOCKET WORDS LIBRARY

`pool` has a thread of a pool for each connection. LIBRARY is slow.c, WORDS the file that it maps.
"""

import asyncio
import ctypes
import json
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

KIND, SOCKET, WORDS, LIBRARY = sys.argv[1:]
# Functions of a PyDLL hold the interpreter's lock, as Python code does.
slow = ctypes.PyDLL(LIBRARY)
if not slow.slow_open(WORDS.encode()):
    sys.exit("cannot map " + WORDS)


def real(byte):
    """Really gets slower."""
    slow.slow_really()
    return byte


def probed(byte):
    """The same, which the tool slows."""
    slow.slow_not()
    return byte


def answer(byte):
    slow.slow_own()
    return real(byte) if slow.slow_is_real() else probed(byte)


def serve(connection):
    while True:
        byte = connection.recv(1)
        if not byte:
            return
        connection.sendall(answer(byte))


def pool():
    threads = ThreadPoolExecutor(max_workers=16)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen(64)
    ready()
    while True:
        threads.submit(serve, listener.accept()[0])


async def talk(reader, writer):
    try:
        while True:
            byte = await reader.read(1)
            if not byte:
                break
            writer.write(answer(byte))
            await writer.drain()
    except ConnectionError:
        pass  # The load ended.
    writer.close()


async def loop():
    server = await asyncio.start_unix_server(talk, SOCKET)
    ready()
    async with server:
        await server.serve_forever()


def ready():
    print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)


def end():
    """Ends with its parent."""
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end, daemon=True).start()
if KIND == "pool":
    pool()
else:
    asyncio.run(loop())
