package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/farm/farmlab"
)

// atOnce is how many VMs there are at a time: one for each CPU of each host leaves no room for one more.
const atOnce = 6

// workload makes and deletes VMs, each through any server that answers.
type workload struct {
	farm    *farmlab.Farm
	clients []*fleet.Client
	figures *figures
	left    atomic.Int64 // VMs still to be made
	retries atomic.Int64

	mu   sync.Mutex
	kept []string          // IDs of VMs that nobody deleted
	made map[string]string // ID by name, of all
}

func newWorkload(farm *farmlab.Farm, f *figures, vms int) (*workload, error) {
	w := &workload{farm: farm, figures: f, made: map[string]string{}}
	w.left.Store(int64(vms))
	for _, s := range farm.Servers {
		c, err := fleet.NewClient(fleet.Config{Server: s.Address()})
		if err != nil {
			return nil, err
		}
		w.clients = append(w.clients, c)
	}
	return w, nil
}

// run makes and deletes until all are made; the last of each line of work stay.
func (w *workload) run(ctx context.Context) error {
	errs := make([]error, atOnce)
	var all sync.WaitGroup
	for line := range atOnce {
		all.Go(func() { errs[line] = w.line(ctx, rand.New(rand.NewPCG(w.figures.Seed, uint64(line)+2))) })
	}
	all.Wait()
	w.figures.VMs, w.figures.Retries, w.figures.Kept = len(w.made), int(w.retries.Load()), len(w.kept)
	w.figures.Deleted = len(w.made) - len(w.kept)
	return errors.Join(errs...)
}

// line is one VM after the other.
func (w *workload) line(ctx context.Context, r *rand.Rand) error {
	for {
		number := w.left.Add(-1)
		if number < 0 {
			return nil
		}
		id, err := w.create(ctx, fmt.Sprintf("vm%d", number))
		if err != nil {
			return err
		}
		if number < atOnce {
			w.mu.Lock()
			w.kept = append(w.kept, id)
			w.mu.Unlock()
			return nil
		}
		// Some are deleted before they run, some just when they do.
		if r.IntN(3) > 0 {
			err = w.awaitRunning(ctx, id)
		} else {
			err = pause(ctx, time.Duration(r.Int64N(int64(2*time.Second))))
		}
		if err != nil {
			return err
		}
		if err := w.remove(ctx, id); err != nil {
			return err
		}
		if number%20 == 0 {
			fmt.Printf("%d VMs to go, %d requests repeated\n", number, w.retries.Load())
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// timeout is how long one VM's step may take while everything around it dies.
const timeout = 5 * time.Minute

// ask asks one server after the other until one answers: with what was asked for, or a problem that is the caller's
// own.
func (w *workload) ask(ctx context.Context, what string, do func(context.Context, *fleet.Client) error) error {
	deadline := time.Now().Add(timeout)
	for n := rand.IntN(len(w.clients)); ; n++ {
		attempt, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := do(attempt, w.clients[n%len(w.clients)])
		cancel()
		problem := new(api.Problem)
		switch {
		case err == nil:
			return nil
		case errors.As(err, &problem) && problem.Status < 500 && problem.Status != 429:
			return fmt.Errorf("%s: %w", what, err)
		case time.Now().After(deadline):
			return fmt.Errorf("%s: given up: %w", what, err)
		}
		w.retries.Add(1)
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// create makes a VM once, however often it has to be asked for.
func (w *workload) create(ctx context.Context, name string) (id string, err error) {
	err = w.ask(ctx, "create "+name, func(ctx context.Context, c *fleet.Client) error {
		vms, err := c.VMs.Create(ctx, "crash-"+name,
			fleet.VMRequest{Project: "chaos", Name: name, Image: farmlab.Image, Shape: "tiny", Network: "lan"})
		if err == nil && len(vms) != 1 {
			return fmt.Errorf("%d VMs of one request", len(vms))
		}
		if err == nil {
			id = vms[0].ID
		}
		return err
	})
	w.mu.Lock()
	w.made[name] = id
	w.mu.Unlock()
	return id, err
}

func (w *workload) awaitRunning(ctx context.Context, id string) error {
	state := ""
	err := farmlab.Await(ctx, timeout, "VM "+id+" runs", func() (running bool, err error) {
		err = w.ask(ctx, "look at "+id, func(ctx context.Context, c *fleet.Client) error {
			vm, err := c.VMs.Get(ctx, id)
			state, running = vm.State+" "+vm.Reason, vm.State == "running"
			return err
		})
		return running, errors.Join(err, pause(ctx, 300*time.Millisecond))
	})
	if err != nil {
		return fmt.Errorf("%w; it was %s", err, state)
	}
	return nil
}

// remove deletes a VM and waits until the servers know nothing of it.
func (w *workload) remove(ctx context.Context, id string) error {
	gone := func(err error) bool {
		problem := new(api.Problem)
		return errors.As(err, &problem) && problem.Status == 404
	}
	err := w.ask(ctx, "delete "+id, func(ctx context.Context, c *fleet.Client) error {
		_, err := c.VMs.Delete(ctx, id)
		return err
	})
	if err != nil && !gone(err) { // an earlier attempt may have worked
		return err
	}
	return farmlab.Await(ctx, timeout, "VM "+id+" is gone", func() (bool, error) {
		err := w.ask(ctx, "look at "+id, func(ctx context.Context, c *fleet.Client) error {
			_, err := c.VMs.Get(ctx, id)
			return err
		})
		if gone(err) {
			return true, nil
		}
		return false, errors.Join(err, pause(ctx, 300*time.Millisecond))
	})
}

// watchTwins looks for a VM on two hosts at a time, in the hypervisors and not in what anybody says.
func (w *workload) watchTwins(ctx context.Context) {
	seen := map[string]bool{}
	for pause(ctx, 500*time.Millisecond) == nil {
		for _, name := range w.twins() {
			if !seen[name] {
				seen[name] = true
				w.figures.Duplicated++
				fmt.Fprintln(os.Stderr, "on two hosts:", name)
			}
		}
	}
}

func (w *workload) twins() (found []string) {
	host := map[string]int{}
	for i, h := range w.farm.Hosts {
		for _, m := range h.Machines() {
			if other, ok := host[m.Name]; ok {
				found = append(found, fmt.Sprintf("%s (hosts %d and %d)", m.Name, other, i))
			}
			host[m.Name] = i
		}
	}
	return found
}

// settle waits until what is wanted runs, then deletes that too and counts what is left.
func (w *workload) settle(ctx context.Context) error {
	for _, id := range w.kept {
		if err := w.awaitRunning(ctx, id); err != nil {
			fmt.Fprintln(os.Stderr, "lost:", err)
			w.figures.Lost++
		}
	}
	vms, _, err := w.clients[0].VMs.List(ctx, fleet.VMFilter{})
	if err != nil {
		return err
	}
	for _, vm := range vms {
		if !slices.Contains(w.kept, vm.ID) {
			w.figures.Leaked++
			fmt.Fprintf(os.Stderr, "still there: VM %s, %s\n", vm.Name, vm.State)
		}
		if slices.Contains([]string{"failed", "unknown", "lost"}, vm.State) && vm.Reason == "" {
			w.figures.Unexplained++
			fmt.Fprintf(os.Stderr, "unexplained: VM %s is %s\n", vm.Name, vm.State)
		}
	}
	w.figures.Duplicated += len(w.twins())
	for _, id := range w.kept {
		if err := w.remove(ctx, id); err != nil {
			return err
		}
	}
	left := w.farm.Leaks(ctx)
	w.figures.Leaked += len(left)
	if len(left) > 0 {
		fmt.Fprintln(os.Stderr, "left behind:", strings.Join(left, "; "))
	}
	return nil
}
