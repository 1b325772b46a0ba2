package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// proof is what grange tune verify --json prints, as far as the test looks at it.
type proof struct {
	VMs []struct {
		Name    string
		PID     int
		Ours    bool
		Verdict string
		Threads []struct{ Thread, Planned, Libvirt, Kernel string }
	}
	Problems []struct {
		Kind, Severity, VM string
		Others             []string
	}
}

// verify asks for the proof of one VM, and returns the exit status with it.
func verify(t *testing.T, name string) (proof, int) {
	t.Helper()
	r := run(t, host.Grange(ctx(t), "tune", "verify", "--json", name), "")
	var p proof
	if err := json.Unmarshal([]byte(r.out), &p); err != nil || len(p.VMs) != 1 {
		t.Fatalf("status %d, %v: %s%s", r.code, err, r.out, r.errors)
	}
	return p, r.code
}

// about reports whether the proof has a problem of this kind with the VM, and with other where that is not empty.
func (p proof) about(kind, vm, other string) bool {
	for _, x := range p.Problems {
		all := append(x.Others, x.VM)
		if x.Kind == kind && slices.Contains(all, vm) && (other == "" || slices.Contains(all, other)) {
			return true
		}
	}
	return false
}

// TestVerify proves where a VM of ours runs, moves one of its threads, and puts a stranger on its CPU. The machine may
// have VMs of other people: what they do is their business.
func TestVerify(t *testing.T) {
	start(t, host, "--", "sh", "-c", "echo up; sleep 1000")
	name := vmName(t)
	p, _ := verify(t, name)
	vcpu := p.VMs[0].Threads[0]
	if vcpu.Thread != "vCPU 0" || vcpu.Planned == "" || vcpu.Planned != vcpu.Libvirt || vcpu.Libvirt != vcpu.Kernel ||
		!p.VMs[0].Ours {
		t.Fatalf("not proven: %+v", p.VMs[0])
	}
	for _, kind := range []string{"stray-vcpu", "plan-differs", "emulator-on-vcpu", "offline-cpu", "cpuset",
		"remote-memory"} {
		for _, x := range p.Problems {
			// with others it is those of another test, on our CPUs
			if x.Kind == kind && x.VM == name && len(x.Others) == 0 {
				t.Errorf("a false alarm: %+v", x)
			}
		}
	}
	cpu, err := strconv.Atoi(vcpu.Planned)
	if err != nil {
		t.Fatal(err)
	}
	thread := threadNamed(t, p.VMs[0].PID, "CPU 0/")
	affine(t, thread, cpu, otherCPU(cpu))
	if p, code := verify(t, name); !p.about("stray-vcpu", name, "") || p.VMs[0].Verdict == "proven" || code < 4 {
		t.Errorf("a vCPU that may run elsewhere is not found: %+v, status %d", p, code)
	}
	affine(t, thread, cpu)
	if p, _ := verify(t, name); p.about("stray-vcpu", name, "") {
		t.Errorf("the thread is back, and the problem stays: %+v", p.Problems)
	}

	whySlow(t, name)

	stranger := fmt.Sprintf("stranger-%d", os.Getpid())
	pid := startStranger(t, stranger)
	affine(t, threadNamed(t, pid, "CPU 0/"), cpu)
	p, code := verify(t, name)
	if !p.about("crowded-cpus", name, stranger) || code < 4 {
		t.Errorf("a stranger's VM on the same CPU is not found: %+v, status %d", p, code)
	}
	// by name: the machine may have VMs of others, which come and go
	r := run(t, host.Grange(ctx(t), "tune", "verify", name, stranger), "")
	if r.code < code || !strings.Contains(r.out, stranger) || !strings.Contains(r.out, "crowded-cpus") {
		t.Errorf("status %d, want %d or worse, of a table without the stranger:\n%s%s", r.code, code, r.out, r.errors)
	}
}

// whySlow asks what a VM that idles loses its time to.
func whySlow(t *testing.T, name string) {
	t.Helper()
	r := run(t, host.Grange(ctx(t), "tune", "why-slow", name, "--for", "1s", "--json"), "")
	var says struct {
		VM                  string
		VCPUs               int
		Seconds             float64
		QEMU, Kernel, Waits float64
		Causes              []struct{ Name, Text, Next string }
		Findings, Problems  []string
	}
	if err := json.Unmarshal([]byte(r.out), &says); err != nil || r.code != 0 || says.VM != name || says.VCPUs != 1 ||
		says.Seconds < 1 || says.Findings == nil || says.Problems == nil || says.Causes == nil {
		t.Errorf("status %d, %v: %s%s", r.code, err, r.out, r.errors)
	}
	if r := run(t, host.Grange(ctx(t), "tune", "why-slow", "nobody"), ""); r.code != 1 ||
		!strings.Contains(r.errors, "no-vm") {
		t.Errorf("a VM that is not there: status %d, %s", r.code, r.errors)
	}
}

// startStranger starts a VM that no libvirt knows, paused.
func startStranger(t *testing.T, name string) int {
	t.Helper()
	cmd := exec.Command("/usr/bin/qemu-system-x86_64", "-S", "-name", "guest="+name+",debug-threads=on", "-machine",
		"q35,accel=tcg", "-m", "64", "-display", "none", "-nodefaults")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// threadNamed finds a thread of a process by the start of its name, and waits for one that is still being made.
func threadNamed(t *testing.T, pid int, prefix string) int {
	t.Helper()
	for c := ctx(t); c.Err() == nil; time.Sleep(20 * time.Millisecond) {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
		for _, path := range names {
			if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), prefix) {
				id, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				if err != nil {
					t.Fatal(err)
				}
				return id
			}
		}
	}
	t.Fatalf("process %d has no thread %s", pid, prefix)
	return 0
}

func affine(t *testing.T, thread int, cpus ...int) {
	t.Helper()
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(thread, &set); err != nil {
		t.Fatal(err)
	}
}

func otherCPU(cpu int) int {
	if cpu == 0 {
		return 1
	}
	return 0
}
