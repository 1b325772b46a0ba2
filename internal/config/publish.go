package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// PublishTo is whom users may let through to ports of their VMs, beside themselves: accounts of this host, or programs
// on other hosts.
type PublishTo struct {
	Name     string
	Accounts []string     // by name or number
	Hosts    []netip.Addr // of one family
}

type publishFile struct {
	Accounts []string `toml:"accounts"`
	Hosts    []string `toml:"hosts"`
}

// published are those of a file, in the order of their names.
func published(files map[string]publishFile) (all []PublishTo, err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p, err := files[name].publish(name)
		if err != nil {
			return nil, fmt.Errorf("publish.%s: %w", name, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func (f publishFile) publish(name string) (PublishTo, error) {
	p := PublishTo{Name: name, Accounts: f.Accounts}
	switch {
	case !serviceName.MatchString(name):
		return p, errors.New("invalid name: expected at most 32 of a-z, 0-9, _ and -")
	case (len(f.Accounts) > 0) == (len(f.Hosts) > 0):
		return p, errors.New("expected accounts or hosts: connections over the loopback have an account, and those " +
			"from other hosts an address")
	case slices.Contains(f.Accounts, ""):
		return p, errors.New("accounts: one has no name")
	}
	for _, text := range f.Hosts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return p, fmt.Errorf("hosts: %q is not the address of a host", text)
		}
		p.Hosts = append(p.Hosts, a.Unmap())
	}
	if slices.ContainsFunc(p.Hosts, func(a netip.Addr) bool { return a.Is4() != p.Hosts[0].Is4() }) {
		return p, errors.New("hosts: expected addresses of one family: a port is on one address of this host")
	}
	return p, nil
}
