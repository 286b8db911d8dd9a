# SPDX-License-Identifier: GPL-2.0-only
# The main path: a target, its hits, its delay, and its end.
. "${0%/*}/lib.sh"
load

is "disabled after load" 0 "$(cat $S/enabled)"
is "no target after load" "" "$(cat $S/targets_list)"
is "the default delay is a millisecond" 1000000 "$(cat $S/default_delay_ns)"

writes "a target is added" ok "+$W/prey:work 100000"
is "the listing has upstream's fields first, then ours" \
	"$W/prey:work delay_ns=100000 hits=0 injected_ns=0 interrupted=0 file=current" "$(cat $S/targets_list)"
"$W/prey" calls work 7
is "nothing is hit while disabled" 0 "$(field "$W/prey:work" hits)"

is "enabled" ok "$(put enabled 1)"
is "it reads back" 1 "$(cat $S/enabled)"
"$W/prey" calls work 50
"$W/prey" calls rest 20
is "each call is a hit, and no other's" 50 "$(field "$W/prey:work" hits)"
injected=$(field "$W/prey:work" injected_ns)
holds "no delay is shorter than requested" "$injected" -ge $((50 * 100000))
is "no spin was cut short" 0 "$(field "$W/prey:work" interrupted)"

writes "another delay" ok "=$W/prey:work 0"
"$W/prey" calls work 10
is "with no delay, calls are counted" 60 "$(field "$W/prey:work" hits)"
is "and nothing is injected" "$injected" "$(field "$W/prey:work" injected_ns)"

is "another default" ok "$(put default_delay_ns 20000
)"
writes "back to the default" ok "=$W/prey:work"
is "which is the new one" 20000 "$(field "$W/prey:work" delay_ns)"
writes "a target with the default delay" ok "+$W/prey:rest
"
is "which is the new one too" 20000 "$(field "$W/prey:rest" delay_ns)"
"$W/prey" calls rest 5

writes "a specific removal" ok "-$W/prey:work"
is "leaves the other's target, and its counts" 5 "$(field "$W/prey:rest" hits)"
is "one line is left" 1 "$(wc -l < $S/targets_list)"
is "the totals have the removed target's hits" 65 "$(stat_of total_hits)"
holds "and its time" "$(stat_of total_delay_ns)" -ge $((50 * 100000 + 5 * 20000))
is "the number of targets" 1 "$(stat_of targets)"
writes "a removed target can be added again" ok "+$W/prey:work"
"$W/prey" calls work 3
is "and counts from 0" 3 "$(field "$W/prey:work" hits)"
writes "the removal of all" ok "-*"
is "leaves none" "" "$(cat $S/targets_list)"
is "the totals stay" 68 "$(stat_of total_hits)"
"$W/prey" calls work 3
is "nothing is hit any more" 68 "$(stat_of total_hits)"
finish
