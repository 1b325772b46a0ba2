package main

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// A volume group and a thin pool on a loop device, and an agent that has them.
const toVolumes = `set -e
truncate -s 3G /var/disks.img
device=$(losetup -f --show /var/disks.img)
vgcreate -q vms "$device"
lvcreate -q -y --type thin-pool -L 768M -n pool vms
lvchange -q --errorwhenfull y vms/pool
lvcreate -q -y -L 64M -n grange.grange-mine.scratch vms
printf '[areas.jobs]\nvolume_group = "vms"\nthin_pool = "pool"\n' >>/etc/grange/agent.toml
systemctl restart grange-agent`

// volumesOf lists the volumes of VMs, one a line.
const volumesOf = "lvs --noheadings -o lv_name @grange | sort | xargs"

// TestVolumes has jobs use thick and thin volumes, swap and memory, kills an agent under one, and looks for what is
// left.
func TestVolumes(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{})
	run(t, h, toVolumes)
	await(t, h, "a job has a volume", "grange exec --scratch 64M,lvm -- true")
	// A secret of an earlier VM is not in the volume of the next one, wherever that lies.
	run(t, h, "grange exec --scratch 256M,lvm -- sh -c 'yes a-secret-of-before | head -c 100000000 >/tmp/x; sync'")
	got := run(t, h, `grange exec --scratch 256M,lvm -- sh -c 'd=$(sed -n "s#^\(/dev/vd.\) /tmp .*#\1#p" /proc/mounts)
echo "on $d"; grep -a -c a-secret-of-before "$d" || cat /proc/mounts >&2'`)
	if got != "on /dev/vda\n0" {
		t.Errorf("what the second VM finds on its volume: %q", got)
	}
	got = run(t, h, "grange exec --memory 256M --memory-peak 512M --scratch 64M,thin --scratch /data=32M,tmpfs "+
		"--scratch /more=64M -- sh -c 'for d in /tmp /data /more; do echo $d >$d/x && grep -q \" $d \" /proc/mounts && "+
		"echo $d; done; grep -c ^/dev/vd /proc/swaps; sed -n \"s/^SwapTotal: *//p\" /proc/meminfo'")
	if !strings.HasPrefix(got, "/tmp\n/data\n/more\n1\n262") {
		t.Errorf("scratch and swap in a VM: %q", got)
	}
	if got = run(t, h, volumesOf); got != "" {
		t.Errorf("jobs have left %s", got)
	}
	t.Run("an agent that is killed", func(t *testing.T) {
		run(t, h, "systemd-run -q --unit=dies grange exec --scratch 64M,thin -- sleep 1000")
		await(t, h, "its volume is there", `test -n "$(`+volumesOf+`)"`)
		run(t, h, "systemctl kill -s KILL grange-agent; systemctl stop dies; pkill -9 -x qemu-system-x86 || :")
		await(t, h, "its volume is removed", `test -z "$(`+volumesOf+`)"`)
	})
	// By its name it might be ours; it has no tag.
	run(t, h, "lvs vms/grange.grange-mine.scratch")
	nothingLeft(t, h)
}

// TestSwap: a job that needs more than its memory for a moment ends well with swap, and not without.
func TestSwap(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{})
	const peak = " -- sh -c 'head -c 350000000 /dev/zero | tail | wc -c'" // tail keeps all, for there are no lines
	if got := run(t, h, "grange exec --memory 256M --memory-peak 768M"+peak); got != "350000000" {
		t.Errorf("with swap: %q", got)
	}
	if got := run(t, h, "grange exec --memory 256M"+peak+" || echo killed"); !strings.HasSuffix(got, "killed") &&
		got != "0" {
		t.Errorf("without swap: %q", got)
	}
	nothingLeft(t, h)
}

// TestThinPoolFull: somebody else fills the thin pool. The VM that writes ends with the reason, the one that does not
// goes on, and the host takes jobs again when there is space.
func TestThinPoolFull(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{})
	run(t, h, toVolumes)
	await(t, h, "a job has a volume", "grange exec --scratch 64M,thin -- true")
	startJob(t, h, "bystander")
	run(t, h, `rm -f /root/full.*
systemd-run -q --unit=full -p StandardError=file:/root/full.err -p StandardOutput=file:/root/full.out sh -c '`+
		`{ until [ -e /root/full.go ]; do sleep 1; done; echo go; } | grange exec --scratch 400M,thin -- sh -c "echo up; `+
		`read go; dd if=/dev/urandom of=/tmp/x bs=1M count=300 conv=fsync; sleep 1000"'`)
	await(t, h, "the job is up", "grep -q up /root/full.out")
	run(t, h, "lvcreate -q -y -V 900M --thinpool pool -n filler vms; dd if=/dev/urandom of=/dev/vms/filler bs=1M "+
		"oflag=direct || :; touch /root/full.go")
	await(t, h, "the VM that writes has ended", "grep -q vm-disk-full /root/full.err")
	if got := run(t, h, "cat /root/full.err"); !strings.Contains(got, "thin pool vms/pool") {
		t.Errorf("the job is told %q", got)
	}
	endJob(t, h, "bystander")
	run(t, h, "lvremove -q -y vms/filler")
	await(t, h, "jobs have volumes again", "grange exec --scratch 64M,thin -- dd if=/dev/zero of=/tmp/x bs=1M count=32")
	run(t, h, "systemctl reset-failed full || :")
}

// TestScratchFull: a job that fills its scratch or its root finds its own disk full, and nobody else's.
func TestScratchFull(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{})
	for _, on := range []string{"64M", "64M,tmpfs"} {
		if got := run(t, h, "grange exec --scratch "+on+" -- sh -c 'dd if=/dev/zero of=/tmp/x bs=1M 2>&1 | "+
			"grep -c \"No space left\"; rm /tmp/x; echo goes on'"); got != "1\ngoes on" {
			t.Errorf("a job that fills %s finds %q", on, got)
		}
	}
	if got := run(t, h, "grange exec --disk 4G -- true 2>&1 || :"); !strings.Contains(got, "no root disk") {
		t.Errorf("a root disk of an image in memory: %q", got)
	}
	nothingLeft(t, h)
}

// TestDiskBench measures a host's disks, and keeps what it found.
func TestDiskBench(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{})
	if got := run(t, h, "command -v fio || echo none"); got == "none" {
		got := run(t, h, "grange disk bench 2>&1 || :")
		if !strings.Contains(got, "install Debian's package fio") {
			t.Errorf("without fio: %q", got)
		}
		return
	}
	run(t, h, "grange disk bench --size 32M --time 500ms --rounds 1 --svg /root/disks.svg")
	if got := run(t, h, "grange disk bench --show"); !strings.Contains(got, "random write") ||
		!strings.Contains(got, "over all patterns") {
		t.Errorf("what is kept: %q", got)
	}
	if got := run(t, h, "ls -A /var/lib/grange/vm; grange disk clean"); strings.Contains(got, "bench") {
		t.Errorf("left: %q", got)
	}
}
