package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/farm/farmlab"
)

// resident is a VM that stays, as it was when it was looked at first.
type resident struct {
	vm   fleet.VM
	pid  int    // of its QEMU
	boot string // the ID that its kernel made when it booted
}

// domain is what a host calls a cloud VM.
func domain(vm fleet.VM) string { return "grange-" + vm.ID[:13] }

// list reads the VMs that there are.
func (u *upgrade) list(ctx context.Context) ([]fleet.VM, error) {
	out, err := u.farm.Run(ctx, "vm", "list", "--json")
	if err != nil {
		return nil, err
	}
	var vms []fleet.VM
	return vms, json.Unmarshal([]byte(out), &vms)
}

// keep remembers VMs of these names as they are.
func (u *upgrade) keep(ctx context.Context, names ...string) error {
	vms, err := u.list(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		i := slices.IndexFunc(vms, func(v fleet.VM) bool { return v.Name == name })
		if i < 0 {
			return fmt.Errorf("no VM %s", name)
		}
		r := &resident{vm: vms[i]}
		found := u.machines()[domain(r.vm)]
		if len(found) != 1 {
			return fmt.Errorf("VM %s has %d QEMUs", name, len(found))
		}
		r.pid = found[0].pid
		if r.boot, err = u.bootID(ctx, r.vm); err != nil {
			return err
		}
		u.kept = slices.DeleteFunc(u.kept, func(other *resident) bool { return other.vm.ID == r.vm.ID })
		u.kept = append(u.kept, r)
	}
	return nil
}

// bootID asks the VM's kernel.
func (u *upgrade) bootID(ctx context.Context, vm fleet.VM) (string, error) {
	out, err := u.farm.Run(ctx, "ssh", vm.Project+"/"+vm.Name, "--", "hostname; cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	name, boot, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if name != vm.Hostname || len(boot) != 36 {
		return "", fmt.Errorf("VM %s answers %q", vm.Name, out)
	}
	return boot, nil
}

// machine is a QEMU of a VM, and the host that it is on.
type machine struct {
	host string
	pid  int
}

// machines are all that run, by the names of their domains.
func (u *upgrade) machines() map[string][]machine {
	all := map[string][]machine{}
	for i, h := range u.farm.Hosts {
		for _, m := range h.Machines() {
			all[m.Name] = append(all[m.Name], machine{farmlab.HostName(i), m.PID})
		}
	}
	return all
}

// look sees that every VM that stays is what it was. It is asked after each change.
func (u *upgrade) look(ctx context.Context) error {
	if err := farmlab.Await(ctx, time.Minute, "all VMs are said to run", func() (bool, error) {
		vms, err := u.list(ctx)
		return err == nil && !slices.ContainsFunc(u.kept, func(r *resident) bool {
			return !slices.ContainsFunc(vms, func(v fleet.VM) bool {
				return v.ID == r.vm.ID && v.State == "running" &&
					v.Ready && !v.Pending
			})
		}), err
	}); err != nil {
		u.figures.Lost++
		out, _ := u.farm.Run(ctx, "vm", "list")
		return fmt.Errorf("%w\n%s", err, out)
	}
	vms, err := u.list(ctx)
	if err != nil {
		return err
	}
	boots, errs := make([]string, len(u.kept)), make([]error, len(u.kept))
	var all sync.WaitGroup
	for i, r := range u.kept {
		all.Go(func() { boots[i], errs[i] = u.bootID(ctx, r.vm) })
	}
	all.Wait()
	machines := u.machines()
	for i, r := range u.kept {
		now := vms[slices.IndexFunc(vms, func(v fleet.VM) bool { return v.ID == r.vm.ID })]
		errs[i] = errors.Join(errs[i], u.sameLease(r.vm, now), u.sameMachine(r, machines[domain(r.vm)], boots[i]))
	}
	u.figures.Looks++
	return errors.Join(errs...)
}

func (u *upgrade) sameLease(old, now fleet.VM) error {
	is := func(v fleet.VM) string {
		return strings.Join([]string{v.Name, v.Hostname, v.Host, v.Address, v.MAC}, " ")
	}
	if is(old) == is(now) {
		return nil
	}
	u.figures.Changed++
	return fmt.Errorf("VM %s was %s, and is %s", old.Name, is(old), is(now))
}

func (u *upgrade) sameMachine(r *resident, found []machine, boot string) error {
	if len(found) > 1 {
		u.figures.Duplicated++
		return fmt.Errorf("VM %s runs %d times: %v", r.vm.Name, len(found), found)
	}
	if len(found) == 0 || found[0] != (machine{r.vm.Host, r.pid}) || boot != r.boot {
		u.figures.Restarted++
		return fmt.Errorf("VM %s was process %d on %s in boot %s, and is %v in boot %s", r.vm.Name, r.pid, r.vm.Host,
			r.boot, found, boot)
	}
	return nil
}

// life is that of one more VM on a host, from its creation to its end.
func (u *upgrade) life(ctx context.Context, host int) error {
	const name = "people/guest"
	if err := u.create(ctx, "guest", host); err != nil {
		return err
	}
	for _, line := range []string{"ssh " + name + " -- true", "vm stop " + name + " --wait",
		"vm start " + name + " --wait", "ssh " + name + " -- true", "vm delete " + name + " --wait"} {
		if _, err := u.farm.Run(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// create makes a VM on a host.
func (u *upgrade) create(ctx context.Context, name string, host int) error {
	_, err := u.farm.Run(ctx, "vm", "create", "--project", "people", "--name", name, "--image", farmlab.Image,
		"--shape", "tiny", "--network", "lan", "--need", "is="+farmlab.HostName(host), "--new-key", "--wait")
	u.figures.VMs++
	return err
}
