#!/bin/sh
# The first program of the VM in which an image is changed: /change in its initramfs. The image is the disk "image", and
# what to do is a tar on the disk "payload".
export PATH=/usr/bin
mkdir -p /payload /system
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
exec >/dev/ttyS0 2>&1 </dev/null

end() {
	sync
	echo "GRANGE-CHANGE $1"
	sleep 1
	poweroff -f
}
fail() { echo "$1"; end failed; sleep 60; }

while read -r group module; do
	case $group in boot | disk | net | change | fuse) insmod "$module" 2>/dev/null ;; esac
done </etc/grange/modules
disk() {
	for serial in /sys/block/vd*/serial; do
		[ "$(cat "$serial")" != "$1" ] || { block=${serial%/serial}; echo "/dev/${block##*/}"; return; }
	done
}
for wait in 1 2 3 4 5 6 7 8 9 10; do [ -z "$(disk image)" ] || [ -z "$(disk payload)" ] || break; sleep 1; done
image=$(disk image)
[ -n "$image" ] || fail "the image's disk does not appear"
tar -C /payload -xf "$(disk payload)" || fail "what to change cannot be read"

# The root is the file system with a system in it; of several, as subvolumes of btrfs, the first.
found=
for part in "$image"[0-9]* "$image"; do
	[ -b "$part" ] || continue
	for type in ext4 xfs btrfs; do
		mount -t $type "$part" /system 2>/dev/null || continue
		for release in os-release redhat-release debian_version; do # the first is missing before 2012
			[ -e /system/etc/$release ] || [ -L /system/etc/$release ] && found=$part && break 3
		done
		umount /system
	done
done
[ -n "$found" ] || fail "no root file system of ext4, xfs or btrfs is on the image: LVM and encryption are not read"
echo "the root is on ${found##*/}"
for dir in proc sys dev; do mount --bind /$dir /system/$dir || fail "the image has no /$dir"; done
mount --bind /dev/pts /system/dev/pts
mount -t tmpfs run /system/run
mount -t tmpfs tmp /system/tmp
chroot /system mount -a 2>/dev/null # /boot and its like

ip link set lo up
for card in /sys/class/net/e*; do
	ip link set "${card##*/}" up && ip addr add 10.0.2.15/24 dev "${card##*/}" && ip route add default via 10.0.2.2
done
# The image's own may be a link to nowhere; nothing of ours stays in it.
resolv=/system/etc/resolv.conf policy=/system/usr/sbin/policy-rc.d
mv $resolv $resolv.grange 2>/dev/null
echo nameserver 10.0.2.3 >$resolv
[ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy; chmod 755 $policy; ours=yes; }
mkdir /system/tmp/payload
cp /payload/* /system/tmp/payload/
chroot /system sh /tmp/payload/apply.sh
status=$?
[ -z "$ours" ] || rm -f $policy
rm -f $resolv
[ ! -e $resolv.grange ] && [ ! -L $resolv.grange ] || mv $resolv.grange $resolv
[ ! -d /system/etc/selinux ] || [ ! -e /system/etc/selinux/config ] || : >/system/.autorelabel
sync
awk '$2 ~ "^/system(/|$)" {print $2}' /proc/mounts | sort -r | while read -r at; do umount "$at"; done
if grep -q "^$found /system " /proc/mounts; then # something in the image still runs
	mount -o remount,ro "$found" /system || fail "the image's file system cannot be written to its end"
fi
[ $status = 0 ] || fail "the changes ended with status $status"
end done
sleep 60
