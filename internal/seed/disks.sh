# Scratch disks and swap, which the host has formatted. What cannot be mounted is told on the console; the rest goes on.
device() {
	for serial in /sys/block/vd*/serial; do
		if [ "$(cat "$serial" 2>/dev/null)" = "$1" ]; then
			serial=${serial%/serial}
			echo "/dev/${serial##*/}"
			return 0
		fi
	done
	return 1
}
untold() { echo "grange: $1" >/dev/console 2>/dev/null || :; }
volume() { # SERIAL PATH
	if grep -q "^[^ ]* $2 [^ ]* [^ ]*noatime" /proc/mounts; then return 0; fi
	if disk=$(device "$1") && mkdir -p "$2" && mount -o nosuid,nodev,noatime "$disk" "$2"; then
		# Its first time: all may write there.
		if rmdir "$2/lost+found" 2>/dev/null; then chmod 1777 "$2"; fi
	else
		untold "scratch disk $1 is not mounted at $2"
	fi
}
memory() { # PATH BYTES
	if grep -q "^scratch $1 " /proc/mounts; then return 0; fi
	if ! mkdir -p "$1" || ! mount -t tmpfs -o "nosuid,nodev,mode=1777,size=$2" scratch "$1"; then
		untold "$1 is not in memory"
	fi
}
swap() { # SERIAL
	if ! disk=$(device "$1"); then
		untold "there is no disk to swap to"
	elif ! grep -q "^$disk " /proc/swaps; then
		swapon --discard "$disk" 2>/dev/null || swapon "$disk" || untold "no swap on $disk"
	fi
}
