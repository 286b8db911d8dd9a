#!/bin/dash
# The device of the disk with this serial number. They are numbered as they happen to answer, and one may be late.
while :; do
    for disk in /sys/block/nvme*; do
        read -r serial < "$disk/device/serial" && [ "$serial" = "$1" ] && exec echo "/dev/${disk##*/}"
    done
    sleep 0.1
done
