package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/farm/farmlab"
)

// last is the host whose agent goes back.
const last = hosts - 1

// settle fills the farm: a VM on each host, and a job on the first, so that the others have room for one more.
func (u *upgrade) settle(ctx context.Context) (err error) {
	var names []string
	for i := range u.farm.Hosts {
		host := farmlab.HostName(i)
		if _, err := u.farm.Run(ctx, "host", "label", host, "--set", "is="+host); err != nil {
			return err
		}
		names = append(names, "box-"+host)
		if err := u.create(ctx, names[i], i); err != nil {
			return err
		}
	}
	if u.job, err = startJob(ctx, u.farm.Hosts[0]); err != nil {
		return err
	}
	return u.keep(ctx, names...)
}

// checked is what `grange server check` says of a database.
type checked struct{ Steps, Todo int64 }

// check has a release look at the database.
func (u *upgrade) check(ctx context.Context, programs string, args ...string) (c checked, err error) {
	out, err := u.server(ctx, programs, append([]string{"check", "--json"}, args...)...)
	if err != nil {
		return c, err
	}
	_, text, _ := strings.Cut(out, "{") // earlier releases said something before
	return c, json.Unmarshal([]byte("{"+text), &c)
}

// server runs a command of a release's server, and returns what it printed.
func (u *upgrade) server(ctx context.Context, programs string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, grange(programs),
		append([]string{"server", "--config", u.farm.Servers[0].Config}, args...)...))
}

func output(cmd *exec.Cmd) (string, error) {
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, errs.String())
	}
	return string(out), nil
}

// prepare is what a site does before, with the new program: it looks at the database, and copies it.
func (u *upgrade) prepare(ctx context.Context) error {
	old, err := u.check(ctx, u.builds.old)
	if err != nil {
		return err
	}
	now, err := u.check(ctx, u.builds.now)
	if err != nil {
		return err
	}
	if old.Todo != 0 || now.Steps != old.Steps {
		return fmt.Errorf("the old release sees %+v, this one %+v", old, now)
	}
	u.figures.SchemaFrom, u.figures.SchemaTo = old.Steps, now.Steps+now.Todo
	_, err = u.server(ctx, u.builds.now, "backup", u.backup)
	return err
}

func (u *upgrade) upgradeServer(ctx context.Context) error {
	if err := u.restartServer(ctx, u.builds.now); err != nil {
		return err
	}
	if c, err := u.check(ctx, u.builds.now); err != nil || c.Steps != u.figures.SchemaTo || c.Todo != 0 {
		return fmt.Errorf("after the start of the new server its tables are %+v: %v", c, err)
	}
	return u.look(ctx)
}

// restartServer puts another release's server in the place of the one that runs, and waits until all hosts have come
// back to it.
func (u *upgrade) restartServer(ctx context.Context, programs string) error {
	s := u.farm.Servers[0]
	if err := s.Stop(); err != nil {
		return err
	}
	if err := u.job.talk(ctx); err != nil {
		return err
	}
	since := time.Now()
	s.Binary = grange(programs)
	if err := s.Start(ctx); err != nil {
		return err
	}
	return u.heard(ctx, since)
}

// heard waits until the server has heard of hosts since; none: of all.
func (u *upgrade) heard(ctx context.Context, since time.Time, numbers ...int) error {
	if len(numbers) == 0 {
		numbers = []int{0, 1, 2}
	}
	return farmlab.Await(ctx, time.Minute, "hosts come back to the server", func() (bool, error) {
		out, err := u.farm.Run(ctx, "host", "list", "--json")
		if err != nil {
			return false, err
		}
		var all []fleet.Host
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			return false, err
		}
		for _, n := range numbers {
			if !slices.ContainsFunc(all, func(h fleet.Host) bool {
				return h.Name == farmlab.HostName(n) && h.State == "open" && h.Seen != nil && h.Seen.After(since)
			}) {
				return false, nil
			}
		}
		return true, nil
	})
}

// upgradeAgents goes from host to host. Between the installation of the programs and the agent's restart jobs are run
// by the new program already.
func (u *upgrade) upgradeAgents(ctx context.Context) error {
	if err := u.shortJob(ctx, last, u.builds.now); err != nil {
		return err
	}
	for i := range u.farm.Hosts {
		if err := u.restartAgent(ctx, i, u.builds.now); err != nil {
			return err
		}
	}
	if err := u.shortJob(ctx, last, u.builds.old); err != nil {
		return err
	}
	u.farm.Binary = grange(u.builds.now) // people are the last to hear of it
	return nil
}

// swapAgent puts another release's agent in the place of the one that runs.
func (u *upgrade) swapAgent(ctx context.Context, number int, programs string) error {
	h := u.farm.Hosts[number]
	h.StopAgent()
	if err := u.job.talk(ctx); err != nil {
		return err
	}
	h.Binary = grange(programs)
	if err := h.StartAgent(ctx); err != nil {
		return err
	}
	running, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", h.AgentPID()))
	if err == nil && running != h.Binary {
		err = fmt.Errorf("the agent of %s is %s, not %s", farmlab.HostName(number), running, h.Binary)
	}
	return err
}

// restartAgent is swapAgent with a look at all VMs once the server has heard of the new agent.
func (u *upgrade) restartAgent(ctx context.Context, number int, programs string) error {
	since := time.Now()
	if err := u.swapAgent(ctx, number, programs); err != nil {
		return err
	}
	if err := u.heard(ctx, since, number); err != nil {
		return err
	}
	if err := u.look(ctx); err != nil {
		return fmt.Errorf("after the restart of %s's agent: %w", farmlab.HostName(number), err)
	}
	return nil
}

// again stops and starts a VM: another boot, and the same VM.
func (u *upgrade) again(ctx context.Context) error {
	box := u.kept[last]
	for _, verb := range []string{"stop", "start"} {
		if _, err := u.farm.Run(ctx, "vm", verb, "people/"+box.vm.Name, "--wait"); err != nil {
			return err
		}
	}
	if err := u.keep(ctx, box.vm.Name); err != nil {
		return err
	}
	now := u.kept[last]
	if now.boot == box.boot {
		return fmt.Errorf("VM %s was stopped and started, and has not booted", now.vm.Name)
	}
	return u.sameLease(box.vm, now.vm)
}
