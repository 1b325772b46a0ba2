# Runs in a root that has rpm, mounted over nothing of the host. /empty has a shell and what the scripts call, all of it busybox.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
root=/empty
mkdir -p $root/bin $root/usr/bin
cp /usr/bin/busybox $root/bin/busybox
for tool in sh grep rm echo; do ln -s busybox $root/bin/$tool; done
check() {
	name=$1; shift
	if "$@" >/check.log 2>&1; then echo "ok $name"; else echo "FAILED $name"; sed 's/^/    /' /check.log; fi
}
run() { rpm --root $root --nosignature "$@"; }
silent() { [ -z "$("$@" 2>&1 | tee /dev/stderr)" ]; }
mounted() { chroot $root /usr/bin/grange --version; }
# Directories that any system has stay: no package of ours owns them.
left() { find $root/etc/grange $root/usr/share/doc $root/usr/bin $root/usr/lib/grange $root/usr/share/man $root/usr/lib/systemd \
	$root/usr/lib/sysusers.d ! -type d 2>/dev/null; }
check "rpm installs into an empty root" run -i --nodeps /packages/grange-[0-9]*.rpm /packages/grange-server-*.rpm /packages/grange-slurm-*.rpm
check "rpm finds its files as they were packed" silent run -Va --nodeps
check "grange --version runs there" mounted
check "no file of the base system is ours" silent sh -c "rpm --root $root -qal | grep -xE '/usr|/usr/(bin|sbin|lib|share)|/etc|/usr/lib/systemd|/usr/lib/systemd/system|/usr/share/man(/man[18])?'"
check "rpm removes" run -e --nodeps grange-slurm grange-server grange
check "rpm leaves no file" silent left
