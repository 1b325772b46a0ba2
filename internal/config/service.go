package config

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/policy"
)

// Service is what VMs of this host may reach on it without a network, by a port of their own loopback.
type Service struct {
	Name             string
	Network, Address string // as net.Dial takes them: tcp or unix
	Port             uint16 // in the VM
	Whom             policy.Rule
	Variables        []string // NAME=VALUE of jobs that may use it, sorted
}

// ServiceAddress is where VMs reach the services of their host.
const ServiceAddress = "127.0.0.1"

type serviceFile struct {
	Connect   string            `toml:"connect"`
	Port      int               `toml:"port"`
	Users     []string          `toml:"users"`
	Groups    []string          `toml:"groups"`
	Variables map[string]string `toml:"variables"`
}

// maxServices bounds what a guest is told, and what `grange host show` connects to.
const maxServices = 32

var (
	serviceName  = lazyregexp.New(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
)

// services are those of a file, in the order of their names.
func services(files map[string]serviceFile) (all []Service, err error) {
	if len(files) > maxServices {
		return nil, fmt.Errorf("services: %d of them; at most %d", len(files), maxServices)
	}
	ports, variables := map[uint16]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s, err := files[name].service(name)
		if err != nil {
			return nil, fmt.Errorf("services.%s: %w", name, err)
		}
		if other, ok := ports[s.Port]; ok {
			return nil, fmt.Errorf("services.%s: port %d is that of service %s", name, s.Port, other)
		}
		ports[s.Port] = name
		for v := range files[name].Variables {
			if other, ok := variables[v]; ok {
				return nil, fmt.Errorf("services.%s: variables: %s is set by service %s", name, v, other)
			}
			variables[v] = name
		}
		all = append(all, s)
	}
	return all, nil
}

func (f serviceFile) service(name string) (s Service, err error) {
	s = Service{Name: name, Port: uint16(f.Port), Whom: policy.Rule{Name: "services." + name, Users: f.Users,
		Groups: f.Groups}}
	switch {
	case !serviceName.MatchString(name):
		return s, fmt.Errorf("invalid name: expected at most 32 of a-z, 0-9, _ and -")
	case f.Port < 1 || f.Port > 65535:
		return s, fmt.Errorf("port: %d is not between 1 and 65535", f.Port)
	}
	if s.Network, s.Address, err = connectTo(f.Connect); err != nil {
		return s, fmt.Errorf("connect: %w", err)
	}
	if err := s.Whom.Validate(nil); err != nil {
		return s, err
	}
	for v, value := range f.Variables {
		if !variableName.MatchString(v) || strings.ContainsAny(value, "\x00\n") {
			return s, fmt.Errorf("variables: invalid %q", v)
		}
		value = strings.NewReplacer("{address}", ServiceAddress, "{port}", fmt.Sprint(f.Port)).Replace(value)
		s.Variables = append(s.Variables, v+"="+value)
	}
	slices.Sort(s.Variables)
	return s, nil
}

// connectTo takes an address with a port, of either family, or the path of a unix socket. A name would have the agent
// wait for a name server.
func connectTo(text string) (network, address string, err error) {
	const longest = 107 // see unix(7)
	if filepath.IsAbs(text) && len(text) <= longest {
		return "unix", filepath.Clean(text), nil
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 {
		return "", "", fmt.Errorf("%q is not ADDRESS:PORT, [ADDRESS]:PORT or the path of a socket", text)
	}
	return "tcp", a.String(), nil
}
