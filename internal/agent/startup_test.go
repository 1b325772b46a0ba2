package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/waittest"
)

// hung is a hypervisor that answers no List until it is let go.
type hung struct {
	hyper.Hypervisor
	answers chan struct{}
}

func (h hung) List(ctx context.Context) ([]hyper.Found, error) {
	select {
	case <-h.answers:
		return h.Hypervisor.List(ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serve runs an agent on the farmhouse's host, with its socket, until the test ends.
func (f *farmhouse) serve(h hyper.Hypervisor) *api.Client {
	f.Helper()
	socket := filepath.Join(f.dir, "sock")
	c, err := config.ParseAgent(fmt.Appendf(nil,
		"socket = %q\nslurm_nodes = []\nstate_dir = %q\nrun_dir = %q\ndefault_image = "+
			"\"micro\"\n[default_shape]\ncpus = 1\nmemory = \"128M\"\n", socket, filepath.Join(f.dir, "s"),
		filepath.Join(f.dir, "r")), "test")
	if err != nil {
		f.Fatal(err)
	}
	a, err := New(Options{Config: c, Hypervisor: fakeHyper{h}, Log: slog.New(slog.DiscardHandler), Version: "test",
		Ready: f.ready})
	if err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- a.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		if err := <-over; err != nil {
			f.Errorf("the agent ended with %v", err)
		}
	})
	return api.NewClient(socket)
}

// TestServesBeforeItKnows starts an agent whose hypervisor hangs: it serves, says why jobs wait, grants nothing of what
// a VM may hold that was not listed, and goes on when the hypervisor answers.
func TestServesBeforeItKnows(t *testing.T) {
	for name, hang := range map[string]func(f *farmhouse) (h hyper.Hypervisor, release func()){
		"hangs": func(f *farmhouse) (hyper.Hypervisor, func()) {
			h := hung{f.host.Open(), make(chan struct{})}
			return h, func() { close(h.answers) }
		},
		"is away": func(f *farmhouse) (hyper.Hypervisor, func()) {
			f.host.Kill()
			return f.host.Open(), f.host.Restart
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmhouse(t)
			before := f.mustAsk(f.caller(""), api.JobRequest{Keep: true})
			held := before.until(api.EventRunning)
			f.close()
			h, release := hang(f)
			began, ready := time.Now(), make(chan struct{})
			f.ready = func() { close(ready) }
			client := f.serve(h)
			var host api.Host
			f.eventually("the agent answers", func() (err error) {
				host, err = client.Host(t.Context())
				return err
			})
			select {
			case <-ready:
			case <-time.After(waittest.Limit):
				t.Error("it answers, and does not report that it is ready")
			}
			const margin = 10 * time.Second // 2 s on a quiet machine
			if took := time.Since(began); took > margin {
				t.Errorf("it served after %v", took)
			}
			if host.Recovering == "" || host.Free != "" {
				t.Errorf("it says that %q is free, and that it does not know because %q", host.Free, host.Recovering)
			}
			problem := new(api.Problem)
			if _, err := client.VMs(t.Context()); !errors.As(err, &problem) ||
				problem.Type != "grange:"+string(CodeRecovering) {
				t.Errorf("a list of VMs: %v", err)
			}
			drain, err := client.Drain(t.Context(), "KVM is loaded anew")
			if err != nil || len(drain.Holders) != 1 || !strings.Contains(drain.Holders[0], "not known yet which VMs run") {
				t.Errorf("drained, who is left is %q, %v", drain.Holders, err)
			}
			if _, err := client.Images(t.Context()); err != nil {
				t.Errorf("images need no hypervisor: %v", err)
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			events := make(chan api.JobEvent, 100)
			go client.Job(ctx, api.JobRequest{ID: api.NewID(), Argv: []string{"x"}, Dir: "/"},
				func(e api.JobEvent) error { events <- e; return nil })
			awaitEvent(t, events, func(e api.JobEvent) bool {
				return e.Event == api.EventWaiting && strings.Contains(e.Message, "not known yet which VMs run")
			})
			release()
			f.eventually("the drain ends", func() error { return client.EndDrain(t.Context()) })
			awaitEvent(t, events, func(e api.JobEvent) bool {
				if e.Event == api.EventVM && overlaps(t, e.VM.Plan, held.Plan) {
					t.Errorf("CPUs %v were granted, of which another VM holds %v", e.VM.Plan.VCPUs, held.Plan.VCPUs)
				}
				return e.Event == api.EventRunning || e.Event == api.EventWaiting &&
					strings.Contains(e.Message, held.Name)
			})
			leave()
			f.eventually("both VMs are known", func() error {
				vms, err := client.VMs(t.Context())
				if err == nil && len(vms) == 0 {
					err = errors.New("none")
				}
				return err
			})
		})
	}
}

func overlaps(t *testing.T, x, y api.Plan) bool {
	t.Helper()
	var a, b farm.CPUSet
	for _, of := range []struct {
		plan api.Plan
		set  *farm.CPUSet
	}{{x, &a}, {y, &b}} {
		for _, text := range of.plan.VCPUs {
			set, err := farm.ParseCPUSet(text)
			if err != nil {
				t.Fatal(err)
			}
			*of.set = of.set.Or(set)
		}
	}
	return !a.And(b).Empty()
}

func awaitEvent(t *testing.T, events <-chan api.JobEvent, want func(api.JobEvent) bool) {
	t.Helper()
	limit := time.After(waittest.Limit)
	for {
		select {
		case e := <-events:
			if want(e) {
				return
			}
			if e.Problem != nil {
				t.Fatalf("%s: %v", e.Event, e.Problem)
			}
		case <-limit:
			t.Fatal("the event that was waited for did not come")
		}
	}
}

func (f *farmhouse) eventually(what string, try func() error) {
	f.Helper()
	for deadline := time.Now().Add(waittest.Limit); ; time.Sleep(10 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("%s: %v", what, err)
		}
	}
}

// TestStuckIsShown has the hypervisor keep a machine that has ended.
func TestStuckIsShown(t *testing.T) {
	f := newFarmhouse(t)
	x := f.mustAsk(f.caller(""), api.JobRequest{})
	vm := x.until(api.EventRunning)
	f.host.Stick(vm.ID, vm.Name)
	x.done()
	f.close()
	client := f.serve(f.host.Open())
	var host api.Host
	f.eventually("the agent knows its host", func() (err error) {
		if host, err = client.Host(t.Context()); err == nil && host.Recovering != "" {
			err = errors.New(host.Recovering)
		}
		return err
	})
	if s := host.Hypervisor.Stuck; len(s) != 1 || s[0].Name != vm.Name || s[0].Reason == "" {
		t.Errorf("stuck machines: %+v", s)
	}
	if len(host.Holders) > 0 {
		t.Errorf("a machine that has ended holds CPUs: %v", host.Holders)
	}
}
