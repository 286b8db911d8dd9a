#!/bin/dash
# The job that runs tests: a line each of /guest/programs has the name of a file of them, a limit in seconds, and the
# command.
. /guest/environment
# The emulated processors share one: tests that run at the same time starve each other.
export RUST_TEST_THREADS=1
[ ! -f /guest/overlay.ko ] || busybox insmod /guest/overlay.ko
for command in doctor calibrate; do
    "$SPEED_BUMP_TOOL" $command > /results/$command.txt 2>&1
done
while read -r name limit command; do
    begin=$(date +%s)
    export SPEED_BUMP_SKIPS="/results/$name.skips"
    # Without quotes: the command is words.
    timeout -k 10 "$limit" $command > "/results/$name.out" 2>&1 < /dev/null
    status=$?
    echo $status > "/results/$name.status"
    # What fails by a fault of the kernel, it may have written there.
    dmesg > /results/dmesg.txt
    keep-results
    echo "guest: $name: $(grep '^test result: ' "/results/$name.out" || echo "exit code $status"), $(($(date +%s) - begin)) s in all"
done < /guest/programs
