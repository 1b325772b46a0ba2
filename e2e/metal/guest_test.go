package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

// held is a VM that a job keeps.
type held struct {
	name string // of its files in /root/held
	vm   api.VM // as the agent shows it once its guest has reported
	out  string // what its job wrote
}

// hold runs a script in a VM, which stays until the release. What the agent shows of it is awaited with the guest's
// report in it.
func hold(t *testing.T, h *metallab.Host, name, flags, script string) held {
	t.Helper()
	run(t, h, fmt.Sprintf(`mkdir -p /root/held; cd /root/held; rm -f %[1]s.*
setsid grange exec --json %[2]s -- sh -c '%[3]s
echo UP; sleep 900' >%[1]s.out 2>%[1]s.err </dev/null & echo $! >%[1]s.pid
until grep -q UP %[1]s.out; do sleep 1; kill -0 $! || { cat %[1]s.err; exit 1; }; done
sed -n 's/.*"event":"vm".*"name":"\([^"]*\)".*/\1/p' %[1]s.err | tail -1 >%[1]s.vm
for i in $(seq 60); do grange vm show --json $(cat %[1]s.vm) | grep -q '"guest":' && break; sleep 0.5; done`, name, flags, script))
	return held{name: name, vm: query[api.VM](t, h, "grange vm show --json $(cat /root/held/"+name+".vm)"),
		out: run(t, h, "cat /root/held/"+name+".out")}
}

// holdAll is hold of several, one after the other: two cores that emulate a host start no two faster together.
func holdAll(t *testing.T, h *metallab.Host, n int, flags, script string) []held {
	t.Helper()
	all := make([]held, n)
	for i := range all {
		all[i] = hold(t, h, fmt.Sprintf("vm%d", i), flags, script)
	}
	return all
}

// release ends the jobs, and returns when their VMs are gone.
func release(t *testing.T, h *metallab.Host) {
	t.Helper()
	run(t, h, `cd /root/held; for p in *.pid; do kill $(cat $p) || true; done
until test "$(grange vm list --json | tr -d ' \n')" = '[]'; do sleep 0.3; done; rm -f *`)
}

// seen checks that a VM's guest reported, and sees what was planned.
func seen(t *testing.T, v held) {
	t.Helper()
	g, p := v.vm.Guest, v.vm.Plan
	switch {
	case g == nil:
		t.Errorf("%s: its guest has reported nothing", v.vm.Name)
	case len(g.Differs) > 0:
		t.Errorf("%s: %s", v.vm.Name, strings.Join(g.Differs, "; "))
	case g.Sockets != p.Sockets || g.Cores != p.Cores || g.Threads != p.Threads || len(g.Nodes) != len(p.Cells):
		t.Errorf("%s: its guest sees %+v of %+v", v.vm.Name, *g, p)
	}
}

// proof is what `grange tune verify --json` prints.
type proof struct {
	VMs []struct {
		Name, Verdict string
		Memory        map[string]uint64
	}
	Problems []struct{ Severity, VM, Message string }
}

// proven checks that the kernel has all VMs where they were planned, memory and all.
func proven(t *testing.T, h *metallab.Host, want int) proof {
	t.Helper()
	p := query[proof](t, h, "grange tune verify --json || test $? -le 5")
	if len(p.VMs) != want {
		t.Errorf("%d VMs are verified, want %d", len(p.VMs), want)
	}
	for _, vm := range p.VMs {
		if vm.Verdict != "proven" {
			t.Errorf("%s is %s: %+v", vm.Name, vm.Verdict, p.Problems)
		}
	}
	return p
}
