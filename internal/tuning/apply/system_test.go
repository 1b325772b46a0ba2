package apply

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSystems holds the tree to what the live host does, as far as a step sees it. The live one's programs are played;
// the real ones, and the kernel, are e2e/tune's.
func TestSystems(t *testing.T) {
	const value = "proc/sys/vm/swappiness"
	files := map[string]string{value: "60\n", "sys/module/kvm_intel/parameters/ept": "N\n",
		"sys/module/kvm_intel/initstate": "live\n", "run/systemd/system/x": "", "proc/812/comm": "ksmtuned\n",
		unitDir + "/multi-user.target.wants/ksmtuned.service": "-> /usr/lib/systemd/system/ksmtuned.service"}
	for name, make := range map[string]func(t *testing.T) System{
		"tree": func(t *testing.T) System { return Tree(extract(t, files)) },
		"live": func(t *testing.T) System {
			m := withKVM(t)
			m.write(value, "60", 0o644)
			m.services["ksmtuned"] = &Service{Active: true, Enabled: "enabled"}
			return m
		},
	} {
		t.Run(name, func(t *testing.T) { testSystem(t, make(t), value) })
	}
}

func testSystem(t *testing.T, system System, value string) {
	ctx := t.Context()
	is := func(s Step, want State) {
		t.Helper()
		now, err := present(ctx, system, s)
		if err != nil || !same(s.Kind, now, want) {
			t.Errorf("%s: %v, %s", s.Target(), err, cmp.Diff(want, now))
		}
	}
	v := Step{Kind: StepValue, Path: value}
	is(v, State{Text: "60"})
	if err := system.Write(ctx, value, "10"); err != nil {
		t.Fatal(err)
	}
	is(v, State{Text: "10"})

	unit := Step{Kind: StepService, Unit: "ksmtuned"}
	for _, want := range []Service{{Enabled: "disabled"}, {Active: true, Enabled: "disabled"},
		{Active: true, Enabled: "enabled"}, {Enabled: "enabled"}} {
		if err := system.SetService(ctx, "ksmtuned", want); err != nil {
			t.Fatal(err)
		}
		is(unit, State{Service: &want})
	}
	if s, err := system.Service(ctx, "nobody"); err != nil || s.On() {
		t.Errorf("a service that is not there: %v, %v", s, err)
	}

	for _, word := range []string{"Y", "N"} {
		params := map[string]string{"ept": word}
		if err := system.Load(ctx, []Module{{"kvm_intel", params}}); err != nil {
			t.Fatal(err)
		}
		is(Step{Kind: StepModule, Unit: "kvm_intel", New: State{Params: params}}, State{Params: params})
	}
}

// TestRunningVMs knows a VM by its program and by what of KVM it has open, and by its name only where it shows neither.
func TestRunningVMs(t *testing.T) {
	root := extract(t, map[string]string{
		"proc/1/comm": "systemd\n", "proc/1/exe": "-> /usr/lib/systemd/systemd",
		"proc/1/fd/3": "-> anon_inode:[eventpoll]",
		"proc/2/comm": "kthreadd\n",
		"proc/3/comm": "qemu:web\n", "proc/3/exe": "-> /usr/bin/qemu-system-x86_64",
		"proc/3/cmdline": "qemu\x00-name\x00guest=web,process=qemu:web\x00",
		"proc/4/comm":    "qemu-system-x86\n", "proc/4/exe": "-> /usr/bin/qemu-system-x86_64 (deleted)",
		"proc/5/comm": "vmm\n", "proc/5/exe": "-> /opt/vmm", "proc/5/fd/9": "-> anon_inode:kvm-vm",
		"proc/6/comm": "qemu-kvm\n", "proc/6/exe": "-> /usr/bin/sleep",
		"proc/7/comm": "qemu-kvm\n",
	})
	vms, err := RunningVMs(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []VM{{3, "web"}, {4, "qemu-system-x86"}, {5, "vmm"}, {7, "qemu-kvm"}}
	if !slices.Equal(vms, want) {
		t.Errorf("%v, want %v", vms, want)
	}
}
