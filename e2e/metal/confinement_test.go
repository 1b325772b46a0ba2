package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// probeRules lets a program of the test's run under the profile of a VM: QEMU may run nothing but itself.
const probeRules = "/usr/bin/head rmix,\n"

// localRules are where a site adds rules to the profiles of VMs: grange's, and libvirt's.
var localRules = []string{"/etc/apparmor.d/local/grange-vm", "/etc/apparmor.d/local/abstractions/libvirt-qemu"}

// withoutProfiles has an agent that may not load profiles, as on a host whose administrator does not want it to:
// libvirt makes them.
const withoutProfiles = `d=/etc/systemd/system/grange-agent.service.d; mkdir -p $d
printf '[Service]\nCapabilityBoundingSet=~CAP_MAC_ADMIN\n' >$d/profiles.conf
systemctl daemon-reload; systemctl restart grange-agent`

// twoVMs starts two VMs with a scratch disk each and leaves the names in $a and $b, the profile of the first in $p, and
// who its QEMU is in $who.
const twoVMs = `set -e
v="virsh -c qemu:///system"
for i in a b; do
	grange exec --memory 400M --scratch 64M -- sh -c 'echo up; sleep 3000' >/tmp/$i.out 2>/tmp/$i.err </dev/null &
	until grep -q up /tmp/$i.out; do sleep 0.5; kill -0 $! || { cat /tmp/$i.err; exit 1; }; done
done
set -- $($v list --name)
a=$1 b=$2
p=libvirt-$($v domuuid $a)
pid=$(cat /run/libvirt/qemu/$a.pid)
who="--reuid=$(stat -c %u /proc/$pid) --regid=$(stat -c %g /proc/$pid) --clear-groups"
`

// nodeCPUs is what QEMU reads to start a VM with huge pages on two nodes. libvirt's own profile denies it on Debian 12.
const nodeCPUs = "/sys/devices/system/node/node0/cpumap"

// mayOpen is what a hostile QEMU of the first VM tries to read, and who may in each profile: its own files, and nobody
// else's. The second VM's are tried by a user that the kernel would let, as QEMU's where both have the same. In
// libvirt's profiles root has its rights over files.
var mayOpen = []struct{ path, grange, libvirt string }{
	{"/var/lib/grange/vm/$a/scratch.raw", "qemu", "qemu root"},
	{"/usr/share/qemu/qboot.rom", "qemu root", "qemu root"},
	{nodeCPUs, "qemu root", ""},
	{"/var/lib/grange/vm/$b/scratch.raw", "", ""},
	{"/run/grange/agent.lock", "", ""},
	{"/var/lib/grange/kvm-probe.json", "", ""},
	{"/run/libvirt/qemu/$b.pid", "", ""},
	{"/etc/shadow", "", ""},
	{"/etc/hostname", "", ""},
	{"/root/.ssh/authorized_keys", "", ""},
	{"/proc/1/environ", "", ""},
	{"/proc/$(cat /run/libvirt/qemu/$b.pid)/maps", "", ""},
	{"/dev/mem", "", ""},
	{"/dev/vda", "", ""},
}

// hostile returns whose profile it is, and what it could read of mayOpen there, by number, as root and as QEMU's user:
// "root 0", "qemu 0".
func hostile(t *testing.T, h *metallab.Host) []string {
	t.Helper()
	script := twoVMs + "grange vm show --json $a | grep -o 'a profile of [a-z]*'\n"
	for i, c := range mayOpen {
		for who, as := range openers {
			script += fmt.Sprintf("if %s aa-exec -p $p -- /usr/bin/head -c 1 %s >/dev/null 2>&1; then echo %s %d; fi\n",
				as, c.path, who, i)
		}
	}
	script += "for u in $($v list --uuid); do grange vm stop $u >/dev/null 2>&1 || $v destroy $u; done\nwait || true\n"
	return strings.Split(run(t, h, script), "\n")
}

// openers are who reads, and the command by which it is them.
var openers = map[string]string{"root": "", "qemu": "setpriv $who"}

// TestConfinement: no denial, no warning and no file of a profile comes of a first job; and QEMU opens what its VM has
// and nothing else, in a profile of grange's and in one of libvirt's, whoever QEMU is.
func TestConfinement(t *testing.T) {
	long(t)
	t.Parallel()
	for _, suite := range suites() {
		t.Run(suite, func(t *testing.T) {
			h := start(t, metallab.Options{Suite: suite})
			// The package lets each VM have a user of its own. Without that the agent warns, and the VMs share one:
			// what follows.
			run(t, h, "dmesg -C; journalctl -q --rotate --vacuum-time=1s; grange exec -- true")
			if got := run(t, h,
				`dmesg | grep 'apparmor="DENIED"' || true; journalctl -q -u grange-agent -p warning -o cat || true`); got != "" {
				t.Errorf("a job leaves:\n%s", got)
			}
			if got := run(t, h, "ls -I 'TEMPLATE.*' /etc/apparmor.d/libvirt; grep libvirt- "+
				"/sys/kernel/security/apparmor/profiles || true"); got != "" {
				t.Errorf("profiles that stay: %s", got)
			}
			if got := run(t, h, "grange agent --check"); !strings.Contains(got, "apparmor, profiles by grange") {
				t.Errorf("who confines: %s", got)
			}
			run(t, h, "chmod o-x /var/lib/libvirt/qemu")
			for _, file := range localRules {
				run(t, h, "mkdir -p $(dirname "+file+"); echo '"+probeRules+"' >>"+file)
			}
			kinds := []struct{ name, prepare string }{
				{"grange", "true"},
				{"libvirt", withoutProfiles},
			}
			for _, kind := range kinds {
				run(t, h, kind.prepare)
				got := hostile(t, h)
				if !slices.Contains(got, "a profile of "+kind.name) {
					t.Errorf("not in a profile of %s: %q", kind.name, got)
				}
				for i, c := range mayOpen {
					for who := range openers {
						may := map[string]string{"grange": c.grange, "libvirt": c.libvirt}[kind.name]
						if c.path == nodeCPUs && kind.name == "libvirt" && suite != metallab.Suites[0] {
							may = c.grange // a later libvirt has learnt it
						}
						if can := slices.Contains(got, fmt.Sprint(who, " ", i)); can != strings.Contains(may, who) {
							t.Errorf("in a profile of %s, as %s: %s: opens: %t", kind.name, who, c.path, can)
						}
					}
				}
			}
		})
	}
}
