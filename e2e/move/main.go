// Command move brings up a farm of three hosts on this machine, two of them a service cell, and moves a VM between
// these while it runs: there and back, by a drain, with agents, a libvirtd and the server killed in the middle, and
// where it is refused. Each time the guest's clock must be right. Its last line is JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/lastline"
)

const farmFile = `
[cells.services]
broker = "grange"
services = true
projects = ["web"]

[cells.general]
broker = "grange"
default = true

[projects.web]
quota = { vms = 4 }

[projects.people]
quota = { vms = 4 }

[shapes.tiny]
cpus = 1
memory = "192M"
scratch = "64M"
` + farmlab.Network

// result is the last line.
type result struct {
	Moves    int     `json:"moves"`
	Kills    int     `json:"kills"`
	Refused  int     `json:"refused"`
	Seconds  float64 `json:"seconds_a_move"`
	Clocks   int     `json:"clocks"`            // how often the guest was asked for its time
	ClockOff float64 `json:"clock_off_seconds"` // at most, of what was seen
	Left     int     `json:"left"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var r result
	err := run(ctx, &r)
	if err != nil {
		fmt.Fprintln(os.Stderr, "move:", err)
	}
	lastline.Print(r, lastline.Count(err != nil))
	if err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, r *result) (err error) {
	f, err := farmlab.Start(ctx, farmlab.Options{Cells: []string{"services", "services", "general"}, Farm: farmFile,
		Out: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	t := &trial{f: f, r: r}
	for _, step := range []func(context.Context) error{t.create, t.tellTimes, t.thereAndBack, t.refused, t.kills,
		t.drain, t.remove} {
		if err := step(ctx); err != nil {
			return errors.Join(err, errors.New(f.Logs()))
		}
	}
	return nil
}

// trial is one run.
type trial struct {
	f     *farmlab.Farm
	r     *result
	boot  string // ID of the guest's boot, which no move changes
	clock session
}

const name = "web/db"

func (t *trial) run(ctx context.Context, args ...string) (string, error) {
	fmt.Println("$ grange " + strings.Join(args, " "))
	out, err := t.f.Run(ctx, args...)
	fmt.Print(out)
	return out, err
}

func (t *trial) guest(ctx context.Context, script string) (string, error) {
	return t.f.Run(ctx, "ssh", name, "--", script)
}

// scratch is where the guest has its disk.
const scratch = `d=$(awk '/scratch/ {print $2; exit}' /proc/mounts); `

func (t *trial) create(ctx context.Context) error {
	if _, err := t.run(ctx, "vm", "create", "--project", "web", "--name", "db", "--image", farmlab.Image, "--shape",
		"tiny", "--network", "lan", "--new-key", "--wait"); err != nil {
		return err
	}
	out, err := t.guest(ctx, scratch+"head -c 8000000 /dev/urandom >$d/data && sync && sha256sum $d/data >/tmp/sum "+
		"&& cat /proc/sys/kernel/random/boot_id")
	t.boot = strings.TrimSpace(out)
	return err
}

func (t *trial) vm(ctx context.Context) (v fleet.VM, err error) {
	out, err := t.f.Run(ctx, "vm", "show", name, "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &v)
	}
	return v, err
}

// same fails unless the guest is the one that it was, with all it had in memory and on its disk, on the host that it is
// said to be on, and nowhere else, and has the right time.
func (t *trial) same(ctx context.Context, host string) error {
	if err := t.clockRight(); err != nil {
		return err
	}
	v, err := t.vm(ctx)
	if err != nil {
		return err
	}
	if v.Host != host || v.State != "running" {
		return fmt.Errorf("the VM is %s on host %s, not on %s", v.State, v.Host, host)
	}
	out, err := t.guest(ctx, scratch+"sha256sum -c /tmp/sum && touch $d/touched && cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	if !strings.HasSuffix(strings.TrimSpace(out), t.boot) {
		return fmt.Errorf("another boot of the guest: %s, not %s", out, t.boot)
	}
	return farmlab.Await(ctx, time.Minute, "nothing of the VM is left elsewhere", func() (bool, error) {
		for i, h := range t.f.Hosts {
			if n := len(h.QEMUs()); n != 0 != (farmlab.HostName(i) == host) {
				return false, nil
			}
		}
		return true, nil
	})
}

func (t *trial) thereAndBack(ctx context.Context) error {
	v, err := t.vm(ctx)
	if err != nil {
		return err
	}
	for i, to := range []string{other(v.Host), v.Host} {
		began := time.Now()
		args := []string{"vm", "move", name, "--wait"}
		if i == 1 {
			args = append(args, "--to", to)
		}
		if _, err := t.run(ctx, args...); err != nil {
			return err
		}
		t.r.Seconds = time.Since(began).Seconds()
		t.r.Moves++
		if err := t.same(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

func other(host string) string {
	return map[string]string{"node-1": "node-2", "node-2": "node-1"}[host]
}

// refused is what cannot be moved, or cannot go there.
func (t *trial) refused(ctx context.Context) error {
	if _, err := t.run(ctx, "vm", "create", "--project", "people", "--name", "box", "--image", farmlab.Image, "--shape",
		"tiny", "--wait"); err != nil {
		return err
	}
	v, err := t.vm(ctx)
	if err != nil {
		return err
	}
	for why, args := range map[string][]string{
		"compute: replaced, not moved": {"people/box"},
		"may not go to cell general":   {name, "--to", "node-3"},
		"is on host " + v.Host:         {name, "--to", v.Host},
		"not on its way":               {name, "--cancel"},
	} {
		_, err := t.run(ctx, append([]string{"vm", "move"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("grange vm move %v: %v, want %q", args, err, why)
		}
		t.r.Refused++
	}
	_, err = t.run(ctx, "vm", "delete", "people/box", "--wait")
	return err
}

// kills has each part die while the VM is on its way. It may arrive or stay: it is on one host in the end, and has lost
// nothing.
func (t *trial) kills(ctx context.Context) error {
	number := map[string]int{"node-1": 0, "node-2": 1}
	at := func(host string) *lab.Lab { return t.f.Hosts[number[host]] }
	agent := func(h *lab.Lab) error {
		h.KillAgent()
		return h.StartAgent(ctx)
	}
	libvirtd := func(h *lab.Lab) error { return errors.Join(h.KillLibvirtd(), h.StartLibvirtd(ctx)) }
	for _, kill := range []struct {
		what string
		do   func(from string) error
	}{
		{"the source's agent", func(from string) error { return agent(at(from)) }},
		{"the target's agent", func(from string) error { return agent(at(other(from))) }},
		{"the source's libvirtd", func(from string) error { return libvirtd(at(from)) }},
		{"the target's libvirtd", func(from string) error { return libvirtd(at(other(from))) }},
		{"the server", func(string) error {
			t.f.Servers[0].Kill()
			return t.f.Servers[0].Start(ctx)
		}},
	} {
		v, err := t.vm(ctx)
		if err != nil {
			return err
		}
		fmt.Println("# kill -9 of " + kill.what)
		if _, err := t.run(ctx, "vm", "move", name); err != nil {
			return err
		}
		m, err := t.until(ctx, func(m fleet.Move) bool { return m.Phase != fleet.PhasePreparing })
		if err != nil {
			return err
		}
		if err := kill.do(v.Host); err != nil {
			return err
		}
		t.r.Kills++
		if m, err = t.until(ctx, func(m fleet.Move) bool { return m.Ended != nil }); err != nil {
			return err
		}
		fmt.Printf("# %s: %s %s\n", kill.what, m.Phase, m.Failure)
		host := v.Host
		if m.Phase == fleet.PhaseDone {
			host = other(host)
		}
		if err := farmlab.Await(ctx, 2*time.Minute, "the VM runs", func() (bool, error) {
			v, err := t.vm(ctx)
			return err == nil && v.State == "running" && v.Ready && v.Host == host, nil
		}); err != nil {
			return err
		}
		if err := t.same(ctx, host); err != nil {
			return fmt.Errorf("killed %s: %w", kill.what, err)
		}
	}
	return nil
}

// until waits for a move to be as it is wanted.
func (t *trial) until(ctx context.Context, done func(fleet.Move) bool) (m fleet.Move, err error) {
	c, err := fleet.NewClient(fleet.Config{Server: t.f.Servers[0].Address()})
	if err != nil {
		return m, err
	}
	return m, farmlab.Await(ctx, 5*time.Minute, "the move goes on", func() (bool, error) {
		now, err := c.VMs.LastMove(ctx, name)
		if err == nil {
			m = now
		}
		return err == nil && done(m), nil
	})
}

// drain empties a host of its service.
func (t *trial) drain(ctx context.Context) error {
	v, err := t.vm(ctx)
	if err != nil {
		return err
	}
	if _, err := t.run(ctx, "host", "drain", v.Host, "--reason", "new memory"); err != nil {
		return err
	}
	if err := farmlab.Await(ctx, 5*time.Minute, "the drain has moved the VM", func() (bool, error) {
		now, err := t.vm(ctx)
		return err == nil && now.Host == other(v.Host), nil
	}); err != nil {
		return err
	}
	t.r.Moves++
	if err := t.same(ctx, other(v.Host)); err != nil {
		return err
	}
	_, err = t.run(ctx, "host", "open", v.Host)
	return err
}

func (t *trial) remove(ctx context.Context) error {
	t.clock.Close()
	if _, err := t.run(ctx, "vm", "delete", name, "--wait"); err != nil {
		return err
	}
	left := t.f.Leaks(ctx)
	if t.r.Left = len(left); t.r.Left > 0 {
		return fmt.Errorf("left: %s", strings.Join(left, "; "))
	}
	return nil
}
