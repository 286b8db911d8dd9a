"""The demo's service: an HTTP server that hands each request to a slow device and renders the reply.

    service.py [--port N] [--device-ms N] [--until-eof]

A profiler sees `score_candidate` at the top: it runs eight times a request and takes most of the CPU time.
It runs while the request waits for the device, so that making it faster gains nothing, and making it slower
costs nothing until it outlasts the device. `render_section` is cold, and on the path of every request: what it
gets slower by, times five, every request gets slower by.

One request is in flight at a time, as there is one device. Prints {"event":"ready","pid":…,"port":…} once it listens.

    GET /search   one request's worth of work
    GET /counts   {"requests":…,"score_candidate":…,"render_section":…}: calls since the start

Standard library alone, CPython 3.8 and newer.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

CANDIDATES = 8
SECTIONS = 5


class Device:
    """Answers a job a fixed time after it was submitted: an accelerator's queue, a disk, a database."""

    def __init__(self, milliseconds):
        self.seconds = milliseconds / 1000

    def submit(self):
        return Job(time.monotonic() + self.seconds)


class Job:
    def __init__(self, done_at):
        self.done_at = done_at

    def wait(self):
        time.sleep(max(0, self.done_at - time.monotonic()))


def score_candidate(number):
    """Hot: some 250 us, eight times a request, while the device is busy."""
    score = number
    for step in range(4000):
        score = (score * 31 + step) & 0xFFFFFFFF
    return score


def render_section(number, scores):
    """Cold: some 100 us, five times a request, once the device has answered."""
    seal = number
    for step in range(1200):
        seal = (seal * 31 + scores[step % CANDIDATES]) & 0xFFFFFFFF
    return "section %d: best candidate %d, seal %08x\n" % (number, scores.index(max(scores)), seal)


class Search:
    """What a request does, and how often it did it."""

    def __init__(self, device):
        self.device = device
        self.requests = 0

    def handle(self):
        job = self.device.submit()
        scores = [score_candidate(number) for number in range(CANDIDATES)]
        job.wait()
        page = "".join([render_section(number, scores) for number in range(SECTIONS)])
        self.requests += 1
        return page

    def counts(self):
        return {
            "requests": self.requests,
            "score_candidate": self.requests * CANDIDATES,
            "render_section": self.requests * SECTIONS,
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Header and body are two writes; with Nagle's algorithm the second would wait for the client's delayed ACK.
    disable_nagle_algorithm = True
    timeout = 60

    def do_GET(self):
        if self.path == "/search":
            self.reply(200, "text/plain", self.server.search.handle())
        elif self.path == "/counts":
            self.reply(200, "application/json", json.dumps(self.server.search.counts()))
        else:
            self.reply(404, "text/plain", "no such page\n")

    def reply(self, status, kind, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):
        pass


def end_with_input():
    """Ends this process when its standard input does: with whoever started it, however that one ended."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser(description="the demo's service")
    parser.add_argument("--port", type=int, default=0, help="port on the loopback address; 0: any")
    parser.add_argument("--device-ms", type=float, default=20, help="what the device takes for a job")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input does")
    options = parser.parse_args()
    if options.until_eof:
        threading.Thread(target=end_with_input, daemon=True).start()
    server = HTTPServer(("127.0.0.1", options.port), Handler)
    server.search = Search(Device(options.device_ms))
    ready = {"event": "ready", "pid": os.getpid(), "port": server.server_port}
    print(json.dumps(ready), flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
