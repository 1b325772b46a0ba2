package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

// timeout is for what takes seconds on a host of metal: here several hosts share two processors.
const timeout = 6 * time.Minute

// cloudVM has a host keep a VM of a server that is not there: what was wanted last lies beside its disks.
func cloudVM(t *testing.T, h *metallab.Host, name, power string) fleet.WantedVM {
	t.Helper()
	vm := fleet.WantedVM{ID: api.NewID(), Name: name, Project: "atlas", Owner: "ann", Hostname: name, Power: power,
		Image: "micro", Shape: fleet.Shape{CPUs: 1, Memory: 256 << 20, Scratch: 64 << 20}}
	text, err := json.Marshal(map[string]any{"Version": 1, "Created": time.Now(), "Wanted": vm})
	if err != nil {
		t.Fatal(err)
	}
	dir := "/var/lib/grange/vm/" + machineName(vm)
	run(t, h, "install -d -m 711 "+dir)
	if err := h.Put(t.Context(), dir+"/wanted.json", strings.NewReader(string(text))); err != nil {
		t.Fatal(err)
	}
	return vm
}

func machineName(vm fleet.WantedVM) string { return "grange-" + vm.ID[:13] }

// is is a condition on the host: the VM is shown so, and its guest has come up where it runs.
func is(vm fleet.WantedVM, state string) string {
	test := fmt.Sprintf(`v["id"] == %q and v["state"] == %q`, vm.ID, state)
	if state == "running" {
		test += ` and v["cloud"].get("ready")`
	}
	return `grange vm list --json | python3 -c 'import json,sys; sys.exit(not any(` + test +
		` for v in json.load(sys.stdin)))'`
}

// startJob starts a job that runs until it is told to end, and returns when it is up.
func startJob(t *testing.T, h *metallab.Host, unit string) {
	t.Helper()
	run(t, h, fmt.Sprintf(`rm -f /root/%[1]s.*; mkfifo /root/%[1]s.in
systemd-run -q --unit=%[1]s -p StandardOutput=file:/root/%[1]s.out -p StandardError=file:/root/%[1]s.err sh -c 'exec grange exec -- sh -c "echo up; read word; echo \$word; exit 7" <>/root/%[1]s.in'`, unit))
	await(t, h, "the job is up", "grep -q up /root/"+unit+".out")
}

// endJob has the job end, and shows that it is the one that was started.
func endJob(t *testing.T, h *metallab.Host, unit string) {
	t.Helper()
	run(t, h, fmt.Sprintf("echo done >/root/%s.in", unit))
	await(t, h, "the job has ended", fmt.Sprintf(`test "$(systemctl show -p SubState --value %s)" = failed`, unit))
	if got := run(t, h, fmt.Sprintf("cat /root/%[1]s.out; systemctl show -p ExecMainStatus --value %[1]s; systemctl "+
		"reset-failed %[1]s", unit)); got != "up\ndone\n7" {
		t.Errorf("the job ended as %q", got)
	}
}

const qemus = "pgrep -f '^/usr/bin/qemu-system' | sort"

// nothingLeft: no machine and no file of one but of the given VMs, and no error in the agent's journal of this boot.
func nothingLeft(t *testing.T, h *metallab.Host, kept ...fleet.WantedVM) {
	t.Helper()
	var disks, running []string
	for _, vm := range kept {
		disks = append(disks, machineName(vm))
		if vm.Power == "on" {
			running = append(running, machineName(vm))
		}
	}
	for what, want := range map[string][]string{"ls /var/lib/grange/vm": disks, "ls /run/grange/vm": running,
		"virsh -q -c qemu:///system list --all --name": running} {
		slices.Sort(want)
		await(t, h, what+" shows what is kept", fmt.Sprintf("test \"$(%s 2>/dev/null | sort | xargs)\" = '%s'", what,
			strings.Join(want, " ")))
	}
	host := query[struct{ Agent api.Host }](t, h, "grange host show --json").Agent
	if host.VMs != len(running) || host.Waiting > 0 {
		t.Errorf("the ledger has %d VMs and %d that wait, want %d", host.VMs, host.Waiting, len(running))
	}
	if got := run(t, h, "journalctl -q -b --no-pager -p err -u grange-agent; systemctl list-units --failed --plain "+
		"--no-legend 'grange*'"); got != "" {
		t.Errorf("after the boot:\n%s", got)
	}
}

// TestPowerLoss cuts the power of a host under a job and cloud VMs.
func TestPowerLoss(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{})
	on, off := cloudVM(t, h, "web", "on"), cloudVM(t, h, "idle", "off")
	run(t, h, "systemctl restart grange-agent")
	await(t, h, "the VM runs", is(on, "running"))
	startJob(t, h, "lost")
	const accelerated = "virsh -c qemu:///system dumpxml %s | grep -q \"^<domain type='kvm'\""
	scratch := "/var/lib/grange/vm/" + machineName(on) + "/scratch.raw"
	before := run(t, h, "sync; stat -c %i "+scratch)
	h.PowerLoss()
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, h, "the VM that was on runs", is(on, "running"))
	run(t, h, fmt.Sprintf(accelerated, machineName(on))) // although the agent is up before KVM
	await(t, h, "the VM that was off is stopped", is(off, "stopped"))
	if got := run(t, h, "stat -c %i "+scratch); got != before {
		t.Errorf("its disk is another one: %s, was %s", got, before)
	}
	nothingLeft(t, h, on, off)
	run(t, h, "test $(grange exec -- sh -c 'echo $((6*7))') = 42")
}

// TestRestarts has a job and a cloud VM live through what an upgrade and an administrator do: libvirtd and the agent
// end and come again, in order and not, and the packages of libvirt, QEMU and grange are unpacked and configured anew.
func TestRestarts(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{})
	on := cloudVM(t, h, "web", "on")
	run(t, h, "systemctl restart grange-agent")
	await(t, h, "the VM runs", is(on, "running"))
	startJob(t, h, "job")
	before := run(t, h, qemus)
	for _, step := range []struct{ what, script string }{
		{"libvirtd restarted", "systemctl restart libvirtd"},
		{"libvirtd killed", "systemctl kill -s KILL libvirtd; systemctl start libvirtd"},
		{"the agent restarted", "systemctl restart grange-agent"},
		{"the agent killed", "systemctl kill -s KILL grange-agent"},
		{"libvirt and QEMU upgraded", reinstall("qemu-system-x86 libvirt-daemon libvirt-daemon-system")},
		{"grange upgraded", "cd /root/packages && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --reinstall " +
			"./grange_*.deb"},
	} {
		run(t, h, step.script)
		await(t, h, step.what+": the agent has the VM", is(on, "running"))
		if after := run(t, h, qemus); after != before {
			t.Errorf("%s: QEMUs are %q, were %q", step.what, after, before)
		}
	}
	endJob(t, h, "job")
	run(t, h, "test $(grange exec -- sh -c 'echo $((6*7))') = 42")
	nothingLeft(t, h, on)
}

// reinstall is a script that installs packages again, made of what dpkg has installed of them: an upgrade to a release
// with the same files.
func reinstall(packages string) string {
	return `set -e
mkdir -p /root/again; cd /root/again; rm -rf *
for p in ` + packages + `; do
	mkdir -p $p/DEBIAN
	dpkg-query -s $p | sed '/^Status:/d; /^Conffiles:/,/^[^ ]/{/^Conffiles:/d; /^ /d}' >$p/DEBIAN/control
	for f in preinst postinst prerm postrm conffiles triggers; do
		for i in /var/lib/dpkg/info/$p.$f /var/lib/dpkg/info/$p:amd64.$f; do [ ! -e $i ] || cp -p $i $p/DEBIAN/$f; done
	done
	dpkg -L $p | while read -r f; do [ -h "$f" -a -d "$f" ] || [ ! -e "$f" ] || echo "$f"; done | tar -C / -cf - --no-recursion -T - 2>/dev/null | tar -C $p -xf -
	dpkg-deb -Znone --root-owner-group -b $p $p.deb >/dev/null
done
DEBIAN_FRONTEND=noninteractive dpkg --force-confold -i *.deb`
}
