// Command upgrade takes a farm with cloud VMs and a job on it from an older commit's release build to this tree's
// and back, as a site would: the server first, then agent by agent; back with the backup from before. No VM may be
// restarted, lost or made twice by that, none may get another name or address, and what is too far apart must be
// refused in words that say what to upgrade. Its last line is JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/e2e/lastline"
)

// farmFile is what the farm's administrator writes. With scratch, a VM in memory has the keys of its SSH server over a
// stop.
const farmFile = `
[cells.general]
broker = "grange"
default = true
packing = "spread"

[projects.people]

[shapes.tiny]
cpus = 1
memory = "192M"
scratch = "64M"
` + farmlab.Network

// figures are the line at the end.
type figures struct {
	From       string  `json:"from"`
	To         string  `json:"to"`
	SchemaFrom int64   `json:"schema_from"` // steps of migration that each release knows
	SchemaTo   int64   `json:"schema_to"`
	Steps      int     `json:"steps"`      // that held
	VMs        int     `json:"vms"`        // made in all
	Looks      int     `json:"looks"`      // at each VM, after each change
	Restarted  int     `json:"restarted"`  // another boot of the guest, or another QEMU, that nobody asked for
	Lost       int     `json:"lost"`       // not running, or not known
	Duplicated int     `json:"duplicated"` // a second QEMU of one VM
	Changed    int     `json:"changed"`    // another host, name, address or MAC
	Refused    int     `json:"refused"`    // refusals that said what to do
	Left       int     `json:"left"`       // on the hosts at the end
	Seconds    float64 `json:"seconds"`
}

func (f *figures) wrong() int { return f.Restarted + f.Lost + f.Duplicated + f.Changed + f.Left }

func main() {
	from := flag.String("from", "HEAD^", "the older `COMMIT`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := new(figures)
	began := time.Now()
	err := run(ctx, f, *from)
	if err != nil {
		fmt.Fprintln(os.Stderr, "upgrade:", err)
	}
	f.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	failed := lastline.Count(err != nil) + f.wrong()
	lastline.Print(f, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// hosts is how many there are: each has room for two VMs where there are two processors.
const hosts = 3

func run(ctx context.Context, f *figures, from string) (err error) {
	dir, err := os.MkdirTemp("/tmp", "gu")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // ssh's proxy, and PostgreSQL, may be anybody
		return err
	}
	b, err := build(ctx, dir, from)
	if err != nil {
		return err
	}
	f.From, f.To = b.from, b.to
	cells := make([]string, hosts)
	for i := range cells {
		cells[i] = "general"
	}
	farm, err := farmlab.Start(ctx, farmlab.Options{Cells: cells, Farm: farmFile, Programs: b.old, Out: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Close()) }()
	u := &upgrade{farm: farm, builds: b, figures: f, backup: dir + "/backup.db"}
	defer u.endJob()
	for _, s := range u.steps() {
		began := time.Now()
		if err := s.do(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.what, err), errors.New(farm.Logs()))
		}
		f.Steps++
		fmt.Printf("%5.1f s  %s\n", time.Since(began).Seconds(), s.what)
	}
	return nil
}

// upgrade is one run.
type upgrade struct {
	farm    *farmlab.Farm
	builds  builds
	figures *figures
	backup  string // of the database, from before
	kept    []*resident
	job     *job
}

type step struct {
	what string
	do   func(context.Context) error
}

func (u *upgrade) steps() []step {
	return []step{
		{"old servers, old agents: people have VMs, a job runs", u.settle},
		{"the new release looks at the database; a backup is made", u.prepare},
		{"the server is upgraded", u.upgradeServer},
		{"a VM of an old agent, by the new server: made, entered, stopped, started, deleted",
			func(ctx context.Context) error { return u.life(ctx, 1) }},
		{"the agents are upgraded, one after the other", u.upgradeAgents},
		{"a VM of a new agent: made, entered, stopped, started, deleted",
			func(ctx context.Context) error { return u.life(ctx, 2) }},
		{"a VM that the old agent made is stopped and started by the new one", u.again},
		{"an agent that is too new is refused, and says so", u.agentTooNew},
		{"agents that are too old are refused, and say so", u.agentsTooOld},
		{"the old release refuses tables of a later one", u.refuseLater},
		{"the old server on the backup from before, new agents", u.serverBack},
		{"a VM of a new agent, by the old server: made, entered, stopped, started, deleted",
			func(ctx context.Context) error { return u.life(ctx, 1) }},
		{"an agent goes back while its VMs run", u.agentBack},
		{"a VM of the agent that went back: made, entered, stopped, started, deleted",
			func(ctx context.Context) error { return u.life(ctx, last) }},
		{"the job ends as it should", u.finishJob},
		{"all is deleted, and nothing is left", u.clear},
	}
}
