# SPDX-License-Identifier: GPL-2.0-only
# Everything at once: commands, readers, programs that come and go, and the module, which goes and comes.
. "${0%/*}/lib.sh"
load
ROUNDS=${ROUNDS:-60}

# repeat COMMAND...: over and over, in the background, whatever comes of it.
repeat()
{
	(
		i=0
		while [ $i -lt "$ROUNDS" ]; do
			"$@" > /dev/null 2>&1
			i=$((i + 1))
		done
	) &
	repeats="$repeats $!"
}

add_and_remove()
{
	put targets "+$W/prey:work $DELAY_MAX"
	put targets "-$W/prey:work"
}

change()
{
	put targets "+$W/prey:rest 1000"
	put targets "=$W/prey:rest $DELAY_MAX"
	put targets "=$W/prey:rest"
	put targets "-*"
}

toggle()
{
	put enabled 1
	put enabled 0
	put enabled 1
}

look() { cat $S/targets_list $S/stats; }
come_and_go() { timeout 1 "$W/prey" descendants work 3; }

"$W/prey" threads work 1000000000 &
first=$!
"$W/prey" threads rest 1000000000 &
second=$!
repeats=
repeat add_and_remove
repeat change
repeat toggle
repeat look
repeat come_and_go
round=0
while [ $round -lt 12 ]; do
	sleep 0.2
	rmmod speed_bump || not_ok "round $round: rmmod"
	insmod "$MODULE" || not_ok "round $round: insmod"
	round=$((round + 1))
done
ok "the module was loaded and unloaded $round times"
# shellcheck disable=SC2086 # a list
wait $repeats
if is_gone $first || is_gone $second; then
	not_ok "the programs have survived"
else
	ok "the programs have survived"
fi
kill -9 $first $second
ends "the programs can be killed" $first
ends "both" $second
put targets "-*" > /dev/null
is "no target is left" "" "$(cat $S/targets_list)"
finish
