package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
	"github.com/grange-project/grange/internal/farm"
)

// TestNUMA runs on a host of two nodes with two cores of two threads each: guests see what was planned, and the kernel
// has them there.
func TestNUMA(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{Name: "numa"})
	// first: what runs on a host soon leaves none together
	t.Run("page of 1 GiB", func(t *testing.T) { gigabyte(t, h) })
	t.Run("shapes", func(t *testing.T) { shapes(t, h) })
	t.Run("policies", func(t *testing.T) { policies(t, h) })
	t.Run("pages", func(t *testing.T) { pages(t, h) })
	t.Run("metal jobs", func(t *testing.T) { metalJobs(t, h) })
}

// shapes fills the host with VMs of one size.
func shapes(t *testing.T, h *metallab.Host) {
	for vcpus, want := range map[int]string{2: "1 1 2", 4: "1 2 2", 8: "2 2 2"} {
		n := 8 / vcpus
		vms := holdAll(t, h, n, fmt.Sprintf("--cpus %d --memory %dM", vcpus, 100*vcpus), "")
		var taken farm.CPUSet
		for _, v := range vms {
			seen(t, v)
			if p := v.vm.Plan; fmt.Sprint(p.Sockets, p.Cores, p.Threads) != want {
				t.Errorf("%d vCPUs are planned as %d sockets of %d cores of %d threads, want %s", vcpus, p.Sockets,
					p.Cores, p.Threads, want)
			}
			taken = taken.Or(threads(t, v))
		}
		if taken.Len() != 8 {
			t.Errorf("%d VMs of %d vCPUs are on CPUs %v", n, vcpus, taken)
		}
		proven(t, h, n)
		release(t, h)
	}
}

// threads is the host threads that a VM's vCPUs are planned on.
func threads(t *testing.T, v held) farm.CPUSet {
	t.Helper()
	var all farm.CPUSet
	for _, pin := range v.vm.Plan.VCPUs {
		set, err := farm.ParseCPUSet(pin)
		if err != nil {
			t.Fatal(err)
		}
		all = all.Or(set)
	}
	return all
}

// policies: siblings of one core, or cores whose siblings stay idle.
func policies(t *testing.T, h *metallab.Host) {
	for policy, want := range map[string]struct{ threads, held int }{"prefer": {2, 0}, "require": {2, 0},
		"isolate": {1, 2}} {
		v := hold(t, h, policy, "--cpus 2 --memory 200M --thread-policy "+policy, "")
		seen(t, v)
		extra, err := farm.ParseCPUSet(v.vm.Plan.Extra)
		if err != nil {
			t.Fatal(err)
		}
		if v.vm.Plan.Threads != want.threads || extra.Len() != want.held {
			t.Errorf("%s: %+v", policy, v.vm.Plan)
		}
	}
	proven(t, h, 3)
	release(t, h)
}

// pages: a pool on one node, pools on both, none left.
func pages(t *testing.T, h *metallab.Host) {
	const pool = "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages"
	run(t, h, fmt.Sprintf("echo 128 >"+pool+"; sleep 12", 1)) // the agent reads pools every ten seconds
	first := hold(t, h, "first", "--cpus 2 --memory 200M --page-size 2M", "")
	if c := first.vm.Plan.Cells; len(c) != 1 || c[0].Node != 1 || c[0].PageSize != uint64(2*farm.MiB) {
		t.Errorf("a VM in the one pool there is: %+v", c)
	}
	refused(t, h, "--cpus 2 --memory 200M --page-size 2M")
	second := hold(t, h, "second", "--cpus 2 --memory 200M --page-size any", "")
	if c := second.vm.Plan.Cells; len(c) != 1 || c[0].PageSize != 0 {
		t.Errorf("where there are no pages left ordinary ones will do: %+v", c)
	}
	seen(t, first)
	seen(t, second)
	for _, vm := range proven(t, h, 2).VMs {
		if vm.Name == first.vm.Name && vm.Memory["1"] < uint64(200*farm.MiB) {
			t.Errorf("a VM in huge pages has %v", vm.Memory)
		}
	}
	release(t, h)
	run(t, h, fmt.Sprintf("echo 64 >"+pool+"; sleep 12", 0))
	refused(t, h, "--cpus 8 --memory 400M --page-size 2M") // node 1 has enough, node 0 has not
	run(t, h, fmt.Sprintf("echo 128 >"+pool+"; sleep 12", 0))
	both := hold(t, h, "both", "--cpus 8 --memory 400M --page-size 2M", "")
	if c := both.vm.Plan.Cells; len(c) != 2 || c[0].PageSize != uint64(2*farm.MiB) ||
		c[1].PageSize != uint64(2*farm.MiB) {
		t.Errorf("a VM across both pools: %+v", c)
	}
	seen(t, both)
	for _, vm := range proven(t, h, 1).VMs {
		if vm.Memory["0"] != uint64(200*farm.MiB) || vm.Memory["1"] != uint64(200*farm.MiB) {
			t.Errorf("200M in huge pages on each node, not %v", vm.Memory)
		}
	}
	release(t, h)
	run(t, h, fmt.Sprintf("echo 0 >"+pool+"; echo 0 >"+pool+"; sleep 12", 0, 1))
}

// gigabyte: a page of 1 GiB on one node holds one VM of its size, and no second one.
func gigabyte(t *testing.T, h *metallab.Host) {
	const pool = "/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages"
	got := run(t, h, `set -e
mkdir -p /dev/hugepages1G
mount -t hugetlbfs -o pagesize=1G none /dev/hugepages1G
systemctl restart libvirtd
# What lies between two free halves is moved away, or not, at the first try.
for n in 1 2 3 4 5 6; do
	sync; echo 3 >/proc/sys/vm/drop_caches; echo 1 >/proc/sys/vm/compact_memory
	echo 1 >`+pool+`
	[ "$(cat `+pool+`)" = 0 ] || break
	sleep 2
done
sleep 12; cat `+pool)
	if got != "1" {
		t.Fatalf("node 1 has no page of 1 GiB together: %s", run(t, h, "cat /proc/buddyinfo"))
	}
	v := hold(t, h, "gigabyte", "--cpus 2 --memory 1G --page-size 1G", "")
	if c := v.vm.Plan.Cells; len(c) != 1 || c[0].Node != 1 || c[0].PageSize != uint64(farm.GiB) {
		t.Errorf("a VM in the page of 1 GiB: %+v", c)
	}
	seen(t, v)
	if p := proven(t, h, 1); len(p.VMs) == 1 && p.VMs[0].Memory["1"] != uint64(farm.GiB) {
		t.Errorf("a VM in the page of 1 GiB has %v", p.VMs[0].Memory)
	}
	pages := run(t, h, "grep -c 'KernelPageSize: *1048576 kB' /proc/$(cat /run/libvirt/qemu/"+v.vm.Name+".pid)/smaps")
	if pages != "1" {
		t.Errorf("the kernel has %s maps of 1 GiB pages", pages)
	}
	refused(t, h, "--cpus 2 --memory 1G --page-size 1G")
	release(t, h)
	run(t, h, "echo 0 >"+pool+"; sleep 12")
}

// refused checks that no VM with these flags can start for want of room.
func refused(t *testing.T, h *metallab.Host, flags string) {
	t.Helper()
	out := run(t, h, "grange exec --no-wait "+flags+" -- true 2>&1; echo status $?")
	if strings.Contains(out, "status 0") || !strings.Contains(out, "no-room") && !strings.Contains(out, "too-big") {
		t.Errorf("pages that are not there, %s: %s", flags, out)
	}
}

// metalJobs: parts of the host that jobs on bare metal have come and go; no VM is on their CPUs, and no two VMs on one.
func metalJobs(t *testing.T, h *metallab.Host) {
	var vms []held
	for i, cpus := range []string{"0-1", "4-5", "2-3"} {
		key := fmt.Sprintf("slurm/%d", 900+i)
		run(t, h, "grange batch claim --key "+key+" --cpus "+cpus+" --memory 100M")
		v := hold(t, h, fmt.Sprintf("beside%d", i), "--cpus 1 --memory 150M", "")
		on := threads(t, v)
		if set, err := farm.ParseCPUSet(cpus); err != nil || on.Common(set) > 0 {
			t.Errorf("%v: a VM is on CPUs %v, which job %s has: %s", err, on, key, cpus)
		}
		if slices.ContainsFunc(vms, func(o held) bool { return threads(t, o).Common(on) > 0 }) {
			t.Errorf("two VMs on CPUs %v", on)
		}
		seen(t, v)
		vms = append(vms, v)
		if i == 1 { // the first one ends while VMs run beside it
			run(t, h, "grange batch release slurm/900")
		}
	}
	proven(t, h, len(vms))
	release(t, h)
	run(t, h, "for k in 901 902; do grange batch release slurm/$k; done")
}
