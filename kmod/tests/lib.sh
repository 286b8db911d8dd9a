# SPDX-License-Identifier: GPL-2.0-only
# What the tests share. They run as root, on a kernel that they may crash, under any POSIX shell; they print
# "ok" and "not ok" lines, and no test depends on how long anything takes: where something must end early, its
# end by itself is hours away.

S=/sys/kernel/speed_bump
MODULE=${MODULE:?the path of speed_bump.ko}
BUILD=${BUILD:?the folder of the programs that make guest builds}
W=${W:-/tmp/speed_bump_test}
DELAY_MAX=10000000000
failed=0

ok() { echo "ok - $*"; }

not_ok()
{
	echo "not ok - $*"
	failed=1
}

skip() { echo "ok - $1 # SKIP because $2"; }

# is NAME WANTED GOT
is()
{
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: wanted '$2', got '$3'"; fi
}

# holds NAME NUMBER OPERATOR NUMBER
holds()
{
	if [ "$2" "$3" "$4" ]; then ok "$1"; else not_ok "$1: not $2 $3 $4"; fi
}

# put FILE TEXT: one write; says "ok" or the error's name.
put() { "$BUILD/put" "$S/$1" "$2"; }

# writes NAME WANTED COMMAND
writes() { is "$1" "$2" "$(put targets "$3")"; }

# field TARGET KEY: a value of the target's line.
field()
{
	grep -F "$1 " "$S/targets_list" | tr ' ' '\n' | sed -n "s/^$2=//p"
}

stat_of() { sed -n "s/^$1: //p" "$S/stats"; }

# until_true COMMAND...: waits for it, two minutes at the longest.
until_true()
{
	rounds=0
	until "$@"; do
		rounds=$((rounds + 1))
		if [ "$rounds" -gt 1200 ]; then
			not_ok "still waiting for: $*"
			return 1
		fi
		sleep 0.1
	done
}

is_spinning() { [ "$(field "$1" hits)" != 0 ]; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }
is_unloaded() { [ ! -d "$S" ]; }

# ends NAME PID: the process is gone soon. It is a child of this shell.
ends()
{
	wait "$2" 2>/dev/null
	if is_gone "$2"; then ok "$1"; else not_ok "$1"; fi
}

load()
{
	mkdir -p "$W"
	cp "$BUILD/prey" "$W/prey"
	insmod "$MODULE" || not_ok "the module loads"
}

# The module leaves nothing behind, neither itself nor a complaint of the kernel.
finish()
{
	if [ -d "$S" ]; then
		rmmod speed_bump || not_ok "the module unloads"
	fi
	rm -rf "$W"
	if dmesg | grep -E 'WARNING|BUG|Oops|stall|blocked for more|general protection|refcount|leaked'; then
		not_ok "the kernel's log is clean"
	else
		ok "the kernel's log is clean"
	fi
	exit "$failed"
}
