# SPDX-License-Identifier: GPL-2.0-only
# The filter by process.
. "${0%/*}/lib.sh"
load
put enabled 1 > /dev/null
mkfifo "$W/go"
T=$W/prey:work

# start ARGUMENTS...: a prey that waits for "go".
start()
{
	"$W/prey" "$@" wait < "$W/go" &
	prey=$!
	exec 4> "$W/go"
}

go()
{
	echo >&4
	exec 4>&-
	wait "$prey"
}

start calls work 5
writes "a target for one process" ok "+$T 1000 pid=$prey"
is "the listing names it" "$prey" "$(field "$T" pid)"
is "where upstream has it" "$T delay_ns=1000 hits=0 pid=$prey injected_ns=0 interrupted=0 file=current" \
	"$(cat $S/targets_list)"
"$W/prey" calls work 3
is "another process is not hit" 0 "$(field "$T" hits)"
go
is "the process is" 5 "$(field "$T" hits)"
"$W/prey" calls work 3
is "once it is gone, nothing is" 5 "$(field "$T" hits)"
writes "the end" ok "-$T"

start descendants work 4
writes "a target for a family" ok "+$T 1000 pid=$prey"
go
is "process, child and grandchild are hit" 12 "$(field "$T" hits)"
writes "the end" ok "-$T"

start threads work 4
writes "a target for threads" ok "+$T 1000 pid=$prey"
go
is "each thread is hit" 32 "$(field "$T" hits)"
writes "the end" ok "-$T"

writes "a target for this shell" ok "+$T 1000 pid=$$"
"$W/prey" calls work 2
(sh -c "'$W/prey' calls work 2; true")
is "what it starts is hit" 4 "$(field "$T" hits)"
writes "the end" ok "-$T"

writes "a target for PID 1" ok "+$T 1000 pid=1"
"$W/prey" calls work 2
is "is for all that descend from it" 2 "$(field "$T" hits)"
writes "the end" ok "-$T"

# Descends from no PID 1: from kthreadd, and PID 0 above it.
modprobe=$(cat /proc/sys/kernel/modprobe)
echo "$W/prey" > /proc/sys/kernel/modprobe
writes "a target for every process" ok "+$T 0"
mount -t nosuchfs none "$W" 2> /dev/null
if [ "$(field "$T" hits)" = 0 ]; then
	skip "a process that the kernel starts" "this kernel starts none"
else
	ok "the kernel's own process is hit"
	writes "without it" ok "-$T"
	writes "a target for this shell" ok "+$T $DELAY_MAX pid=$$"
	mount -t nosuchfs none "$W" 2> /dev/null
	is "the walk from the kernel's process ends, and does not hit" 0 "$(field "$T" hits)"
fi
echo "$modprobe" > /proc/sys/kernel/modprobe
writes "the end" ok "-*"
finish
