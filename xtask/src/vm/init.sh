#!/bin/dash
# The guest's first process. The disk `files` is a tar of what this run adds to the root.
export PATH=/guest/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
busybox ip link set lo up
mkdir -p /results
ulimit -c 0
tar -x -f "$(disk files)" -C / && /guest/job
echo $? > /results/status
keep-results
echo "guest: powers off"
busybox poweroff -f
