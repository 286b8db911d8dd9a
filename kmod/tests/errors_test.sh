# SPDX-License-Identifier: GPL-2.0-only
# Every error, as README.md's table has it.
. "${0%/*}/lib.sh"
load
T=$W/prey
name_of() { awk -v n="$1" 'BEGIN { while (n--) printf "a" }'; }

# EINVAL: not a command.
writes "an empty line" EINVAL "
"
writes "one character" EINVAL "+"
writes "no verb" EINVAL "$T:work"
writes "an unknown verb" EINVAL "*$T:work"
writes "no colon" EINVAL "+$T"
writes "no symbol" EINVAL "+$T:"
writes "no path" EINVAL "+:work"
writes "a relative path" EINVAL "+prey:work"
writes "a double space" EINVAL "+$T:work  5"
writes "a trailing space" EINVAL "+$T:work "
writes "a leading space" EINVAL "+ $T:work"
writes "a tab" EINVAL "+$T:work	5"
writes "two lines" EINVAL "+$T:work
+$T:rest"
writes "two newlines" EINVAL "+$T:work

"
writes "a carriage return" EINVAL "$(printf '+%s:work\r' "$T")"
writes "no number" EINVAL "+$T:work soon"
writes "a sign" EINVAL "+$T:work -1"
writes "a unit" EINVAL "+$T:work 1ms"
writes "a hexadecimal number" EINVAL "+$T:work 0x10"
writes "two delays" EINVAL "+$T:work 1 2"
writes "the process before the delay" EINVAL "+$T:work pid=1 5"
writes "two processes" EINVAL "+$T:work pid=1 pid=1"
writes "process 0" EINVAL "+$T:work pid=0"
writes "an empty process" EINVAL "+$T:work pid="
writes "a negative process" EINVAL "+$T:work pid=-1"
writes "words behind a removal" EINVAL "-$T:work 5"
writes "words behind the removal of all" EINVAL "-* $T:work"
writes "a process in an update" EINVAL "=$T:work 5 pid=1"
writes "a line of 513 characters" EINVAL "+$T:work $(name_of $((505 - ${#T})))"
is "enabled: neither 0 nor 1" EINVAL "$(put enabled 2)"
is "enabled: a word" EINVAL "$(put enabled yes)"
is "the default delay: a word" EINVAL "$(put default_delay_ns soon)"
is "a command that is cut in two" EINVAL "$(put targets "$T:work 5")"

# ENAMETOOLONG
mkdir -p "$W/$(name_of 200)"
deep=$W/$(name_of 200)/$(name_of $((256 - 202 - ${#W})))
is "the test's own path" 256 "${#deep}"
writes "a path of 256 bytes" ENAMETOOLONG "+$deep:work"
writes "its removal" ENAMETOOLONG "-$deep:work"
cp "$T" "${deep%a}"
writes "a path of 255 bytes" ok "+${deep%a}:work"
writes "a symbol of 128 bytes" ENAMETOOLONG "+$T:$(name_of 128)"
writes "a symbol of 127 bytes is looked for" ENOENT "+$T:$(name_of 127)"
writes "the end of that" ok "-*"

# ERANGE
writes "a delay of over ten seconds" ERANGE "+$T:work 10000000001"
writes "a delay that no 64 bits hold" ERANGE "+$T:work 99999999999999999999999999"
writes "a process that no 32 bits hold" ERANGE "+$T:work pid=4294967297"
is "a default delay of over ten seconds" ERANGE "$(put default_delay_ns 10000000001)"
writes "ten seconds" ok "+$T:work $DELAY_MAX"
writes "an update to over ten seconds" ERANGE "=$T:work 10000000001"
is "leaves the delay" $DELAY_MAX "$(field "$T:work" delay_ns)"
is "ten seconds by default" ok "$(put default_delay_ns $DELAY_MAX)"

# EEXIST
writes "the same target" EEXIST "+$T:work 5"
writes "the same with another process" EEXIST "+$T:work pid=$$"
ln "$T" "$W/link"
ln -s "$T" "$W/symlink"
writes "a hard link to it" EEXIST "+$W/link:work"
writes "a symbolic link to it" EEXIST "+$W/symlink:work"
writes "another spelling of its path" EEXIST "+$W/../${W##*/}/prey:work"
writes "the other function of the link" ok "+$W/link:rest"
writes "is removed by the name that it was added by" ENOENT "-$T:rest"
writes "which it is here" ok "-$W/link:rest"

# ENOENT
writes "no such file" ENOENT "+$W/none:work"
writes "no such symbol" ENOENT "+$T:wor"
writes "the end of a symbol" ENOENT "+$T:ork"
writes "a variable" ENOENT "+$T:some_data"
writes "a constant" ENOENT "+$T:some_constant"
writes "an indirect function" ENOENT "+$T:chosen"
writes "an imported function" ENOENT "+$BUILD/prey-dynamic:pthread_create"
writes "a local function of a stripped file" ENOENT "+$BUILD/prey-dynamic:local"
writes "a file without sections" ENOENT "+$BUILD/bare:work"
writes "an update of no target" ENOENT "=$T:rest 5"
writes "a removal of no target" ENOENT "-$T:rest"

# ENOEXEC
writes "a folder" ENOEXEC "+$W:work"
writes "a device" ENOEXEC "+/dev/null:work"
mkfifo "$W/pipe"
writes "a pipe" ENOEXEC "+$W/pipe:work"
echo "#!/bin/sh" > "$W/script"
writes "a script" ENOEXEC "+$W/script:work"
: > "$W/empty"
writes "an empty file" ENOEXEC "+$W/empty:work"
head -c 200 "$T" > "$W/cut"
writes "a file that is cut off" ENOEXEC "+$W/cut:work"
{ head -c 18 "$T"; printf '\050'; tail -c +20 "$T"; } > "$W/foreign"
writes "another machine's file" ENOEXEC "+$W/foreign:work"
{ head -c 4 "$T"; printf '\001'; tail -c +6 "$T"; } > "$W/narrow"
writes "a 32-bit file" ENOEXEC "+$W/narrow:work"

# ENOTDIR, ELOOP: what the path's lookup says.
writes "a file where a folder should be" ENOTDIR "+$T/x:work"
ln -s loop "$W/loop"
writes "a link to itself" ELOOP "+$W/loop:work"

# ESRCH
sleep 0 &
gone=$!
wait $gone
writes "a process that is gone" ESRCH "+$T:rest pid=$gone"
"$T" threads work 1 wait < "$W/pipe" &
threads=$!
exec 4> "$W/pipe"
writes "its process, which has not started its threads" ok "+$T:rest pid=$threads"
writes "without it" ok "-$T:rest"
exec 4>&-
wait $threads

# EBUSY
cp "$T" "$W/written"
exec 3>> "$W/written"
writes "a file that is open for writing" EBUSY "+$W/written:work"
exec 3>&-
writes "once it is closed" ok "+$W/written:work"

tracing=/sys/kernel/tracing
if [ -w $tracing/uprobe_events ]; then
	writes "without what has been there" ok "-$T:work"
	echo "p:speed_bump_test/work $T:$("$T" place work 1)" >> $tracing/uprobe_events
	echo 1 > $tracing/events/speed_bump_test/work/enable
	writes "where another tracer has a semaphore" EBUSY "+$T:work"
	echo 0 > $tracing/events/speed_bump_test/work/enable
	echo "-:speed_bump_test/work" >> $tracing/uprobe_events
	writes "once it has not" ok "+$T:work"
else
	skip "where another tracer has a semaphore" "there is no tracefs"
fi

# EOPNOTSUPP
if [ "$(uname -m)" = x86_64 ]; then
	"$T" calls work 1 wait < "$W/pipe" &
	prey=$!
	exec 4> "$W/pipe"
	writes "an instruction that cannot be stepped over" EOPNOTSUPP "+$T:locked"
	exec 4>&-
	wait $prey
else
	skip "an instruction that cannot be stepped over" "the test has one for x86-64 only"
fi

# EACCES: the files are root's.
is "who may read" "-rw-r--r-- -rw-r--r-- -r--r--r-- --w------- -r--r--r--" \
	"$(cd $S && ls -ld default_delay_ns enabled stats targets targets_list | cut -c1-10 | tr '\n' ' ' | sed 's/ $//')"

# ENOSPC
writes "the end of that" ok "-*"
i=0
while [ $i -lt 64 ]; do
	symbol=$(printf 'function%02d' $i)$(awk 'BEGIN { for (i = 0; i < 117; i++) printf "x" }')
	result=$(put targets "+$BUILD/many:$symbol")
	[ "$result" = ok ] || not_ok "target $i: $result"
	i=$((i + 1))
done
is "64 targets" 64 "$(stat_of targets)"
symbol=$(printf 'function64')$(awk 'BEGIN { for (i = 0; i < 117; i++) printf "x" }')
writes "the 65th" ENOSPC "+$BUILD/many:$symbol"
writes "a known one is still known" EEXIST "+$BUILD/many:function00$(awk 'BEGIN { for (i = 0; i < 117; i++) printf "x" }')"
writes "room for it" ok "-$BUILD/many:function00$(awk 'BEGIN { for (i = 0; i < 117; i++) printf "x" }')"
writes "and there it is" ok "+$BUILD/many:$symbol"
writes "the end" ok "-*"
is "of all" 0 "$(stat_of targets)"
finish
