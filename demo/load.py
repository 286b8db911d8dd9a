"""The demo's load: asks the service for one page after the other over one connection, and prints the throughput.

    load.py --port N [--seconds N] [--every S]

A line every S seconds: {"event":"throughput","requests":…,"seconds":…,"per_second":…,"median_ms":…}; at the end one
with "event":"total" over the whole run. Standard library alone, CPython 3.8 and newer.
"""

import argparse
import http.client
import json
import statistics
import time


def ask(connection):
    connection.request("GET", "/search")
    response = connection.getresponse()
    response.read()
    if response.status != 200:
        raise SystemExit("the service answered %d" % response.status)


def say(event, times, seconds):
    line = {
        "event": event,
        "requests": len(times),
        "seconds": round(seconds, 3),
        "per_second": round(len(times) / seconds, 2),
        "median_ms": round(statistics.median(times) * 1000, 3) if times else None,
    }
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description="the demo's load")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10, help="how long to run")
    parser.add_argument("--every", type=float, default=1, help="seconds between lines")
    options = parser.parse_args()
    connection = http.client.HTTPConnection("127.0.0.1", options.port, timeout=60)
    start = last = time.monotonic()
    everything, recent = [], []
    while last - start < options.seconds or not everything:
        before = time.monotonic()
        ask(connection)
        now = time.monotonic()
        recent.append(now - before)
        everything.append(now - before)
        if now - last >= options.every:
            say("throughput", recent, now - last)
            last, recent = now, []
        elif now - start >= options.seconds:
            break
    say("total", everything, time.monotonic() - start)


if __name__ == "__main__":
    try:
        main()
    except (OSError, http.client.HTTPException) as error:
        raise SystemExit("load.py: the service is gone: %s" % error)
    except KeyboardInterrupt:
        raise SystemExit(130)
