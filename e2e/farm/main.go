// Command farm brings up a small farm on this machine, and uses it as people would: VMs of two projects in two cells,
// ssh, a closed cell, a CA that is replaced, a drained host, and nothing left at the end. Its last line is JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/e2e/lastline"
)

// farmFile is what the farm's administrator writes. atlas has a cell of its own; people, and whoever comes later, have
// the other.
const farmFile = `
[cells.general]
broker = "grange"
default = true
packing = "spread"

[cells.atlas]
broker = "grange"
projects = ["atlas"]

[projects.people]
quota = { vms = 20 }

[projects.atlas]
quota = { vms = 20 }

[shapes.tiny]
cpus = 1
memory = "192M"
` + farmlab.Network

// result is the last line.
type result struct {
	Store   string  `json:"store"`
	Servers int     `json:"servers"`
	Killed  int     `json:"servers_killed"`
	Hosts   int     `json:"hosts"`
	VMs     int     `json:"vms"`
	SSH     int     `json:"ssh"`
	Rotated int     `json:"rotated"`  // hosts whose CA was replaced
	Create  float64 `json:"create_s"` // from the first request to the last guest that is up
	Delete  float64 `json:"delete_s"`
	Left    int     `json:"left"`
}

func main() {
	postgres := flag.Bool("postgres", false, "keep the farm in PostgreSQL instead of SQLite")
	servers := flag.Int("servers", 1, "how many servers; several need -postgres")
	kill := flag.Bool("kill", false, "kill a server half-way; with one server it is started again")
	keep := flag.Bool("keep", false, "leave the farm running until interrupted, once the VMs are up")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := result{Store: "sqlite", Servers: *servers, Hosts: 3}
	if *postgres {
		r.Store = "postgres"
	}
	err := run(ctx, &r, *postgres, *kill, *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "farm:", err)
	}
	lastline.Print(r, lastline.Count(err != nil))
	if err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, r *result, postgres, kill, keep bool) (err error) {
	f, err := farmlab.Start(ctx, farmlab.Options{Cells: []string{"general", "general", "atlas"}, Farm: farmFile,
		Servers: r.Servers, Postgres: postgres, Out: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	d := &demo{f: f, r: r}
	steps := []func(context.Context) error{d.create, d.enter, d.rotate, d.cells}
	if kill {
		steps = append(steps, d.kill)
	}
	steps = append(steps, d.rotated)
	if keep {
		steps = append(steps, d.wait)
	}
	for _, step := range append(steps, d.drain, d.remove) {
		switch err := step(ctx); {
		case errors.Is(err, errEnough):
			return nil
		case err != nil:
			return errors.Join(err, errors.New(f.Logs()))
		}
	}
	return nil
}

// demo is one run.
type demo struct {
	f   *farmlab.Farm
	r   *result
	vms []fleet.VM
	// booted is the boot of each VM that nothing restarts, by ID, when the fleet's CA began to be replaced.
	booted map[string]string
}

// show runs a command as somebody at a terminal would, and shows both.
func (d *demo) show(ctx context.Context, args ...string) (string, error) {
	fmt.Println("\n$ grange " + strings.Join(args, " "))
	out, err := d.f.Run(ctx, args...)
	fmt.Print(out)
	return out, err
}

// refused is show for what must not work; the answer must say why.
func (d *demo) refused(ctx context.Context, why string, args ...string) error {
	fmt.Println("\n$ grange " + strings.Join(args, " "))
	_, err := d.f.Run(ctx, args...)
	if err == nil {
		return fmt.Errorf("grange %s worked", strings.Join(args, " "))
	}
	_, text, _ := strings.Cut(err.Error(), "\n")
	fmt.Println(strings.TrimSpace(text))
	if !strings.Contains(text, why) {
		return fmt.Errorf("grange %s was refused, and its error does not say %q", strings.Join(args, " "), why)
	}
	return nil
}

// list reads the VMs that there are.
func (d *demo) list(ctx context.Context) ([]fleet.VM, error) {
	out, err := d.f.Run(ctx, "vm", "list", "--json")
	if err != nil {
		return nil, err
	}
	var vms []fleet.VM
	return vms, json.Unmarshal([]byte(out), &vms)
}

func (d *demo) create(ctx context.Context) error {
	began := time.Now()
	for _, words := range []string{"--project people --name box --count 4", "--project atlas --name sim --count 2"} {
		args := append([]string{"vm", "create"}, strings.Fields(words)...)
		if _, err := d.show(ctx, append(args, "--image", farmlab.Image, "--shape", "tiny", "--network", "lan",
			"--new-key", "--wait")...); err != nil {
			return err
		}
	}
	d.r.Create = time.Since(began).Seconds()
	if _, err := d.show(ctx, "vm", "list"); err != nil {
		return err
	}
	if _, err := d.show(ctx, "host", "list"); err != nil {
		return err
	}
	var err error
	if d.vms, err = d.list(ctx); err != nil {
		return err
	}
	d.r.VMs = len(d.vms)
	if d.r.VMs != 6 {
		return fmt.Errorf("%d VMs, not 6", d.r.VMs)
	}
	used := map[string]bool{}
	for _, vm := range d.vms {
		cell := map[string]string{"people": "general", "atlas": "atlas"}[vm.Project]
		if vm.State != "running" || vm.Cell != cell || used[vm.Address] {
			return fmt.Errorf("VM %s is %s in cell %s with address %s", vm.Name, vm.State, vm.Cell, vm.Address)
		}
		used[vm.Address] = true
	}
	return nil
}

// enter logs in to every VM.
func (d *demo) enter(ctx context.Context) error {
	for _, vm := range d.vms {
		out, err := d.show(ctx, "ssh", vm.Project+"/"+vm.Name, "--",
			"hostname; wget -qO- http://169.254.169.254/latest/meta-data/instance-id; echo")
		if err != nil {
			return err
		}
		if want := vm.Name + "\n" + vm.ID + "\n"; out != want {
			return fmt.Errorf("ssh to %s answered %q, not %q", vm.Name, out, want)
		}
		d.r.SSH++
	}
	return nil
}

// cells closes a cell: nothing new comes, what is there goes on.
func (d *demo) cells(ctx context.Context) error {
	if _, err := d.show(ctx, "cell", "close", "atlas", "--reason", "new cooling"); err != nil {
		return err
	}
	if err := d.refused(ctx, "closed", "vm", "create", "--project", "atlas", "--name", "late", "--image", farmlab.Image,
		"--shape", "tiny"); err != nil {
		return err
	}
	if _, err := d.show(ctx, "vm", "restart", "atlas/sim-1", "--wait"); err != nil {
		return err
	}
	if _, err := d.show(ctx, "cell", "open", "atlas"); err != nil {
		return err
	}
	_, err := d.show(ctx, "why", "--project", "people", "--image", farmlab.Image, "--cpus", "64", "--memory", "1G")
	return err
}

// kill kills the first server. Every VM goes on, and the next commands are answered by another one, or by the same
// started anew.
func (d *demo) kill(ctx context.Context) error {
	fmt.Println("\n# kill -9 of a server")
	d.f.Servers[0].Kill()
	d.r.Killed++
	if len(d.f.Servers) == 1 {
		if err := d.f.Servers[0].Start(ctx); err != nil {
			return err
		}
	}
	// Another server must lead by now, or soon: a new VM shows it.
	_, err := d.show(ctx, "vm", "stop", "atlas/sim-2", "--wait")
	if err == nil {
		_, err = d.show(ctx, "vm", "start", "atlas/sim-2", "--wait")
	}
	return err
}

func (d *demo) wait(ctx context.Context) error {
	fmt.Printf("\nThe farm runs. In another terminal: export GRANGE_SERVER=%s\nctrl-C ends it.\n",
		d.f.Servers[0].Address())
	<-ctx.Done()
	return errEnough
}

// errEnough ends a farm that was kept: nothing is wrong.
var errEnough = errors.New("interrupted")

// drain empties a host: nothing new comes, and at the deadline what is left is stopped.
func (d *demo) drain(ctx context.Context) error {
	if _, err := d.show(ctx, "host", "drain", "node-1", "--reason", "new memory", "--deadline", "1s"); err != nil {
		return err
	}
	if err := farmlab.Await(ctx, 2*time.Minute, "VMs of node-1 have stopped", func() (bool, error) {
		vms, err := d.list(ctx)
		return err == nil && !slices.ContainsFunc(vms, func(v fleet.VM) bool {
			return v.Host == "node-1" &&
				v.State != "stopped"
		}), err
	}); err != nil {
		return err
	}
	if _, err := d.show(ctx, "vm", "list"); err != nil {
		return err
	}
	_, err := d.show(ctx, "host", "open", "node-1")
	return err
}

// remove deletes everything, and looks for what is left.
func (d *demo) remove(ctx context.Context) error {
	began := time.Now()
	if _, err := d.show(ctx, "vm", "delete", "people/*", "atlas/*", "--wait"); err != nil {
		return err
	}
	d.r.Delete = time.Since(began).Seconds()
	vms, err := d.list(ctx)
	if err != nil {
		return err
	}
	left := d.f.Leaks(ctx)
	for _, vm := range vms {
		left = append(left, "server: VM "+vm.Name)
	}
	if d.r.Left = len(left); d.r.Left > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(left, "; "))
	}
	fmt.Println("\nnothing is left on the hosts")
	return nil
}
