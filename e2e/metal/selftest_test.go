package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// pools gives each node of a host pools of huge pages for the self test. Of 1 GiB there may be none on a host that has
// run for long. libvirt looks for mounts when it starts.
const pools = `mkdir -p /dev/hugepages1G
mount -t hugetlbfs -o pagesize=1G none /dev/hugepages1G
systemctl restart libvirtd
sync; echo 3 >/proc/sys/vm/drop_caches; echo 1 >/proc/sys/vm/compact_memory
for n in /sys/devices/system/node/node*/hugepages; do
	echo 192 >$n/hugepages-2048kB/nr_hugepages
	echo 1 >$n/hugepages-1048576kB/nr_hugepages
done
cat /sys/devices/system/node/node*/hugepages/hugepages-1048576kB/nr_hugepages`

// filed lists what jobs could leave on the host.
const filed = `find /etc/apparmor.d/libvirt /etc/libvirt /run /var/lib -path /run/user -prune -o -path /run/systemd -prune -o -path /run/udev -prune -o -print | sort`

// TestSelfTest: on a host as Debian installs it every verdict of a self test is good, and nothing is left of its jobs.
func TestSelfTest(t *testing.T) {
	long(t)
	h := start(t, metallab.Options{Name: "selftest"}) // alone: what it measures needs the machine
	pages1G := strings.Contains(run(t, h, pools), "1")
	run(t, h, "grange exec -- true; mkdir -p -m 700 /var/lib/grange/claims") // makes what stays
	before := strings.Split(run(t, h, filed), "\n")
	var r struct {
		Checks []struct {
			Name, Verdict, Reason, Remedy string
			Figures                       map[string]float64
		}
	}
	text := run(t, h, "grange selftest --json -o /root/report.html 2>/root/progress || { test $? = 4; cat "+
		"/root/progress >&2; }")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err, text)
	}
	for _, c := range r.Checks {
		t.Logf("%-14s %-12s %s %v", c.Verdict, c.Name, c.Reason, c.Figures)
		if c.Verdict != "good" && (c.Name != "pages-1g" || pages1G) {
			t.Errorf("%s is %s: %s; try: %s", c.Name, c.Verdict, c.Reason, c.Remedy)
		}
		if c.Name == "start" && c.Figures["ratio"] > 1.5 {
			t.Errorf("a job takes %.2f times as long as QEMU alone", c.Figures["ratio"])
		}
	}
	if len(r.Checks) != 15 {
		t.Errorf("%d checks: %s", len(r.Checks), text)
	}
	for _, path := range strings.Split(run(t, h, filed), "\n") {
		if !slices.Contains(before, path) {
			t.Errorf("the self test left %s", path)
		}
	}
}
