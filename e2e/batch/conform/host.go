package conform

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/allotment"
)

// BreakHost makes those faults that have nothing to do with a batch system. ok is false for the others, which are the
// system's own.
func BreakHost(ctx context.Context, l *lab.Lab, f Fault) (mend func(), ok bool, err error) {
	switch f {
	case NoAgent:
		l.KillAgent()
		return func() { l.StartAgent(context.WithoutCancel(ctx)) }, true, nil
	case NoHypervisor:
		err := l.KillLibvirtd()
		return func() {
			l.StartLibvirtd(context.WithoutCancel(ctx))
			l.KillAgent() // one that has seen several VMs come to nothing makes none for a minute
			l.StartAgent(context.WithoutCancel(ctx))
		}, true, err
	case NoImage: // the case asks for it
		return func() {}, true, nil
	}
	return nil, false, nil
}

// bootID is the host's: a job that sees it did not run in a VM.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}

// machine is the VM of a job, once it runs.
func (t *try) machine(ctx context.Context, id string) (api.VM, error) {
	var found api.VM
	err := until(ctx, "the agent knows a VM of job "+id, func() bool {
		vms, err := t.Lab().Client.VMs(ctx)
		if err != nil {
			return false
		}
		for _, vm := range vms {
			if _, job, _ := strings.Cut(vm.Batch, "/"); job == id && vm.State != "starting" {
				found = vm
				return true
			}
		}
		return false
	})
	return found, err
}

// hasVM reports whether the agent has a VM for a job, or is making one.
func (t *try) hasVM(ctx context.Context, id string) bool {
	vms, err := t.Lab().Client.VMs(ctx)
	return err == nil && slices.ContainsFunc(vms, func(vm api.VM) bool {
		_, job, _ := strings.Cut(vm.Batch, "/")
		return job == id
	})
}

// qemu is the process of a VM.
func (t *try) qemu(name string) (int, error) {
	for _, pid := range t.Lab().QEMUs() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(text, []byte("guest="+name)) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no QEMU runs for VM %s", name)
}

// pausedBy returns what keeps a VM from running a single instruction: libvirt, on the agent's word, or the batch
// system, which froze or stopped its QEMU; "" if nothing does.
func (t *try) pausedBy(ctx context.Context, name string, pid int) string {
	if allotment.Frozen(os.DirFS("/"), pid) {
		return "its process is stopped"
	}
	if t.libvirtPaused(ctx, name) {
		return "libvirt says paused"
	}
	return ""
}

func (t *try) libvirtPaused(ctx context.Context, name string) bool {
	state, err := t.Lab().Virsh(ctx, "domstate", name)
	return err == nil && strings.TrimSpace(state) == "paused"
}

// cpuTime is what a process has used, user and system, of all its threads.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold blanks
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime, proc(5)
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ is 100 on every Linux
}

// works is what a process uses in a second. A second is as short as can be told apart from noise: a tick is 10 ms.
func works(ctx context.Context, pid int) (time.Duration, error) {
	before, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := cpuTime(pid)
	return after - before, err
}
