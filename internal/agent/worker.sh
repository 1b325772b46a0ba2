set -eu
chmod 0700 /etc/munge
chmod 0400 /etc/munge/munge.key
chown -R 0:0 /etc/munge
mkdir -p /run/munge /run/slurm /var/spool /var/log/slurm /var/lib/slurm
chmod 0755 /run/munge
if [ ! -d /run/systemd/system ] && umount /sys/fs/cgroup; then
	mount -t tmpfs -o mode=0755,nosuid,nodev,noexec cgroup /sys/fs/cgroup
	mkdir /sys/fs/cgroup/systemd
	mount -t cgroup -o nosuid,nodev,noexec,none,name=systemd cgroup /sys/fs/cgroup/systemd
	for c in cpuset cpu,cpuacct memory devices freezer; do
		mkdir -p /sys/fs/cgroup/$c
		mount -t cgroup -o nosuid,nodev,noexec,$c cgroup /sys/fs/cgroup/$c 2>/dev/null || rmdir /sys/fs/cgroup/$c
	done
	[ ! -d /sys/fs/cgroup/cpu,cpuacct ] || ln -s cpu,cpuacct /sys/fs/cgroup/cpu
	[ ! -d /sys/fs/cgroup/cpu,cpuacct ] || ln -s cpu,cpuacct /sys/fs/cgroup/cpuacct
fi
for p in slurmd slurmstepd; do
	[ -e /usr/sbin/$p ] || [ ! -e /usr/sbin/$p-wlm ] || ln -s $p-wlm /usr/sbin/$p
done
if [ -e /run/grange-site-hook ]; then chmod 0700 /run/grange-site-hook; /run/grange-site-hook; fi
munged --key-file=/etc/munge/munge.key --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid \
	--log-file=/run/munge/munged.log --seed-file=/run/munge/munged.seed
