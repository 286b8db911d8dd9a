# SPDX-License-Identifier: GPL-2.0-only
# Random commands, as programs run whose functions they delay.
. "${0%/*}/lib.sh"
load
ln "$W/prey" "$W/link"
echo "#!/bin/sh" > "$W/script"
put enabled 1 > /dev/null
"$W/prey" calls work 1000000000 &
first=$!
"$W/prey" calls rest 1000000000 &
second=$!
if result=$("$BUILD/fuzz" "${FUZZ_COUNT:-12000}" "${FUZZ_SEED:-1}" "$W/prey" "$W/link" "$BUILD/many" "$W/script"); then
	ok "$result"
else
	not_ok "$result"
fi
if is_gone $first || is_gone $second; then
	not_ok "the programs have survived"
else
	ok "the programs have survived"
fi
rmmod speed_bump
is "the module unloads" 0 $?
kill -9 $first $second
ends "the programs can be killed" $first
ends "both" $second
finish
