"""Servers that `cargo xtask soak` attaches to, hundreds of times. Runs on CPython 3.8 and newer.

    servers.py threaded | asyncio | idle | busy

The first two serve HTTP on a port of the loopback. The commands, one a line on standard input, answered with JSON
objects and a closing `{"event":"done"}`:

    state        threads, file descriptors, mappings and resident kilobytes of this process
    quit         end
"""

import asyncio
import http.server
import json
import os
import sys
import threading
import time


def handle(number):
    return transform(number) + 1


def transform(number):
    return number * 2


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"%d" % handle(int(self.path[1:]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def threaded():
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


async def respond(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            number = int(head.split(b" ", 2)[1][1:])
            await asyncio.sleep(0)
            body = b"%d" % handle(number)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def asynchronous():
    started = threading.Event()
    port = []

    async def serve():
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        port.append(server.sockets[0].getsockname()[1])
        started.set()
        async with server:
            await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    started.wait()
    return port[0]


def busy():
    def work():
        number = 0
        while True:
            number = handle(number) % 1_000_003

    threading.Thread(target=work, daemon=True).start()


def idle():
    threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()


def lines_of(path):
    with open(path) as file:
        return file.read().splitlines()


def state():
    status = dict(line.split(":", 1) for line in lines_of("/proc/self/status"))
    return {
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": len(lines_of("/proc/self/maps")),
        "resident_kb": int(status["VmRSS"].split()[0]),
    }


def say(**event):
    os.write(1, (json.dumps(event) + "\n").encode())


def main():
    start = {"threaded": threaded, "asyncio": asynchronous, "idle": idle, "busy": busy}[sys.argv[1]]
    say(event="ready", program="servers.py", pid=os.getpid(), port=start())
    for line in sys.stdin:
        command = line.strip()
        if command == "quit":
            break
        if command == "state":
            say(event="state", **state())
            say(event="done", command=command)
        else:
            say(event="error", command=command, message="unknown command")
    say(event="done", command="quit")


if __name__ == "__main__":
    main()
