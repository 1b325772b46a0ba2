package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/internal/uplink"
)

// rotate begins to replace the fleet's CA. The steps after it go on as ever, also where a server is killed.
func (d *demo) rotate(ctx context.Context) error {
	d.booted = map[string]string{}
	for _, vm := range d.vms {
		if vm.Project != "people" { // those of atlas are restarted
			continue
		}
		boot, err := d.boot(ctx, vm)
		if err != nil {
			return err
		}
		d.booted[vm.ID] = boot
	}
	_, err := d.show(ctx, "server", "ca", "rotate")
	return err
}

// boot names the boot of a VM's guest.
func (d *demo) boot(ctx context.Context, vm fleet.VM) (string, error) {
	return d.f.Run(ctx, "ssh", vm.Project+"/"+vm.Name, "--", "cat /proc/sys/kernel/random/boot_id")
}

// rotated waits until nobody needs the older authority, retires it, and sees that the hosts report on and that no VM
// was restarted.
func (d *demo) rotated(ctx context.Context) error {
	ready := func() (bool, error) {
		ca, err := d.ca(ctx)
		return err == nil && len(ca.Waits) == 0 && ca.Authorities[0].Hosts == len(d.f.Hosts), err
	}
	if err := farmlab.Await(ctx, 3*time.Minute, "all hosts have certificates of the next authority",
		ready); err != nil {
		return err
	}
	before, err := d.ca(ctx)
	if err != nil {
		return err
	}
	if _, err := d.show(ctx, "server", "ca", "retire"); err != nil {
		return err
	}
	retired := time.Now()
	trustsOne := func() (bool, error) { return d.trustsOne(ctx, before, retired) }
	if err := farmlab.Await(ctx, 3*time.Minute, "all hosts report, and trust the new authority alone",
		trustsOne); err != nil {
		return err
	}
	for _, vm := range d.vms {
		was, ok := d.booted[vm.ID]
		if !ok {
			continue
		}
		boot, err := d.boot(ctx, vm)
		if err != nil {
			return err
		}
		if boot != was {
			return fmt.Errorf("VM %s was started anew while the CA was replaced", vm.Name)
		}
	}
	_, err = d.show(ctx, "server", "ca")
	d.r.Rotated = len(d.f.Hosts)
	return err
}

// trustsOne reports whether all hosts have reported since a time, and have written down that they trust the newest
// authority of before alone.
func (d *demo) trustsOne(ctx context.Context, before fleet.CA, since time.Time) (bool, error) {
	ca, err := d.ca(ctx)
	if err != nil {
		return false, err
	}
	if len(ca.Authorities) != 1 || ca.Authorities[0].Fingerprint != before.Authorities[0].Fingerprint {
		return true, fmt.Errorf("the authorities are %+v", ca.Authorities)
	}
	out, err := d.f.Run(ctx, "host", "list", "--json")
	if err != nil {
		return false, err
	}
	var hosts []fleet.Host
	if err := json.Unmarshal([]byte(out), &hosts); err != nil {
		return true, err
	}
	for _, h := range hosts {
		if h.Seen == nil || h.Seen.Before(since) || h.State != "open" {
			return false, fmt.Errorf("host %s is %s, heard of at %v", h.Name, h.State, h.Seen)
		}
	}
	for i, h := range d.f.Hosts {
		identity, err := os.ReadFile(filepath.Join(h.Dir, "state", "server", uplink.IdentityFile))
		// one is the host's own
		if n := strings.Count(string(identity), "BEGIN CERTIFICATE") - 1; err != nil || n != 1 {
			return false, fmt.Errorf("host %s trusts %d authorities, %v", farmlab.HostName(i), n, err)
		}
	}
	return true, nil
}

func (d *demo) ca(ctx context.Context) (ca fleet.CA, err error) {
	out, err := d.f.Run(ctx, "server", "ca", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &ca)
	}
	return ca, err
}
