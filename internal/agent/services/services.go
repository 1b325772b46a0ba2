// Package services connects VMs to services of their host: those that the agent's configuration declares, for those
// whom it lets use them, and nothing else. The path is a port of the VM's own (guest.RelayHost): no network is on it,
// and no other VM.
package services

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/sleep"
)

// connectLimit is how long a service has to take a connection.
const connectLimit = 5 * time.Second

// For returns the names of the services that somebody may use; who finds out what rules need to know of them. Where
// that is not known, nobody gets anything.
func For(all []config.Service, who func([]policy.Rule) (policy.Who, error)) (names []string, err error) {
	for _, s := range all {
		if len(s.Whom.Users)+len(s.Whom.Groups) > 0 {
			w, err := who([]policy.Rule{s.Whom})
			if err != nil {
				return nil, err
			}
			if !s.Whom.Matches(w) {
				continue
			}
		}
		names = append(names, s.Name)
	}
	return names, nil
}

// Of returns those of a configuration, which may be newer, that a VM may use.
func Of(all []config.Service, names []string) []config.Service {
	return slices.DeleteFunc(slices.Clone(all), func(s config.Service) bool { return !slices.Contains(names, s.Name) })
}

// Port returns the port of a machine whose VM may use services.
func Port(names []string, path func(string) string) []hyper.Port {
	if len(names) == 0 {
		return nil
	}
	return []hyper.Port{{Name: guest.ServicePort, Path: path(guest.ServicePort)}}
}

// Offer tells a job of services, in its variables and in the file of facts. What the caller has set stays. takes says
// that the guest knows of services; the warning is for one that does not.
func Offer(j *guest.Job, all []config.Service, takes bool, facts string) (warning string) {
	switch {
	case len(all) == 0:
		return ""
	case !takes:
		return "the grange-guest in the image is of an earlier release: the VM reaches no services of the host; build " +
			"the image again"
	}
	j.Env = append(j.Env, "GRANGE_SERVICES="+strings.Join(View(all), " "))
	for _, s := range all {
		j.Services = append(j.Services, guest.Service{Name: s.Name, Port: s.Port})
		for _, v := range s.Variables {
			name, _, _ := strings.Cut(v, "=")
			if !slices.ContainsFunc(j.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
				j.Env = append(j.Env, v)
			}
		}
	}
	for i, f := range j.Files {
		if f.Path == facts {
			j.Files[i].Content = fmt.Appendf(f.Content, "SERVICES=%s\n", strings.Join(View(all), " "))
		}
	}
	return ""
}

// View is what people are shown: where VMs reach each.
func View(all []config.Service) (out []string) {
	for _, s := range all {
		out = append(out, fmt.Sprintf("%s=%s:%d", s.Name, config.ServiceAddress, s.Port))
	}
	return out
}

// Follow answers a VM's connections until ctx ends or the VM has gone. socket is the host's end of its port, and
// allowed what it may use now.
func Follow(ctx context.Context, socket string, allowed func() []config.Service) {
	dial := func(ctx context.Context, port uint16) (net.Conn, error) { return connect(ctx, allowed(), port) }
	for ctx.Err() == nil {
		conn, err := net.DialTimeout("unix", socket, connectLimit)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err == nil {
			guest.RelayHost(ctx, conn, dial)
		}
		sleep.For(ctx, 200*time.Millisecond)
	}
}

var errNoService = errors.New("no such service")

// connect connects to the service behind a port of VMs.
func connect(ctx context.Context, all []config.Service, port uint16) (net.Conn, error) {
	i := slices.IndexFunc(all, func(s config.Service) bool { return s.Port == port })
	if i < 0 {
		return nil, errNoService
	}
	d := net.Dialer{Timeout: connectLimit}
	if all[i].Network == "unix" {
		return asNobody(func() (net.Conn, error) { return d.DialContext(ctx, "unix", all[i].Address) })
	}
	return d.DialContext(ctx, all[i].Network, all[i].Address)
}

// checkLimit is for all services together to take a connection, when somebody looks.
const checkLimit = time.Second

// checkHolds is how long what was found is told to all who ask.
const checkHolds = 5 * time.Second

// Checker checks services for all who ask: once at a time, and not more often than checkHolds, so that nobody has the
// host connect to them without end.
type Checker struct {
	mu    sync.Mutex
	of    []config.Service
	found []api.HostService
	until time.Time
}

// Check reports which services take a connection.
func (c *Checker) Check(all []config.Service) []api.HostService {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.until) || !reflect.DeepEqual(c.of, all) {
		c.of, c.found = all, check(all)
		c.until = time.Now().Add(checkHolds)
	}
	return c.found
}

// check connects to each service.
func check(all []config.Service) []api.HostService {
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	out := make([]api.HostService, len(all))
	var each sync.WaitGroup
	for i, s := range all {
		out[i] = api.HostService{Name: s.Name, Port: int(s.Port), Connect: s.Address}
		each.Go(func() {
			conn, err := connect(ctx, []config.Service{s}, s.Port)
			if err != nil {
				out[i].Problem = err.Error()
				return
			}
			conn.Close()
		})
	}
	each.Wait()
	return out
}
