package slurmlab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/internal/farm"
)

// TestMetalHoldsItsCPUs: a VM that Slurm knows nothing of stays off the CPUs of a job that Slurm runs on the host, and
// those of Slurm's own jobs do not mind it.
func TestMetalHoldsItsCPUs(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	l, err := Start(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(t)
	if !l.Cgroups() {
		t.Fatal("Slurm confines nothing here: this machine lacks control groups")
	}
	stop := l.path("home/stop")
	id := l.submit(ctx, t, conform.Job{Metal: true, Memory: 600,
		Script: "#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status\n" + "while [ ! -e " + stop +
			" ]; do sleep 0.1; done\n"})
	defer os.WriteFile(stop, nil, 0o644)
	held := farm.CPUSet{}
	l.eventually(ctx, t, "the job on the host runs", func() bool {
		out, _ := l.Output(id)
		_, list, ok := strings.Cut(out, "Cpus_allowed_list:\t")
		if !ok || !strings.HasSuffix(list, "\n") {
			return false
		}
		held, err = farm.ParseCPUSet(strings.TrimSpace(list))
		return err == nil
	})
	key := "slurm/" + id

	// the agent may have looked a moment before the job came
	l.eventually(ctx, t, "grange host show names "+key, func() bool {
		host, err := l.host.Grange(ctx, "host", "show").CombinedOutput()
		return err == nil && strings.Contains(string(host), key)
	})
	out, err := l.host.Exec(ctx, "--no-wait", "--cpus", fmt.Sprint(l.cpus()), "--memory", "300M", "--",
		"true").CombinedOutput()
	if want := fmt.Sprintf("%s on the host holds CPUs %v and 600", key, held); err == nil ||
		!strings.Contains(string(out), want) {
		t.Errorf("a VM with all CPUs: %v, want %q in\n%s", err, want, out)
	}
	beside := l.host.Exec(ctx, "--no-wait", "--cpus", "1", "--memory", "300M", "--", "sh", "-c", "echo up; cat")
	stdin, _ := beside.StdinPipe()
	stdout, _ := beside.StdoutPipe()
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 3)); err != nil {
		t.Fatal("no VM beside the job on the host: ", err)
	}
	vms, err := l.host.Client.VMs(ctx)
	if err != nil || len(vms) != 1 {
		t.Fatalf("%v %v", vms, err)
	}
	for _, list := range append(vms[0].Plan.VCPUs, vms[0].Plan.Emulator) {
		if cpus, err := farm.ParseCPUSet(list); err != nil || !cpus.And(held).Empty() {
			t.Errorf("the VM has CPUs %s, the job on the host %v: %v", list, held, err)
		}
	}
	stdin.Close()
	if err := beside.Wait(); err != nil {
		t.Error(err)
	}

	// Slurm puts its own VM jobs where it likes; whoever wants all CPUs waits for the job on the host.
	if r := l.try(ctx, t, conform.Job{Image: "micro", Script: "#!/bin/sh\nexit 5\n"}); r.Code != 5 {
		t.Errorf("a VM job of Slurm beside it: %v", r)
	}
	all := l.host.Exec(ctx, "--cpus", fmt.Sprint(l.cpus()), "--memory", "300M", "--", "true")
	var said strings.Builder
	all.Stderr = &said
	if err := all.Start(); err != nil {
		t.Fatal(err)
	}
	l.eventually(ctx, t, "it waits", func() bool {
		h, err := l.host.Client.Host(ctx)
		return err == nil && h.Waiting == 1
	})
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := all.Wait(); err != nil || !strings.Contains(said.String(), key+" on the host") {
		t.Errorf("when the job on the host has ended: %v\n%s", err, said.String())
	}
	if left := append(l.host.Leaks(ctx), l.Sound(ctx)...); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

func (l *Lab) eventually(ctx context.Context, t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			t.Fatal("not within minutes: " + what)
		}
	}
}
