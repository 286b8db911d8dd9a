# SPDX-License-Identifier: GPL-2.0-only
# Runs all tests, or those that are named. For a virtual machine: the module under test may crash the kernel.
#
#	MODULE=speed_bump.ko BUILD=tests/build sh tests/run.sh [basic errors …]
here=${0%/*}
export MODULE BUILD
status=0
[ $# -gt 0 ] || set -- basic errors processes spins listing files fuzz races
for name; do
	echo "# $name"
	sh "$here/${name}_test.sh" || { status=1; echo "# $name failed"; }
done
exit $status
