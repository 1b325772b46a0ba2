#!/bin/sh
# versions.sh: make two versions of one Debian image in three ways, for bench-images.
#
#   versions.sh DIR
#
# DIR/first.raw is a disk of 2 GiB with Debian's release as it was published. upgraded.raw is the same disk after
# `apt-get dist-upgrade` with today's updates, in place. rebuilt.raw is made from scratch with those updates. Each is there
# as .qcow2 as well, as qemu-img converts it. Root, a loop device, and the packages of scripts/install-packages hosts.
set -eu
umask 022
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive
dir=$1
suite=${SUITE:-bookworm} key=/usr/share/keyrings/debian-archive-keyring.gpg size=2G
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
	awk -v s="$suite" '$1 == "Debian" && $3 == s {print $2; exit}')
security=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
	awk -v s="$suite-security" '$1 == "Debian" && $3 == s {print $2; exit}')
[ -n "$mirror" ] && [ -n "$security" ] || { echo "versions.sh: apt knows no Debian $suite with its updates" >&2; exit 1; }
packages=linux-image-cloud-amd64,openssh-server,python3,perl,gcc,g++,make,git,vim,curl,rsync,gdb,openssl
packages=$packages,initramfs-tools,systemd-sysv,bind9-dnsutils,python3-pip,locales

mkdir -p "$dir"
work=$(mktemp -d "$dir/work.XXXXXX")
unmount() {
	mountpoint -q "$work/disk/proc" && umount "$work/disk/proc"
	mountpoint -q "$work/disk" && umount "$work/disk"
	rm -rf --one-file-system "$work"
}
trap unmount EXIT
trap 'exit 1' HUP INT TERM

first="deb [signed-by=$key] $mirror $suite main"
updates="deb [signed-by=$key] $mirror $suite-updates main
deb [signed-by=$key] $security $suite-security main"

tree() { # tree NAME SOURCES: a disk of a fresh installation
	printf '%s\n' "$2" >"$work/sources.list"
	mmdebstrap --quiet --variant=important --include="$packages" --format=tar "$suite" "$work/$1.tar" "$work/sources.list"
	mkdir "$work/$1"
	tar -C "$work/$1" --numeric-owner -xf "$work/$1.tar"
	rm "$work/$1.tar"
	truncate -s "$size" "$work/$1.raw"
	mke2fs -q -t ext4 -F -L root -d "$work/$1" "$work/$1.raw"
	rm -rf --one-file-system "$work/$1"
}

tree first "$first"
cp --sparse=always "$work/first.raw" "$work/upgraded.raw"
mkdir "$work/disk"
mount -o loop "$work/upgraded.raw" "$work/disk"
mount -t proc proc "$work/disk/proc"
printf '%s\n' "$first" "$updates" >"$work/disk/etc/apt/sources.list"
cp --remove-destination /etc/resolv.conf "$work/disk/etc/resolv.conf"
for set in /etc/apt/apt.conf.d/*proxy*; do
	[ ! -e "$set" ] || cp "$set" "$work/disk/etc/apt/apt.conf.d/"
done
chroot "$work/disk" apt-get -q update
chroot "$work/disk" apt-get -q -y dist-upgrade
chroot "$work/disk" sh -c "apt-get clean; rm -rf /var/lib/apt/lists/*"
umount "$work/disk/proc"
# What was deleted is not published, as with every image. ext4 has it free for fstrim once its journal is written.
sync -f "$work/disk"
fstrim "$work/disk"
umount "$work/disk"
tree rebuilt "$first
$updates"
for version in first upgraded rebuilt; do
	qemu-img convert -O qcow2 "$work/$version.raw" "$work/$version.qcow2"
	mv "$work/$version.raw" "$work/$version.qcow2" "$dir/"
done
