# Adds parameters to the kernel's command line, of the system at $ROOT ("": this one). The file of arguments has lines
# FAMILY VERSION BITS PARAMETER…, with "*" for any.
set -eu
root=${ROOT:-}
family= version= bits=64
if [ -e "$root/etc/redhat-release" ]; then
	family=rhel version=$(sed 's/.*release \([0-9.]*\).*/\1/' "$root/etc/redhat-release")
fi
for program in "$root/sbin/init" "$root/bin/sh"; do
	[ ! -e "$program" ] || [ "$(head -c 5 "$program" | tail -c 1 | od -An -tu1 | tr -d ' ')" != 1 ] || bits=32
done
wanted=
while read -r f v b parameters; do
	case "$f" in "*" | "$family") ;; *) continue ;; esac
	case "$v" in "*" | "$version") ;; *) continue ;; esac
	case "$b" in "*" | "$bits") ;; *) continue ;; esac
	wanted="$wanted $parameters"
done <"$1"
wanted=${wanted# }
[ -n "$wanted" ] || exit 0

found=
for file in "$root/boot/grub/grub.conf" "$root/boot/grub/menu.lst"; do # GRUB Legacy
	[ -f "$file" ] && [ ! -L "$file" ] || continue
	sed -i "/^[[:space:]]*kernel[[:space:]]/ s|\$| $wanted|" "$file"
	found=yes
done
if [ -f "$root/etc/default/grub" ]; then
	echo "GRUB_CMDLINE_LINUX=\"\$GRUB_CMDLINE_LINUX $wanted\"" >>"$root/etc/default/grub"
	found=yes
	if [ -z "$root" ] && command -v update-grub >/dev/null; then
		update-grub
	elif [ -z "$root" ] && command -v grubby >/dev/null; then
		grubby --update-kernel=ALL --args="$wanted"
	elif [ -z "$root" ] && command -v grub2-mkconfig >/dev/null; then
		grub2-mkconfig -o /boot/grub2/grub.cfg
	fi
fi
[ -n "$found" ] || { echo "the image has no GRUB: its kernel's parameters cannot be changed" >&2; exit 4; }
echo "kernel parameters: $wanted"
