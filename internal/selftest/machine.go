package selftest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/selftest/probe"
	"github.com/grange-project/grange/internal/selftest/verdict"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/wire"
)

// vmLimit is how long one VM may take from its request to its end.
const vmLimit = 4 * time.Minute

// machine runs a VM of a shape and looks at it from outside, once.
func (t *tester) machine(ctx context.Context, s verdict.Shape) verdict.Machine {
	if m, ok := t.machines[s.Name]; ok {
		return m
	}
	m := verdict.Machine{Shape: s}
	if s.Missing == "" && s.InUse == "" {
		t.say("      a VM: %s, %v", s.Name, s.Memory)
		m = t.try(ctx, s)
	}
	if ctx.Err() == nil {
		t.machines[s.Name] = m
	}
	return m
}

func (t *tester) try(ctx context.Context, s verdict.Shape) verdict.Machine {
	bounded, cancel := context.WithTimeout(ctx, vmLimit)
	defer cancel()
	m := verdict.Machine{Shape: s}
	j, err := t.launch(bounded, s, t.probeIn(probe.Hold)...)
	if err != nil {
		m.Failed, m.Details = string(farm.CodeInternal), []string{err.Error()}
		return m
	}
	if line, _ := j.Out.ReadString('\n'); line == probe.Up+"\n" {
		t.observe(bounded, j.VM(), &m)
	}
	end := verdict.Job(j.Finish())
	m.Details = slices.Compact(append(m.Details, end.Details...))
	switch m.Refused = end.Refused; {
	case bounded.Err() != nil:
		m.Failed = verdict.Late
	case end.Code != "":
		m.Failed = end.Code
	case end.Status != 0:
		m.Failed = verdict.WrongStatus
	}
	return m
}

// observe looks at a VM that runs.
func (t *tester) observe(ctx context.Context, vm *api.VM, m *verdict.Machine) {
	if vm == nil {
		m.Details = append(m.Details, "`grange exec` said nothing of its VM")
		return
	}
	note := func(err error) {
		if err != nil {
			m.Details = append(m.Details, err.Error())
		}
	}
	seen, err := t.sight(ctx, vm.ID)
	note(err)
	if m.Plan, err = wire.ParsePlan(vm.Plan); err != nil {
		note(err)
		return
	}
	m.Accelerator, m.Guest = seen.Applied.Accelerator, guestOf(seen)
	if seen.Applied.Emulated != "" {
		m.Details = append(m.Details, seen.Applied.Emulated)
	}
	proof, err := t.Prove(ctx)
	note(err)
	pid := 0
	for _, v := range proof.VMs {
		if v.Name == vm.Name {
			pid, m.Proof = v.PID, string(v.Verdict)
		}
	}
	for _, p := range proof.Problems {
		if (p.VM == vm.Name || slices.Contains(p.Others, vm.Name)) && p.Severity > tuning.Advice {
			m.Problems = append(m.Problems, string(p.Kind))
			m.Details = append(m.Details, p.Message)
		}
	}
	if pid == 0 {
		return
	}
	m.KVM = t.kvm(pid)
	m.Label = t.label(pid, seen.Applied.QEMUUID != 0)
	m.Memory = memoryUse(pid, m.Plan, m.KVM.VMs == 0)
}

// sight is the VM once its guest has reported what it sees; as it is, where the guest does not.
func (t *tester) sight(ctx context.Context, id string) (api.VM, error) {
	for deadline := time.Now().Add(20 * time.Second); ; _ = sleep.For(ctx, 200*time.Millisecond) {
		vm, err := t.Client.VM(ctx, id)
		if err != nil || vm.Guest != nil || time.Now().After(deadline) {
			return vm, err
		}
	}
}

func guestOf(vm api.VM) *verdict.Guest {
	if vm.Guest == nil {
		return nil
	}
	return &verdict.Guest{Differs: vm.Guest.Differs}
}

// kvm reads what the kernel says of a QEMU process.
func (t *tester) kvm(pid int) verdict.KVMState {
	k := verdict.KVMState{Nested: t.Facts.Virtual}
	links, err := openFiles(pid)
	if err != nil {
		return k
	}
	k.Known = true
	for _, l := range links {
		if strings.HasPrefix(l, "anon_inode:kvm-vcpu") {
			k.VCPUs++
		} else if l == "anon_inode:kvm-vm" {
			k.VMs++
		}
	}
	k.GuestTicks = guestTicks(pid)
	if paging, name := t.Facts.KVM.Paging(); paging.Off() {
		k.Paging = name
	}
	return k
}
