package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSystems holds the tree to what the live host does, as far as a step sees it. The live one's programs are played; the real
// ones, and the kernel, are e2e/tune's.
func TestSystems(t *testing.T) {
	const value = "proc/sys/vm/swappiness"
	files := map[string]string{value: "60\n", "sys/module/kvm_intel/parameters/ept": "N\n", "sys/module/kvm_intel/initstate": "live\n", "run/systemd/system/x": "",
		"proc/812/comm": "ksmtuned\n", unitDir + "/multi-user.target.wants/ksmtuned.service": "-> /usr/lib/systemd/system/ksmtuned.service"}
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
	for _, want := range []Service{{Enabled: "disabled"}, {Active: true, Enabled: "disabled"}, {Active: true, Enabled: "enabled"}, {Enabled: "enabled"}} {
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
