package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/grange-project/grange/internal/farm"
)

// Worker is what VMs need that join a batch system as nodes. Without a controller the host has no workers.
type Worker struct {
	Controller string // HOST:PORT of slurmctld
	MungeKey   string // path of the cluster's key: read by the agent alone, and given to guests of site images only
	Network    farm.Network
	Site       string // the network of [networks] that they have leases on, in the place of all below to DNS; "": none
	Isolate    bool   // workers of this host do not reach each other
	Addresses  farm.AddressPool
	Gateway    string // "": none
	DNS        []string
	Users      []string          // who may create workers beside root, as the cluster's SlurmUser
	Image      string            // where a request names none
	Shape      string            // where a request names none; "": the default shape
	Files      map[string]string // path in the VM → path on the host, as the cluster's /etc/passwd
}

type workerFile struct {
	Controller string            `toml:"controller"`
	MungeKey   string            `toml:"munge_key"`
	Network    string            `toml:"network"`
	Bridge     string            `toml:"bridge"` // as earlier releases had it
	Isolate    bool              `toml:"isolate"`
	Addresses  string            `toml:"addresses"`
	Gateway    string            `toml:"gateway"`
	DNS        []string          `toml:"dns"`
	Users      []string          `toml:"users"`
	Image      string            `toml:"image"`
	Shape      string            `toml:"shape"`
	Files      map[string]string `toml:"files"`
}

// worker checks the table [worker]; an empty one is right, and means that the host has no workers.
func (f workerFile) worker(shapes map[string]farm.Shape, networks map[string]SiteNetwork) (Worker, error) {
	w := Worker{Controller: f.Controller, MungeKey: f.MungeKey, Isolate: f.Isolate, Gateway: f.Gateway, DNS: f.DNS,
		Users: f.Users, Image: f.Image, Shape: f.Shape, Files: f.Files}
	if f.Controller == "" {
		if f.MungeKey+f.Network+f.Bridge+f.Addresses != "" {
			return w, fmt.Errorf("worker.controller: HOST:PORT of slurmctld is missing")
		}
		return w, nil
	}
	if host, port, err := net.SplitHostPort(f.Controller); err != nil || host == "" || !isPort(port) {
		return w, fmt.Errorf("worker.controller: %q is not HOST:PORT", f.Controller)
	}
	if !filepath.IsAbs(f.MungeKey) {
		return w, fmt.Errorf("worker.munge_key: %q is not an absolute path", f.MungeKey)
	}
	if n, ok := networks[f.Network]; ok {
		w.Site, w.Network = n.Name, n.On
		if f.Bridge+f.Addresses+f.Gateway != "" || f.Isolate || len(f.DNS) > 0 {
			return w, fmt.Errorf("worker.network: bridge, addresses, gateway, dns, isolate are in networks.%s", n.Name)
		}
		return w, f.rest(shapes)
	}
	if w.Network = farm.Network(f.Network); f.Network == "" {
		w.Network = farm.NetworkBridge(f.Bridge)
	}
	if kind, ok := w.Network.Kind(); !ok || kind.Jobs || f.Network != "" && f.Bridge != "" {
		return w, fmt.Errorf("worker.network: %q is not one network on which workers have addresses, as bridge:NAME",
			w.Network)
	}
	if kind, _ := w.Network.Kind(); w.Isolate && kind.Raw {
		return w, fmt.Errorf("worker.isolate: workers with %s reach each other: use a bridge, a VLAN or VXLAN",
			kind.Name)
	}
	var err error
	if w.Addresses, err = farm.ParseAddressPool(f.Addresses); err != nil {
		return w, fmt.Errorf("worker.addresses: %w", err)
	}
	for _, text := range append(append([]string{}, f.DNS...), f.Gateway) {
		if a, err := netip.ParseAddr(text); text != "" && (err != nil || !a.Is4()) {
			return w, fmt.Errorf("worker: %q is not an IPv4 address", text)
		}
	}
	return w, f.rest(shapes)
}

// rest checks what is not about the network.
func (f workerFile) rest(shapes map[string]farm.Shape) error {
	if _, ok := shapes[f.Shape]; f.Shape != "" && !ok {
		return fmt.Errorf("worker.shape: no shape %q", f.Shape)
	}
	for inside, path := range f.Files {
		if !filepath.IsAbs(inside) || !filepath.IsAbs(path) {
			return fmt.Errorf("worker.files: %q = %q are not absolute paths", inside, path)
		}
	}
	return nil
}

func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0 && n < 1<<16
}
