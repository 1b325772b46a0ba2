# Runs in a Debian root of its own, which has no systemd: a program in systemctl's place writes down what it is asked for.
# /packages holds this build, /older the same with a smaller version.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
rm -f /etc/dpkg/dpkg.cfg.d/99mmdebstrap # which leaves out manuals
mkdir -p /run/systemd/system
cat >/usr/bin/systemctl <<'END'
#!/bin/sh
echo "$*" >>/systemctl.log
END
chmod +x /usr/bin/systemctl
install() { apt-get -qq -y --no-install-recommends --allow-downgrades -o Dpkg::Use-Pty=0 install "$@"; }
asked() { grep -q -- "$1" /systemctl.log; }
missing() { for f; do [ ! -e "$f" ] || { echo "$f is there"; return 1; }; done; }
plugin=/usr/lib/grange/grange_spank.so

check() {
	name=$1; shift
	if "$@" >/check.log 2>&1; then echo "ok $name"; else echo "FAILED $name"; sed 's/^/    /' /check.log; fi
}
refuses() { ! "$@"; }
manuals() {
	for page in /usr/share/man/man?/grange*; do
		man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null | sed "s|^|$page: |"
	done | tee /warnings
	[ ! -s /warnings ] && [ "$(ls /usr/share/man/man1/grange*.1.gz | wc -l)" -gt 20 ]
}
# Each unit of ours, with its manual page and its program; what other packages bring is not here.
units() {
	systemd-analyze verify /usr/lib/systemd/system/grange-*.service /usr/lib/systemd/system/grange-*.timer 2>&1 | grep grange | tee /warnings
	[ ! -s /warnings ] && [ "$(ls /usr/lib/systemd/system/grange-* | wc -l)" -eq 7 ]
}
completion() { bash -c '. /usr/share/bash-completion/completions/grange && complete -p grange'; }
# A package that brings a header of Slurm, as an upgrade of Slurm would.
slurm_upgrade() {
	rm -f $plugin
	mkdir -p /header/DEBIAN /header/usr/include/slurm
	touch /header/usr/include/slurm/new.h
	printf 'Package: header\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: header\n' >/header/DEBIAN/control
	dpkg-deb -b /header /header.deb && dpkg -i /header.deb && test -s $plugin
}
configured() {
	mkdir -p /etc/slurm/plugstack.conf.d
	echo "required $plugin wrapper=/usr/bin/grange" >/etc/slurm/plugstack.conf.d/grange.conf
}
own_plugin() { # where the site has it elsewhere, that one is compiled again
	mkdir -p /etc/slurm/plugstack.conf.d
	echo "required /opt/site/grange_spank.so wrapper=/usr/bin/grange" >/etc/slurm/plugstack.conf.d/grange.conf
	grange slurm compile && test -s /opt/site/grange_spank.so
	status=$?
	rm -r /etc/slurm/plugstack.conf.d /opt/site
	return $status
}

check "install the older release" install /older/grange_*.deb /older/grange-server_*.deb /older/grange-slurm_*.deb
check "installing starts nothing" refuses grep -E 'start|enable' /systemctl.log
check "grange --version" grange --version
check "grange-guest --version" grange-guest --version
check "the agent's configuration is sound" sh -c 'cmp /etc/grange/agent.toml /usr/share/doc/grange/agent.toml'
check "the server's user is there" id grange
check "the plug-in is compiled" test -s $plugin
check "manual pages render" manuals
check "units are sound" units
check "completion of bash" completion

# A process that has a disk below /var/lib/grange open, as QEMU of a VM has.
mkdir -p /var/lib/grange/vm /var/lib/grange-server
: >/var/lib/grange/vm/disk
sleep 10000 <>/var/lib/grange/vm/disk &
vm=$!
echo 'reserved_memory = "2G"' >>/etc/grange/agent.toml
: >/systemctl.log
check "upgrade" install /packages/grange_*.deb /packages/grange-server_*.deb /packages/grange-slurm_*.deb
check "the upgrade starts a running agent anew" asked 'try-restart.*grange-agent.service'
check "the upgrade leaves the server to people" refuses asked 'grange-server.service'
check "the upgrade stops nothing" refuses asked '^stop\|kill'
check "the upgrade keeps the site's configuration" grep -q '^reserved_memory' /etc/grange/agent.toml
check "the VM goes on" kill -0 $vm

check "an upgrade of Slurm compiles the plug-in" slurm_upgrade
check "a plug-in of the site's is compiled where it is" own_plugin
configured
check "a plug-in that Slurm loads is not removed" refuses apt-get -qq -y remove grange-slurm
check "and works on" test -s $plugin
rm -r /etc/slurm
check "reinstall after the refusal" install --reinstall /packages/grange-slurm_*.deb
check "remove" apt-get -qq -y remove grange grange-server grange-slurm
check "remove ends the agent only" asked 'stop.*grange-agent.service'
check "remove leaves no program" missing /usr/bin/grange /usr/bin/grange-guest $plugin /usr/lib/systemd/system/grange-agent.service
check "remove keeps state and configuration" test -e /var/lib/grange/vm/disk -a -e /etc/grange/agent.toml -a -d /var/lib/grange-server
check "the VM goes on without a package" kill -0 $vm
check "purge under a VM" apt-get -qq -y purge grange
check "purge leaves the state of a VM that runs" test -e /var/lib/grange/vm/disk
check "purge removes the configuration" missing /etc/grange
kill $vm
wait $vm 2>/dev/null
rm -rf /var/lib/grange
tuned() { # a host on which changes of grange tune are in such a phase
	mkdir -p /var/lib/grange/tuning/1 /var/lib/grange/images
	printf '{"version":1,"plan":{}}\n{"phase":"applying"}\n{"phase":"%s"}\n' "$1" >/var/lib/grange/tuning/1/journal
	install /packages/grange_*.deb && apt-get -qq -y purge grange
}
check "purge of a host that is tuned" tuned applied
check "purge leaves what takes its changes back" test -s /var/lib/grange/tuning/1/journal -a ! -e /var/lib/grange/images
check "purge of a host that was tuned" tuned undone
check "purge leaves nothing of it" missing /var/lib/grange
check "install anew" install /packages/grange_*.deb /packages/grange-server_*.deb /packages/grange-slurm_*.deb
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s /usr/lib/systemd/system/grange-agent.service /usr/lib/systemd/system/grange-server.service /etc/systemd/system/multi-user.target.wants/
check "purge" apt-get -qq -y purge grange grange-server grange-slurm
check "purge leaves nothing" missing /etc/systemd/system/multi-user.target.wants/grange-agent.service \
	/etc/systemd/system/multi-user.target.wants/grange-server.service /var/lib/grange /var/lib/grange-server /etc/grange /run/grange /usr/lib/grange
