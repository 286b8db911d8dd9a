#!/bin/sh
# Makes an empty Debian in a folder, and runs a command in the copy of the working tree there. As root.
#
#   run.sh FOLDER SUITE MIRROR TREE TOOLCHAIN COMMAND…
#
# FOLDER has a list of the tree's files (files) and how the host reaches the network (apt.conf, cargo.toml). What is
# mounted is mounted for the command alone, and is gone with it.
set -eu
folder=$1 suite=$2 mirror=$3 tree=$4 toolchain=$5
shift 5
root=$folder/root
home=$root/root
copy=$home/speed-bump-ebpf

rm -rf --one-file-system "$root"
mkdir -p "$folder/packages"
echo "making an empty Debian $suite in $root" >&2
debootstrap --variant=minbase --cache-dir="$folder/packages" \
    --include=build-essential,ca-certificates,git,python3 "$suite" "$root" "$mirror" > "$folder/debootstrap.log" ||
    { tail -n 20 "$folder/debootstrap.log" >&2; exit 1; }

cp "$folder/apt.conf" "$root/etc/apt/apt.conf.d/90host"
for file in resolv.conf hosts pip.conf ssl/certs/ca-certificates.crt; do
    [ ! -e "/etc/$file" ] || cat "/etc/$file" > "$root/etc/$file"
done
mkdir -p "$home/.cargo"
[ ! -e "$folder/cargo.toml" ] || cp "$folder/cargo.toml" "$home/.cargo/config.toml"

# As cloned, below a home that is its owner's alone.
chmod 700 "$home"
mkdir "$copy" "$root/opt/rust" "$root/host"
tar --create --directory="$tree" --null --files-from="$folder/files" |
    tar --extract --directory="$copy" --no-same-owner

exec unshare --mount --propagation private /bin/sh -euc '
    root=$1 toolchain=$2
    shift 2
    mount --bind "$root" "$root"
    cd "$root"
    mount --bind "$toolchain" opt/rust
    mount --rbind /proc proc
    mount --rbind /sys sys
    mount --rbind /dev dev
    mount -t tmpfs -o mode=755 tmpfs run
    # Not chroot: tests have mounts of their own, which takes a root that is a mount.
    pivot_root . host
    cd /root/speed-bump-ebpf
    umount --lazy /host
    rmdir /host
    git init --quiet
    git add --all
    git -c user.name=bare -c user.email=bare@localhost commit --quiet --message="As it was copied"
    exec "$@"
' sh "$root" "$toolchain" "$@"
