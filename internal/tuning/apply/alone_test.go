package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// door is an agent: a VM runs on its host whenever it is not drained, and one that runs at the drain ends when it was
// asked twice.
type door struct {
	m       *machine
	drained bool
	left    int // how often the drain is still answered with a VM
	event   func()
}

func (d *door) Drain(context.Context, string) ([]string, error) {
	d.event()
	if !d.drained {
		d.drained, d.left = true, 1
	}
	var holders []string
	if d.left > 0 {
		holders, d.left = []string{"grange-1 (alice: sleep)"}, d.left-1
	}
	d.event()
	return holders, nil
}

func (d *door) EndDrain(context.Context) error {
	d.event()
	d.drained = false
	d.event()
	return nil
}

// aloneOnce is what `grange tune apply --drain` does after its plan was agreed to; it panics at the event killAt and
// returns how many there were.
func aloneOnce(t *testing.T, m *machine, d *door, killAt int, findings []tuning.Finding) (events int, err error) {
	t.Helper()
	d.event = func() {
		if events++; events == killAt {
			panic(killed{})
		}
	}
	m.live.run = func(ctx context.Context, program string, args ...string) (string, error) {
		if !d.drained || d.left > 0 {
			t.Errorf("event %d: %s %v while VMs may run", events, program, args)
		}
		d.event()
		out, err := m.play(ctx, program, args...)
		d.event()
		return out, err
	}
	o := Options{Tell: func(Progress) { d.event() }}
	survives(func() {
		err = Alone(t.Context(), m, d, o, func([]string) { d.event() }, func(*Run) error {
			plan, err := NewPlan(t.Context(), m, findings)
			if err == nil && len(plan.Steps) > 0 {
				_, err = Do(t.Context(), m, plan, o)
			}
			return err
		})
	})
	return events, err
}

// TestAloneAfterAKill kills at every event and gives the same command again: KVM is as wanted, VMs may start, and an
// undo leaves what was found.
func TestAloneAfterAKill(t *testing.T) {
	for killAt, events := 1, 1; killAt <= events; killAt++ {
		synctest.Test(t, func(t *testing.T) { events = max(events, killAndRepeat(t, killAt)) })
	}
}

// killAndRepeat returns how many events an apply on a drained host has.
func killAndRepeat(t *testing.T, killAt int) int {
	m := withKVM(t)
	before := look(t, m.root)
	d := &door{m: m}
	if n, err := aloneOnce(t, m, d, killAt, eptOn); err != nil {
		t.Fatalf("killed at %d: %v after %d events", killAt, err, n)
	}
	if !d.drained && !m.exists("sys/module/kvm_intel") {
		t.Fatalf("killed at %d: VMs may start and KVM is not loaded", killAt)
	}
	n, err := aloneOnce(t, m, d, 0, eptOn)
	if err != nil || d.drained {
		t.Fatalf("killed at %d, then the same again: %v, drained %v", killAt, err, d.drained)
	}
	if params, _ := moduleParams(m.root, "kvm_intel"); params["ept"] != "Y" {
		t.Fatalf("killed at %d, then the same again: kvm_intel has %v", killAt, params)
	}
	m.live.run = m.play
	if _, err := Undo(t.Context(), m, "", false, Options{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, look(t, m.root)); diff != "" {
		t.Fatalf("killed at %d, the same again, undone (-before +after):\n%s", killAt, diff)
	}
	return n
}

// Ctrl-C while VMs are waited for ends the drain: nothing was changed. Work that failed and was taken back does, too.
func TestAloneLetsVMsInAgain(t *testing.T) {
	m := withKVM(t)
	d := &door{m: m, event: func() {}}
	m.write("proc/77/comm", "qemu-kvm\n", 0o644)
	ctx, cancel := context.WithCancel(t.Context())
	var told []string
	err := Alone(ctx, m, d, Options{}, func(left []string) { told = left; cancel() },
		func(*Run) error { t.Error("work beside a VM"); return nil })
	wantCode(t, err, farm.CodeVMsRunning)
	if d.drained || !slices.Contains(told, "grange-1 (alice: sleep)") || len(told) != 2 {
		t.Errorf("drained %v, told %v", d.drained, told)
	}
	if err := m.root.RemoveAll("proc/77"); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("the plan is stale")
	if err := Alone(t.Context(), m, d, Options{}, func([]string) {},
		func(*Run) error { return failed }); !errors.Is(err, failed) || d.drained {
		t.Errorf("%v, drained %v", err, d.drained)
	}
}

// While the host is between two states no VM starts there.
func TestAloneStaysDrained(t *testing.T) {
	m := withKVM(t)
	d := &door{m: m, event: func() {}}
	err := Alone(t.Context(), m, d, Options{}, func([]string) {}, func(*Run) error {
		plan, err := NewPlan(t.Context(), m, eptOn)
		if err != nil {
			return err
		}
		m.live.run = func(ctx context.Context, program string, args ...string) (string, error) {
			if args[0] != "-r" {
				return "", errors.New("modprobe: ERROR: could not insert 'kvm_intel'")
			}
			return m.play(ctx, program, args...)
		}
		_, err = Do(t.Context(), m, plan, Options{})
		return err
	})
	wantCode(t, err, CodeUndoFailed)
	if !d.drained {
		t.Error("VMs may start on a host without KVM")
	}
	m.live.run = m.play
	if n, err := aloneOnce(t, m, d, 0, eptOn); err != nil || d.drained {
		t.Errorf("the same again: %v after %d events, drained %v", err, n, d.drained)
	}
}

// A module that somebody looks at just now is taken out a moment later; one that stays in use is an error.
func TestModuleInUse(t *testing.T) {
	m := withKVM(t)
	busy := 2
	m.live.run = func(ctx context.Context, program string, args ...string) (string, error) {
		if args[0] == "-r" && busy > 0 {
			busy--
			m.write("sys/module/kvm_intel/refcnt", fmt.Sprintln(busy), 0o444) // the last one is gone when we look
			return "", errors.New("modprobe: FATAL: Module kvm_intel is in use.")
		}
		return m.play(ctx, program, args...)
	}
	if err := doPlan(t, m, eptOn); err != nil || busy != 0 {
		t.Errorf("%v, %d looks left", err, busy)
	}
}

// TestUnnamed: a VM that the agent has named is not listed a second time.
func TestUnnamed(t *testing.T) {
	vms := []VM{{PID: 4, Name: "grange-1"}, {PID: 5, Name: "grange-11"}, {Name: "web"}}
	got := unnamed(vms, []string{"grange-11 (alice: sleep)", "web"})
	if d := cmp.Diff([]string{"grange-1 (PID 4)"}, got); d != "" {
		t.Error(d)
	}
}
