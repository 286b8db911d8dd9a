# SPDX-License-Identifier: GPL-2.0-only
# Files of all kinds, and what becomes of them.
. "${0%/*}/lib.sh"
load
put enabled 1 > /dev/null

# hits NAME FILE FUNCTION: the function is found, and hit.
hits()
{
	writes "$1 is found" ok "+$2:$3 0"
	"$2" calls "$3" 3
	is "$1 is hit" 3 "$(field "$2:$3" hits)"
	writes "$1 is removed" ok "-$2:$3"
}

hits "a function of a static program" "$W/prey" work
hits "a local function" "$W/prey" local
if "$BUILD/prey-dynamic" calls work 1; then
	hits "a function that only .dynsym has" "$BUILD/prey-dynamic" work
else
	skip "a function that only .dynsym has" "no dynamic program runs here"
fi
hits "the last of 200,000 functions" "$BUILD/prey-large" large_199999

mkdir "$W/a:b"
cp "$W/prey" "$W/a:b/prey"
hits "a path with a colon" "$W/a:b/prey" work

# What becomes of a file.
T=$W/changing:work
state() { field "$T" file; }
cp "$W/prey" "$W/changing"
put targets "+$T 0" > /dev/null
is "as it was" current "$(state)"
mv "$W/changing" "$W/moved"
is "moved away" missing "$(state)"
"$W/moved" calls work 2
is "its inode is still hit" 2 "$(field "$T" hits)"
cp "$W/prey" "$W/changing"
is "another in its place" replaced "$(state)"
"$W/changing" calls work 2
is "which is not hit" 2 "$(field "$T" hits)"
writes "it is still the name's target" EEXIST "+$T"
mv "$W/moved" "$W/changing"
is "back again" current "$(state)"
echo >> "$W/changing"
is "written to" modified "$(state)"
rm "$W/changing"
is "removed" missing "$(state)"
writes "the target is removed by its name" ok "-$T"
ln -s "$W/prey" "$W/changing"
put targets "+$T 0" > /dev/null
is "through a link" current "$(state)"
cp "$W/prey" "$W/other"
ln -sf "$W/other" "$W/changing"
is "the link leads elsewhere" replaced "$(state)"
put targets "-*" > /dev/null

# overlayfs: the breakpoint belongs into the real file.
mkdir "$W/layers"
mount -t tmpfs layers "$W/layers"
mkdir "$W/layers/lower" "$W/layers/upper" "$W/layers/work" "$W/layers/merged"
cp "$W/prey" "$W/layers/lower/low"
cd "$W/layers"
if mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged; then
	cp "$W/prey" merged/up
	hits "a function of overlayfs, lower" "$W/layers/merged/low" work
	hits "a function of overlayfs, upper" "$W/layers/merged/up" work
	T=$W/layers/merged/low:work
	put targets "+$T 0" > /dev/null
	writes "the lower file is the same" EEXIST "+$W/layers/lower/low:work"
	"$W/layers/lower/low" calls work 2
	is "and hit" 2 "$(field "$T" hits)"
	is "as it was" current "$(state)"
	echo >> merged/low
	is "copied up, it is another file" replaced "$(state)"
	put targets "-*" > /dev/null
	cd /
	until_true umount "$W/layers/merged"
	ok "a removed target keeps nothing mounted"
else
	skip "overlayfs" "this kernel has none"
fi
cd /
until_true umount "$W/layers"
finish
