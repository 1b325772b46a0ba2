#!/bin/bash
# Makes a Debian disk of packages. The environment says which: OUT, SUITE, SOURCES (lines), PACKAGES, ARCHITECTURE,
# FIRMWARE, SIZE (bytes), CLOUD_INIT, PAYLOAD (a tar with apply.sh and more), PARAMETERS (of the kernel), WORK (an empty
# directory), and SOURCE_DATE_EPOCH; with the same packages they make the same bytes.
#
# Needs no loop device: root, or user namespaces. Installs nothing here; says what is missing. The disk has a FAT
# partition with SYSLINUX or systemd-boot, kernel and initramfs, and an ext4 root.
set -eu
umask 022
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C TZ=UTC0 MTOOLS_SKIP_CHECK=1 E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH
work=$WORK mib=$((1024 * 1024)) boot=96 id=67726e67-0000-4000-8000
cd "$work"

die() { echo "$*" >&2; exit 1; }
say() { echo "$*"; }

missing=
while read -r file package; do
	[ -z "$file" ] || [ -e "$file" ] || missing="$missing $package"
done <<END
/usr/bin/mmdebstrap mmdebstrap
/usr/bin/fakeroot fakeroot
/usr/bin/qemu-img qemu-utils
/usr/bin/mcopy mtools
/usr/sbin/mkfs.vfat dosfstools
/usr/sbin/sfdisk fdisk
/usr/sbin/mke2fs e2fsprogs
/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
$([ "$ARCHITECTURE" = amd64 ] || echo /usr/bin/arch-test arch-test)
$([ "$FIRMWARE" = efi ] || printf '%s\n' '/usr/bin/syslinux syslinux' '/usr/lib/syslinux/mbr/mbr.bin syslinux-common')
END
[ -z "$missing" ] || die "missing packages; as root: apt-get install --no-install-recommends$missing"

# Debian's own archives only, where the recipe names none: other sources of this machine are its own business.
if [ -n "$SOURCES" ]; then
	printf '%s\n' "$SOURCES" >sources.list
else
	apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk '$1 == "Debian" {print "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", $2, $3, $4}' |
		sort -u >sources.list
fi
[ -s sources.list ] || die "apt knows no Debian archive; run apt-get update"
suite=${SUITE:-$(. /etc/os-release && echo "${VERSION_CODENAME:?}")}

# What the image is told before its first boot. mmdebstrap copies it in; the packages' own files stay as they are.
mkdir -p files/etc/cloud/cloud.cfg.d files/etc/initramfs-tools/conf.d files/etc/systemd/network
cat >files/etc/fstab <<'END'
LABEL=root / ext4 rw,relatime 0 0
END
# Only what this kind of machine needs to find its root.
cat >files/etc/initramfs-tools/conf.d/grange <<'END'
MODULES=list
COMPRESS=lz4
FSTYPE=ext4
RESUME=none
END
printf '%s\n' virtio_pci virtio_blk virtio_scsi sd_mod ata_piix ahci ext4 >modules
packages="initramfs-tools,lz4,systemd-sysv,dbus,udev,iproute2,ca-certificates,kmod,bash,procps,util-linux"
case "$ARCHITECTURE $PACKAGES" in
*' linux-image-'*) ;; # one kernel: an image has no choice at its boot
i386*) packages=$packages,linux-image-686 ;;
*) packages=$packages,linux-image-cloud-amd64 ;;
esac
[ "$FIRMWARE" != efi ] || packages=$packages,systemd-boot-efi
if [ "$CLOUD_INIT" = true ]; then
	packages=$packages,cloud-init
	cat >files/etc/cloud/cloud.cfg.d/95_grange.cfg <<'END'
# The seed CD is the only source of first-boot data: nothing is asked of the network. Modules that no VM of a farm needs
# are left out, because each costs time at every first boot. The network is as the seed says, or by DHCP where it says nothing.
datasource_list: [NoCloud]
manage_etc_hosts: true
disable_root: false
cloud_init_modules: [bootcmd, write_files, set_hostname, update_hostname, update_etc_hosts, users_groups, ssh]
cloud_config_modules: [mounts, runcmd]
cloud_final_modules: [scripts_user, final_message]
END
	# Host keys are made in each VM, never shared through the image; without a server there is nothing to make.
	case " $PACKAGES " in
	*" openssh-server "* | *" openssh-server="*) echo 'ssh_genkeytypes: [ed25519]' ;;
	*) printf '%s\n' 'ssh_genkeytypes: []' 'ssh_deletekeys: false' ;;
	esac >>files/etc/cloud/cloud.cfg.d/95_grange.cfg
else
	rm -r files/etc/cloud
	printf '%s\n' '[Match]' 'Name=en* eth*' '[Network]' DHCP=yes >files/etc/systemd/network/80-dhcp.network
	echo grange-vm >files/etc/hostname
fi
for package in $PACKAGES; do packages=$packages,$package; done
mkdir payload
tar -C payload -xf "$PAYLOAD"

say "fetching packages of $suite"
quiet="systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer"
quiet="$quiet e2scrub_reap.service fstrim.timer getty@tty1.service systemd-update-utmp-runlevel.service"
more=()
[ "$FIRMWARE" != efi ] || more=(--customize-hook="copy-out /usr/lib/systemd/boot/efi '$work'")
# Configuration goes in before the packages: initramfs-tools reads it when the kernel is configured.
mmdebstrap --variant=minbase --architectures="$ARCHITECTURE" --include="$packages" \
	--aptopt='Acquire::Check-Valid-Until "false"' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--essential-hook="sync-in '$work/files/etc' /etc" \
	--essential-hook="upload '$work/modules' /etc/initramfs-tools/modules" \
	--customize-hook='chroot "$1" systemctl -q enable systemd-networkd' \
	--customize-hook="chroot \"\$1\" systemctl -q mask $quiet" \
	--customize-hook="mkdir \"\$1/payload\"" --customize-hook="sync-in '$work/payload' /payload" \
	--customize-hook='chroot "$1" sh /payload/apply.sh && rm -r "$1/payload"' \
	--customize-hook='chroot "$1" update-initramfs -u -k all' \
	--customize-hook='rm -rf "$1"/etc/ssh/ssh_host_* "$1"/var/log/* "$1"/var/cache/ldconfig/aux-cache; : >"$1/etc/machine-id"' \
	--customize-hook='[ -e "$1/etc/systemd/network/80-dhcp.network" ] || rm -f "$1/etc/hostname"' \
	--customize-hook="copy-out /boot '$work'" \
	"${more[@]}" \
	"$suite" root.tar sources.list || die "mmdebstrap cannot make the system"

kernel=$(echo boot/vmlinuz-*) initrd=$(echo boot/initrd.img-*)
[ -f "$kernel" ] && [ -f "$initrd" ] || die "the system has no kernel, or several"
say "making the disk: $(basename "$kernel")"

options="root=LABEL=root rw rootfstype=ext4 console=tty0 console=ttyS0 quiet panic=-1 cryptomgr.notests no_timer_check net.ifnames=0"
options="$options${PARAMETERS:+ $PARAMETERS}"
truncate -s $((boot * mib)) boot.img
mkfs.vfat --invariant -F 16 -n BOOT boot.img >/dev/null
find boot files efi -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} + 2>/dev/null || true
put() { touch -d "@$SOURCE_DATE_EPOCH" "$1"; mcopy -m -i boot.img "$1" "::$2"; }
put "$kernel" vmlinuz
put "$initrd" initrd.img
if [ "$FIRMWARE" = efi ]; then
	mmd -i boot.img ::EFI ::EFI/BOOT ::loader ::loader/entries
	put efi/systemd-bootx64.efi EFI/BOOT/BOOTX64.EFI
	printf '%s\n' 'timeout 0' 'default debian.conf' >loader.conf
	printf '%s\n' 'title Debian' 'linux /vmlinuz' 'initrd /initrd.img' "options $options" >debian.conf
	put loader.conf loader/loader.conf
	put debian.conf loader/entries/debian.conf
else
	printf '%s\n' 'DEFAULT linux' 'PROMPT 0' 'TIMEOUT 0' 'LABEL linux' '	KERNEL vmlinuz' '	INITRD initrd.img' "	APPEND $options" >syslinux.cfg
	put syslinux.cfg syslinux.cfg
	syslinux --install boot.img
fi

first=$mib root=$(((1 + boot) * mib))
rootsize=$((SIZE - root - 2 * mib))
truncate -s "$rootsize" root.img
mkdir root
# mke2fs takes directories as they are read: a tmpfs reads them in the order in which the tar has them.
userns=; [ "$(id -u)" -eq 0 ] || userns=--map-root-user
unshare --mount $userns sh -euc 'mount -t tmpfs -o size=90%,mode=755 root "$1"
exec fakeroot -- sh -euc "
	tar -C \"\$1\" -xpf \"\$2\" --numeric-owner --exclude=./dev/\* --exclude=./boot/initrd\*
	mke2fs -q -t ext4 -L root -m 1 -U \"\$4\" -E lazy_itable_init=1,nodiscard,hash_seed=\"\$4\" -d \"\$1\" \"\$3\"
" sh "$@"' sh "$work/root" "$work/root.tar" "$work/root.img" "$id-000000000001"
# It notes when the files were made here.
{
	echo "set_current_time @$SOURCE_DATE_EPOCH"
	last=$(dumpe2fs -h root.img 2>/dev/null | awk '/^Inode count/ {n = $3} /^Free inodes/ {n -= $3} END {print n}')
	seq 2 $((last + 1)) | awk -v t="@$SOURCE_DATE_EPOCH" '{
		n = split($1 > 11 ? "ctime crtime atime" : "ctime crtime atime mtime", f, " ")
		for (i = 1; i <= n; i++) { print "sif <" $1 ">", f[i], t; print "sif <" $1 ">", f[i] "_extra", 0 }
	}'
} >times
debugfs -w -f times root.img >/dev/null 2>&1

truncate -s "$SIZE" disk.raw
if [ "$FIRMWARE" = efi ]; then
	sfdisk --quiet disk.raw <<END
label: gpt
label-id: $id-000000000000
start=$((first / 512)), size=$((boot * mib / 512)), type=U, uuid=$id-000000000002
start=$((root / 512)), size=$((rootsize / 512)), type=L, uuid=$id-000000000003
END
else
	sfdisk --quiet disk.raw <<END
label: dos
label-id: 0x67726e67
start=$((first / 512)), size=$((boot * mib / 512)), type=e, bootable
start=$((root / 512)), size=$((rootsize / 512)), type=83
END
	dd if=/usr/lib/syslinux/mbr/mbr.bin of=disk.raw bs=440 count=1 conv=notrunc status=none
fi
dd if=boot.img of=disk.raw bs=1M seek=$((first / mib)) conv=notrunc,sparse status=none
dd if=root.img of=disk.raw bs=1M seek=$((root / mib)) conv=notrunc,sparse status=none
qemu-img convert -f raw -O qcow2 disk.raw "$OUT"
