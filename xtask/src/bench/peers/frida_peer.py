"""Slows a native function by Frida's Interceptor, with a CModule that spins: `frida_peer.py PID ADDRESS`.

Takes `set DELAY_NS FREQUENCY CLOSED` and `off` on standard input, and speaks as caller.py does.
"""

import json
import os
import sys

import frida

MODULE = r"""
#include <gum/guminterceptor.h>

typedef struct { volatile guint64 delay_ns, frequency, closed, calls; } Dose;
typedef struct { gint64 seconds, ns; } Time;
extern Dose dose;
extern int clock_gettime(int clock, Time *time);

static guint64 now(void)
{
  Time time;
  clock_gettime(1, &time);
  return time.seconds * 1000000000 + time.ns;
}

void onEnter(GumInvocationContext *context)
{
  guint64 end;
  dose.calls++;
  if (dose.closed || (dose.frequency > 1 && dose.calls % dose.frequency != 0))
    return;
  if (dose.delay_ns == 0)
    return;
  end = now() + dose.delay_ns;
  while (now() < end)
    ;
}
"""

SCRIPT = """
const dose = Memory.alloc(32);
const clock = Module.getGlobalExportByName("clock_gettime");
const module = new CModule(%s, { dose, clock_gettime: clock });
const listener = Interceptor.attach(ptr("%s"), module);
Interceptor.flush();
rpc.exports = {
  set(delay, frequency, closed) {
    dose.writeU64(delay); dose.add(8).writeU64(frequency); dose.add(16).writeU64(closed);
  },
  calls() { return dose.add(24).readU64().toNumber(); },
};
"""


def say(**event):
    os.write(1, (json.dumps(event) + "\n").encode())


def main():
    pid, address = sys.argv[1:]
    session = frida.get_local_device().attach(int(pid))
    script = session.create_script(SCRIPT % (json.dumps(MODULE), address))
    script.load()
    calls = script.exports_sync
    say(event="ready", program="frida_peer.py", pid=os.getpid(), frida=frida.__version__)
    for line in iter(sys.stdin.readline, ""):
        command, *arguments = line.split()
        if command == "set":
            calls.set(*map(int, arguments))
        elif command == "off":
            say(event="counted", calls=calls.calls())
            script.unload()
            session.detach()
        say(event="done", command=command)
        if command in ("off", "quit"):
            break


if __name__ == "__main__":
    main()
