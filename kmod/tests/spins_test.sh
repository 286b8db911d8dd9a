# SPDX-License-Identifier: GPL-2.0-only
# Spins that end early. Each prey would spin for hours: that it ends at all shows that it need not.
. "${0%/*}/lib.sh"
load
put enabled 1 > /dev/null
T=$W/prey:work

begin()
{
	put targets "+$T $DELAY_MAX" > /dev/null
	"$W/prey" "$@" &
	prey=$!
	until_true is_spinning "$T"
}

# is_cut NAME: one spin has ended before its time, and what it took has been counted.
is_cut()
{
	is "$1" 1 "$(field "$T" interrupted)"
	holds "$1: less than its delay was injected" "$(field "$T" injected_ns)" -lt \
		$(($(field "$T" hits) * DELAY_MAX))
}

begin calls work 1000
kill -9 $prey
ends "a killed process is gone" $prey
is_cut "in its spin"
put targets "-$T" > /dev/null

begin calls work 1000
kill $prey
ends "a terminated process is gone" $prey
is_cut "in its spin"
put targets "-$T" > /dev/null

mkfifo "$W/go"
put targets "+$T $DELAY_MAX" > /dev/null
"$W/prey" leaves work 1000 < "$W/go" &
prey=$!
exec 4> "$W/go"
until_true is_spinning "$T"
exec 4>&-
ends "a process that exits in another thread is gone" $prey
is_cut "in its spin"
put targets "-$T" > /dev/null

begin calls work 1000
hits=$(stat_of total_hits)
writes "a removal during a spin" ok "-$T"
ends "the process runs on, at full speed" $prey
is "with no further hit" "$hits" "$(stat_of total_hits)"

begin threads work 1000
writes "a removal of all during eight spins" ok "-*"
ends "the process runs on" $prey

begin calls work 1000
is "disabled during a spin" ok "$(put enabled 0)"
ends "the process runs on" $prey
is_cut "the spin"
put targets "-$T" > /dev/null
put enabled 1 > /dev/null

# One target's removal waits for no other's spins, and does not end them.
begin calls work 1000
writes "another target" ok "+$W/prey:rest"
writes "is removed while the first one spins" ok "-$W/prey:rest"
writes "and added" ok "+$W/prey:rest"
is "which spins on" 0 "$(field "$T" interrupted)"
writes "until it is removed" ok "-$T"
ends "the process runs on" $prey
put targets "-*" > /dev/null

begin threads work 1000
rmmod speed_bump
is "the module unloads during spins" 0 $?
ends "the process runs on" $prey
insmod "$MODULE" || not_ok "the module loads again"
is "with nothing kept" "0 0" "$(stat_of targets) $(stat_of total_hits)"

# Over and over, with handlers in flight.
"$W/prey" threads work 1000000000 &
prey=$!
i=0
while [ $i -lt 15 ]; do
	put enabled 1 > /dev/null
	put targets "+$T 1000" > /dev/null
	until_true is_spinning "$T"
	[ $((i % 3)) = 0 ] && put targets "=$T $DELAY_MAX" > /dev/null
	[ $((i % 3)) = 1 ] && put targets "-$T" > /dev/null
	rmmod speed_bump || not_ok "round $i: rmmod"
	insmod "$MODULE" || not_ok "round $i: insmod"
	i=$((i + 1))
done
ok "loaded and unloaded under load"
if is_gone $prey; then not_ok "the process has survived"; else ok "the process has survived"; fi
kill -9 $prey
ends "the process is gone" $prey
finish
