package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// fault is one that a host of a site may have: put there, and taken out again.
type fault struct{ rule, put, out string }

const (
	pages2M  = "/sys/devices/system/node/node%s/hugepages/hugepages-2048kB/nr_hugepages"
	loaded   = "modprobe kvm_amd && udevadm settle" // /dev/kvm is root's alone until udev has seen it
	reloaded = "modprobe -r kvm_amd && " + loaded
	noPages  = "for n in 0 1; do echo 0 >/sys/devices/system/node/node$n/hugepages/hugepages-2048kB/nr_hugepages; done"
)

// pools2M puts huge pages of 2 MiB on both nodes.
func pools2M(node0, node1 string) string {
	set := func(node, n string) string { return "echo " + n + " >" + strings.ReplaceAll(pages2M, "%s", node) }
	return set("0", node0) + " && " + set("1", node1)
}

// daemon is a service of this name that does nothing: what is tested is how it is found, stopped and started.
func daemon(name string) (put, out string) {
	put = `cp /bin/sleep /usr/local/sbin/` + name + `
printf '[Service]\nExecStart=/usr/local/sbin/` + name + ` infinity\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/` + name + `.service
systemctl daemon-reload && systemctl -q enable --now ` + name
	return put, "systemctl -q disable --now " + name + "; rm /etc/systemd/system/" + name +
		".service /usr/local/sbin/" + name + "; systemctl daemon-reload"
}

func boot(words string) string {
	return `echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX ` + words + `"' >/etc/default/grub.d/50-site.cfg`
}

// faults that an emulated host can have and the audit has to find. It has no frequency governor and no C-states, and
// counts as virtual, so that rules about SMT, mitigations and the clock do not apply.
func faults() []fault {
	ksmtuned, noKsmtuned := daemon("ksmtuned")
	earlyoom, noEarlyoom := daemon("earlyoom")
	numad, noNumad := daemon("numad")
	const noBoot = "rm /etc/default/grub.d/50-site.cfg"
	return []fault{
		{"nested-on", "", ""},                   // as Debian has it
		{"numa-balancing-with-pinning", "", ""}, // as Debian has it
		{"ept-off", "echo options kvm_amd npt=0 >/etc/modprobe.d/site.conf && " + reloaded,
			"rm /etc/modprobe.d/site.conf && " + reloaded},
		{"ept-off-next-load", "echo options kvm_amd npt=0 >/etc/modprobe.d/site.conf", "rm /etc/modprobe.d/site.conf"},
		{"ept-off-next-load", boot("kvm_amd.npt=0"), noBoot},
		{"kvm-not-loaded", "modprobe -r kvm_amd", loaded},
		{"halt-poll-long", "echo 2000000 >/sys/module/kvm/parameters/halt_poll_ns",
			"echo 200000 >/sys/module/kvm/parameters/halt_poll_ns"},
		{"ksm-on-compute", "echo 1 >/sys/kernel/mm/ksm/run", "echo 0 >/sys/kernel/mm/ksm/run"},
		{"ksmtuned-running", ksmtuned, noKsmtuned},
		{"host-oom-daemon", earlyoom, noEarlyoom},
		{"numad-with-guest-numa", numad + `
timeout 120 sh -c 'until virsh -q domcapabilities --virttype kvm >/dev/null; do sleep 1; done' # since KVM is back
echo '<domain type="kvm"><name>old</name><memory unit="MiB">64</memory><vcpu>1</vcpu><numatune><memory mode="strict" nodeset="0"/></numatune><os><type>hvm</type></os></domain>' >/root/old.xml
virsh -q define /root/old.xml`, "virsh -q undefine old; " + noNumad},
		{"thp-policy", "echo never >/sys/kernel/mm/transparent_hugepage/enabled",
			"echo always >/sys/kernel/mm/transparent_hugepage/enabled"},
		{"thp-defrag-off", "echo never >/sys/kernel/mm/transparent_hugepage/defrag",
			"echo madvise >/sys/kernel/mm/transparent_hugepage/defrag"},
		{"hugepages-uneven", pools2M("700", "100"), noPages},
		{"hugepages-late", pools2M("100", "100"), noPages},
		{"hugepages-too-many", pools2M("1300", "1300"), noPages},
		{"hugetlbfs-unmounted", pools2M("10", "10") + " && umount /dev/hugepages",
			"mount -t hugetlbfs hugetlbfs /dev/hugepages; " + noPages},
		{"zone-reclaim", "sysctl -q vm.zone_reclaim_mode=1", "sysctl -q vm.zone_reclaim_mode=0"},
		{"overcommit-strict", "sysctl -q vm.overcommit_memory=2", "sysctl -q vm.overcommit_memory=0"},
		{"swappiness-high", "fallocate -l 64M /swap && chmod 600 /swap && mkswap /swap >/dev/null && swapon /swap",
			"swapoff /swap; rm /swap"},
		{"boot-line-conflict", boot("hugepagesz=2M hugepages=8 hugepagesz=2M hugepages=9"), noBoot},
	}
}

// lasting are faults that a reboot keeps, all at a time.
func lasting() string {
	ksmtuned, _ := daemon("ksmtuned")
	earlyoom, _ := daemon("earlyoom")
	return `set -e
printf 'options kvm_amd npt=0\noptions kvm halt_poll_ns=2000000\n' >/etc/modprobe.d/site.conf
printf 'vm.zone_reclaim_mode = 1\nvm.overcommit_memory=2\nvm.swappiness = 60\n' >/etc/sysctl.d/50-site.conf
printf 'w /sys/kernel/mm/ksm/run - - - - 1\nw /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n' >/etc/tmpfiles.d/site.conf
chmod 640 /etc/modprobe.d/site.conf
chown root:kvm /etc/sysctl.d/50-site.conf
fallocate -l 64M /swap; chmod 600 /swap; mkswap /swap >/dev/null
echo '/swap none swap sw 0 0' >>/etc/fstab
` + ksmtuned + "\n" + earlyoom + `
swapon -a
systemd-tmpfiles --create /etc/tmpfiles.d/site.conf
sysctl -q --system
` + reloaded + `
update-grub 2>/dev/null
grange tune profiles amd-epyc-compute | sed 's/^page_share.*/page_share = 0.5/; s/^reserved.*/reserved = "1G"/' >/root/site.toml`
}

// asFound prints all that an apply may change: files with mode, owner and digest, values, services, the command line.
const asFound = `cd /
find etc/modprobe.d etc/sysctl.d etc/tmpfiles.d etc/default etc/tuned boot/grub/grub.cfg etc/systemd/system etc/kernel etc/fstab -printf '%p %y %m %u:%g %l\n' 2>/dev/null | sort
find etc/modprobe.d etc/sysctl.d etc/tmpfiles.d etc/default etc/tuned boot/grub/grub.cfg etc/fstab -type f 2>/dev/null | sort | xargs sha256sum
grep -rs . sys/module/kvm_amd/parameters sys/module/kvm/parameters sys/kernel/mm/ksm/run sys/kernel/mm/transparent_hugepage/enabled | sort
grep -s . sys/devices/system/node/node*/hugepages/*/nr_hugepages
sysctl vm.swappiness vm.zone_reclaim_mode vm.overcommit_memory kernel.numa_balancing kernel.core_pattern
for s in ksmtuned earlyoom; do echo $s $(systemctl is-enabled $s) $(systemctl is-active $s); done
cat proc/cmdline`

// rulesOf are the rules that an audit's findings are of.
func rulesOf(t *testing.T, h *metallab.Host, options string) []string {
	t.Helper()
	var rules []string
	for _, f := range query[struct{ Findings []struct{ Rule string } }](t, h,
		"grange tune audit --format json --fail-on never "+options).Findings {
		rules = append(rules, f.Rule)
	}
	return slices.Compact(rules)
}

// TestTuner puts faults in one by one, has each found, then has those that last mended, over a reboot, and taken back,
// over another.
func TestTuner(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{Name: "tuner"})
	for _, f := range faults() {
		if f.put != "" {
			run(t, h, f.put)
		}
		if got := rulesOf(t, h, "--rule "+f.rule); !slices.Contains(got, f.rule) {
			t.Errorf("not found: %s, after %s", f.rule, f.put)
		}
		if f.out != "" {
			run(t, h, f.out)
		}
	}
	run(t, h, lasting())
	before := run(t, h, asFound)
	want := []string{"ept-off", "overcommit-strict", "host-oom-daemon", "hugepages-none", "ksm-on-compute",
		"ksmtuned-running", "zone-reclaim", "halt-poll-long", "nested-on", "numa-balancing-with-pinning",
		"swappiness-high", "thp-policy"}
	const site = "--profile /root/site.toml"
	found := rulesOf(t, h, site)
	for _, rule := range want {
		if !slices.Contains(found, rule) {
			t.Errorf("of all at a time, %s is not found: %v", rule, found)
		}
	}
	applied := query[struct {
		ID string `json:"id"`
	}](t, h, "grange tune apply --drain --yes --json "+site)
	if err := h.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	const pages = "cat /sys/devices/system/node/node*/hugepages/hugepages-1048576kB/nr_hugepages"
	// The kernel puts itself where it likes, also where the first node has its only page of 1 GiB.
	for range 3 {
		if run(t, h, pages) == "1\n1" {
			break
		}
		if err := h.Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := rulesOf(t, h, site); !slices.Equal(got, []string{"host-is-vm"}) {
		t.Errorf("after apply and a reboot the audit finds %v", got)
	}
	if got := run(t, h, pages+" /sys/module/kvm_amd/parameters/npt"); got != "1\n1\nY" && got != "1\n1\n1" {
		t.Errorf("pages of 1 GiB on the two nodes, and npt: %q", got)
	}
	run(t, h, "grange tune drift")
	run(t, h, "grange tune undo "+applied.ID+" --drain")
	if err := h.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(before, "\n"), strings.Split(run(t, h, asFound), "\n")); d != "" {
		t.Errorf("after undo and a reboot (-before +after):\n%s", d)
	}
}

// tunedProfiles are profiles that an administrator may have chosen for another purpose: one of the packages, whose own
// copy in /etc has to be made, and one of the site's.
var tunedProfiles = []struct {
	name, put, out string
	rules          []string // that find what it sets
	values         string   // what it sets: transparent huge pages, KSM, zone_reclaim_mode
}{
	{"postgresql", "", "true", []string{"thp-policy", "tuned-overrides"}, "never 0 0"},
	{"site", `mkdir /etc/tuned/site
printf '[main]\ninclude=hpc-compute\n[vm]\ntransparent_hugepages=never # as ever\n[sysfs]\n/sys/kernel/mm/ksm/run=1\n' >/etc/tuned/site/tuned.conf`, "rm -r /etc/tuned/site",
		[]string{"ksm-on-compute", "thp-policy", "tuned-overrides", "zone-reclaim"}, "never 1 1"},
}

const (
	// tunedStart has tuned start as at a boot, and waits until it has set what its profile says.
	tunedStart = `: >/var/log/tuned/tuned.log
systemctl restart tuned
until grep -q 'static tuning from profile .* applied' /var/log/tuned/tuned.log; do sleep 0.5; done`
	tunedValues = `echo $(sed 's/.*\[//;s/\].*//' /sys/kernel/mm/transparent_hugepage/enabled; cat /sys/kernel/mm/ksm/run /proc/sys/vm/zone_reclaim_mode)`
)

// TestTunerBesideTuned has tuned set, at each start, what an audit finds wrong: that is found, what apply set holds
// after tuned's next start, and undo leaves tuned's files as they were. Its profiles for hosts of VMs are in nobody's
// way.
func TestTunerBesideTuned(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{Name: "tuned"})
	run(t, h, "DEBIAN_FRONTEND=noninteractive apt-get -q -y install tuned >/root/apt 2>&1 || { cat /root/apt >&2; "+
		"exit 1; }")
	const both = "--rule thp-policy,tuned-overrides,zone-reclaim,ksm-on-compute,swappiness-high"
	for _, profile := range []string{"virtual-host", "throughput-performance"} {
		run(t, h, "tuned-adm profile "+profile)
		if got := rulesOf(t, h, both); len(got) > 0 {
			t.Errorf("beside tuned's profile %s the audit finds %v", profile, got)
		}
	}
	for _, p := range tunedProfiles {
		run(t, h, p.put+"\ntuned-adm profile "+p.name)
		before := run(t, h, asFound)
		found := rulesOf(t, h, both)
		slices.Sort(found)
		if got := run(t, h, tunedValues); got != p.values || !slices.Equal(slices.Compact(found), p.rules) {
			t.Errorf("tuned's profile %s sets %s, and the audit finds %v", p.name, got, found)
		}
		applied := query[struct {
			ID string `json:"id"`
		}](t, h, "grange tune apply --drain --yes --json "+both)
		run(t, h, tunedStart)
		if got, found := run(t, h, tunedValues), rulesOf(t, h, both); got != "always 0 0" || len(found) > 0 {
			t.Errorf("profile %s: after apply and tuned's next start %s holds, and the audit finds %v",
				p.name, got, found)
		}
		run(t, h, "grange tune drift")
		run(t, h, "grange tune undo "+applied.ID+" --drain\n"+tunedStart)
		if d := cmp.Diff(strings.Split(before, "\n"), strings.Split(run(t, h, asFound), "\n")); d != "" {
			t.Errorf("profile %s, after undo (-before +after):\n%s", p.name, d)
		}
		if got := run(t, h, tunedValues); got != p.values {
			t.Errorf("profile %s: after undo tuned sets %s", p.name, got)
		}
		run(t, h, p.out)
	}
}
