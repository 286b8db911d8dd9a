#!/bin/dash
# The job of `--shell`: the first process has no terminal, so that the shell must make the console its own.
. /guest/environment
echo "test programs: /guest/programs; their job: /guest/tests; the tool: $SPEED_BUMP_TOOL; exit ends the guest"
busybox setsid busybox cttyhack sh -i
