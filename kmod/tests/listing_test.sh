# SPDX-License-Identifier: GPL-2.0-only
# The listing is whole, however long it is and however it is read.
. "${0%/*}/lib.sh"
load
pad() { awk -v n="$1" 'BEGIN { while (n--) printf "x" }'; }
long=$W/$(pad $((250 - ${#W})))
mkdir -p "$long"
many=$long/m
cp "$BUILD/many" "$many"
symbol() { printf 'function%02d%s' "$1" "$(pad 117)"; }

put enabled 1 > /dev/null
i=0
while [ $i -lt 64 ]; do
	put targets "+$many:$(symbol $i) $i" > /dev/null
	i=$((i + 1))
done
is "64 targets" 64 "$(stat_of targets)"
holds "make a listing of several pages" "$(wc -c < $S/targets_list)" -gt 16384

# is_whole FILE: each target once, in the order that they were added in, each line sound.
is_whole()
{
	awk -v path="$many" '
		BEGIN { for (i = 0; i < 117; i++) pad = pad "x" }
		{
			name = sprintf("%s:function%02d%s", path, NR - 1, pad)
			if ($1 != name || NF != 6 || $2 != "delay_ns=" NR - 1 || $3 !~ /^hits=[0-9]+$/ ||
			    $4 !~ /^injected_ns=[0-9]+$/ || $5 !~ /^interrupted=[0-9]+$/ || $6 != "file=current")
				bad++
		}
		END { print NR, bad + 0 }' "$1"
}

is "read at once" "64 0" "$(is_whole $S/targets_list)"
cat $S/targets_list > "$W/first"
cat $S/targets_list > "$W/second"
if cmp "$W/first" "$W/second"; then ok "reads are alike"; else not_ok "reads are alike"; fi
dd if=$S/targets_list of="$W/pieces" bs=100 2> /dev/null
if cmp "$W/first" "$W/pieces"; then ok "read in pieces"; else not_ok "read in pieces"; fi

# The counts grow in length while it is read.
"$many" &
round=0
while [ $round -lt 4 ]; do
	dd if=$S/targets_list of="$W/growing" bs=37 2> /dev/null
	is "read in pieces as counts grow" "64 0" "$(is_whole "$W/growing")"
	round=$((round + 1))
done
wait
is "each function was hit each time" "$((64 * 200))" "$(stat_of total_hits)"

# Readers that do not read on, more of them than are remembered.
i=0
while [ $i -lt 40 ]; do
	head -c 10 $S/targets_list > /dev/null
	i=$((i + 1))
done
is "after readers that left early" "64 0" "$(is_whole $S/targets_list)"
exec 5< $S/targets_list
head -c 10 <&5 > /dev/null
put targets "-*" > /dev/null
is "a reader that has begun gets the rest of its text" 63 "$(tail -n +2 <&5 | wc -l)"
exec 5<&-
is "a new reader does not" "" "$(cat $S/targets_list)"
finish
