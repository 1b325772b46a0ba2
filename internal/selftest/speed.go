package selftest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/execjob"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/rawqemu"
	"github.com/grange-project/grange/internal/selftest/probe"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// errBusy is the error of a CPU that somebody else was given meanwhile.
var errBusy = errors.New("the CPU is in use")

// starts takes turns between a job and QEMU alone, on the CPU that the job's VM had. A first run of each does not
// count.
func (t *tester) starts(ctx context.Context) verdict.Starts {
	s := verdict.Starts{Phases: map[string][]float64{}}
	guest, why, err := t.Raw(t.image)
	if err != nil || why != "" {
		s.NoRaw = why
		if err != nil {
			s.Code, s.Details = string(farm.CodeInternal), []string{err.Error()}
		}
		return s
	}
	one := verdict.One(t.room)
	guest.Memory = one.Memory
	began, done := time.Now(), false
	cpus := ""
	ours := func() (time.Duration, error) {
		t0 := time.Now()
		j, e := t.run(ctx, one, []string{"--no-wait"}, "true")
		took := time.Since(t0)
		switch {
		case j.Refused:
			return 0, errBusy
		case j.Code != "" || j.Status != 0 || e.VM == nil || len(e.VM.Plan.VCPUs) == 0:
			s.Code, s.Details = j.Code, j.Details
			return 0, fmt.Errorf("status %d", j.Status)
		}
		cpus, guest.KVM = e.VM.Plan.VCPUs[0], e.VM.Applied.Accelerator == "kvm"
		for _, p := range e.Phases {
			if done {
				s.Phases[p.Name] = append(s.Phases[p.Name], p.Milliseconds)
			}
		}
		return took, nil
	}
	raw := func() (time.Duration, error) { return t.raw(ctx, guest, cpus) }
	if _, err = inTurn(ours, raw); err == nil {
		done, began = true, time.Now()
	}
	for err == nil && verdict.MoreRounds(len(s.Rounds), time.Since(began)) {
		var took []time.Duration
		if took, err = inTurn(ours, raw, raw, ours); err == nil {
			round := verdict.Round{Ours: (took[0] + took[3]) / 2, Raw: (took[1] + took[2]) / 2}
			s.Rounds = append(s.Rounds, round)
			t.say("      a job %.2f s, QEMU alone %.2f s", round.Ours.Seconds(), round.Raw.Seconds())
		}
	}
	if err != nil {
		s.Busy = errors.Is(err, errBusy) && len(s.Rounds) == 0
		s.Details = append(s.Details, err.Error())
	}
	return s
}

// inTurn measures one thing after the other.
func inTurn(measures ...func() (time.Duration, error)) ([]time.Duration, error) {
	var all []time.Duration
	for _, measure := range measures {
		took, err := measure()
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// raw boots QEMU alone on CPUs that the agent gives to nobody meanwhile: it is a job outside of VMs, whose claim ends
// with this process.
func (t *tester) raw(ctx context.Context, g rawqemu.Guest, cpus string) (time.Duration, error) {
	key := fmt.Sprintf("selftest/%d", os.Getpid())
	claim, err := t.Client.Claim(ctx, api.Claim{Key: key, CPUs: cpus, Memory: uint64(g.Memory), Process: os.Getpid()})
	if err != nil {
		return 0, err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		t.Client.Release(bounded, key)
	}()
	if len(claim.Conflicts) > 0 {
		return 0, errBusy
	}
	return rawqemu.Boot(ctx, g, cpus)
}

// The fastest run of each side counts, so runs are short and many: a host is rarely quiet for long.
const (
	loadPairs = 30
	loadTime  = 50 * time.Millisecond // of a run, about
	mostLoad  = 64
)

// loads runs the same load in a VM and, while it idles, on the CPU that it has.
func (t *tester) loads(ctx context.Context) verdict.Loads {
	out := verdict.Loads{Nested: t.Facts.Virtual, Guest: map[string][]time.Duration{},
		Host: map[string][]time.Duration{}}
	j, err := t.launch(ctx, verdict.One(t.room), t.probeIn(probe.Hold)...)
	if err != nil {
		out.Code, out.Details = string(farm.CodeInternal), []string{err.Error()}
		return out
	}
	if line, _ := j.Out.ReadString('\n'); line == probe.Up+"\n" && j.VM() != nil {
		vm := j.VM()
		out.Emulated = vm.Applied.Accelerator != "kvm"
		err = t.compare(ctx, j, vm.Plan.VCPUs[0], out)
	}
	out.Job = verdict.Job(j.Finish())
	if err != nil {
		out.Details = append(out.Details, err.Error())
	}
	return out
}

func (t *tester) compare(ctx context.Context, j *execjob.Job, cpus string, out verdict.Loads) error {
	cmd := execjob.Program(ctx, "/usr/bin/taskset", "-c", cpus, t.GuestFile, probe.Name, probe.Hold)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { in.Close(); cmd.Wait() }()
	host := bufio.NewReader(pipe)
	if _, err := host.ReadString('\n'); err != nil {
		return err
	}
	once, err := load(in, host, 1)
	if err != nil {
		return err
	}
	n := min(max(int(loadTime/max(once[0]+once[1], time.Microsecond)), 1), mostLoad)
	for range loadPairs {
		for _, side := range []struct {
			in  io.Writer
			out *bufio.Reader
			all map[string][]time.Duration
		}{{in, host, out.Host}, {j.In, j.Out, out.Guest}} {
			took, err := load(side.in, side.out, n)
			if err != nil {
				return err
			}
			for i, kind := range probe.Kinds {
				side.all[kind] = append(side.all[kind], took[i])
			}
		}
	}
	return nil
}

// load has a probe that holds do its work n times.
func load(in io.Writer, out *bufio.Reader, n int) (took [2]time.Duration, err error) {
	if _, err := fmt.Fprintf(in, "load %d\n", n); err != nil {
		return took, err
	}
	line, err := out.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, (*int64)(&took[0]), (*int64)(&took[1]))
	}
	return took, err
}
