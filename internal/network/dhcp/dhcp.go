// Package dhcp runs a host's own DHCP, router advertisement and DNS server for its VMs, one dnsmasq for each network
// that the agent's configuration names. It gives each VM what the VM's record has, and answers nobody else.
//
// A server is in a network namespace of its own, whose one card is plugged into the network's bridge: the host has no
// address there, and the server no way to the host. The namespace is its process's alone: whatever ends that removes
// the card. What an agent has to know of a server is in a directory that root alone can write.
package dhcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
	"github.com/grange-project/grange/internal/sleep"
)

// CardPrefix is what names of servers' ports begin with: no other device of the host may.
const CardPrefix = "gdhcp"

// Servers are those of a host.
type Servers struct {
	Dir   string // below which they have their directories; of root
	Group string // of links, that ours are in

	mu sync.Mutex
}

// errorsFile has what dnsmasq printed, and stateFile what the agent must know of the server.
const (
	errorsFile = "errors"
	stateFile  = "state.json"
)

// state is what the agent knows of a server: written before its process is let go, and after the process was told.
type state struct {
	Network farm.Network
	Server  farm.DHCPServer
	Process process
	MTU     int
	VMs     []VM // that it was told, by their names
}

// server is one, while it is looked at.
type server struct {
	state
	dir, group string
}

// here is the directory of the servers of this process's network namespace.
func (s *Servers) here() (string, error) {
	name, err := os.Readlink("/proc/thread-self/ns/net")
	return filepath.Join(s.Dir, strings.Trim(strings.TrimPrefix(name, "net:"), "[]")), err
}

// Serve has the server of a network give VMs what they have. It returns when it does. Errors: farm.CodeNoDHCP.
func (s *Servers) Serve(ctx context.Context, n farm.Network, d farm.DHCPServer, vms ...VM) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.with(n.Bridge(), func(v *server) error {
		all := v.running()
		for _, vm := range vms {
			if now, ok := of(vm.PID); ok {
				vm.Started = now.Started
				all = append(slices.DeleteFunc(all, func(o VM) bool { return o.Machine == vm.Machine }), vm)
			}
		}
		return v.serve(ctx, n, d, all)
	})
	return failed(n, err)
}

func failed(n farm.Network, err error) error {
	if err == nil {
		return nil
	}
	hint := "see the agent's log, and `ip -details link show`; the next VM of the network starts it again"
	if program.Missing(err) {
		hint = "install dnsmasq (Debian's package dnsmasq-base) on the host"
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNoDHCP, Err: err, Hint: hint,
		Message: fmt.Sprintf("the DHCP server of network %s does not run: %v", n, err)}
}

// Restore has the servers of these networks run again that have ended, and serve these VMs as well; and removes those
// that are configured no longer, and VMs that have gone. Without servers it runs nothing.
func (s *Servers) Restore(ctx context.Context, configured map[farm.Network]farm.DHCPServer,
	vms map[farm.Network][]VM) error {
	var errs []error
	for n, d := range configured {
		if len(vms[n]) > 0 {
			errs = append(errs, s.Serve(ctx, n, d, vms[n]...))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(append(errs, s.each(func(v *server) error {
		d, ok := configured[v.Network]
		switch {
		case !ok:
			return v.stop(ctx)
		case len(vms[v.Network]) > 0:
			return nil // it was looked at above
		}
		return failed(v.Network, v.serve(ctx, v.Network, d, v.running()))
	}))...)
}

// Release has servers forget a machine, and ends those that have no other one.
func (s *Servers) Release(ctx context.Context, machine string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.each(func(v *server) error {
		is := func(vm VM) bool { return vm.Machine == machine }
		if !slices.ContainsFunc(v.VMs, is) {
			return nil
		}
		return v.serve(ctx, v.Network, v.Server, slices.DeleteFunc(slices.Clone(v.VMs), is))
	})
}

// Status is how a server does.
type Status struct {
	Network farm.Network
	Server  farm.DHCPServer
	PID     int // of its process; 0: it does not run
	VMs     int
}

// All are the servers of the host, in the order of their networks' names. It does not wait for one that starts.
func (s *Servers) All() (all []Status) {
	dir, err := s.here()
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		v := &server{dir: filepath.Join(dir, e.Name())}
		if !e.IsDir() || v.load() != nil {
			continue
		}
		st := Status{Network: v.Network, Server: v.Server, VMs: len(v.VMs)}
		if v.Process.alive() {
			st.PID = v.Process.PID
		}
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(string(a.Network), string(b.Network)) })
	return all
}

// each does something with every server.
func (s *Servers) each(do func(*server) error) error {
	dir, err := s.here()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, s.with(e.Name(), do))
		}
	}
	return errors.Join(errs...)
}

// with does something with the server of a bridge, which may not be there yet. Another agent waits meanwhile.
func (s *Servers) with(bridge string, do func(*server) error) error {
	dir, err := s.here()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	defer os.Remove(dir) // which leaves it where it has servers
	v := &server{dir: filepath.Join(dir, bridge), group: s.Group}
	if err := v.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return do(v)
}

func (v *server) load() error {
	text, err := os.ReadFile(filepath.Join(v.dir, stateFile))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &v.state)
}

// running are the VMs that it was told and whose processes are there.
func (v *server) running() []VM {
	return slices.DeleteFunc(slices.Clone(v.VMs), func(vm VM) bool { return !process{vm.PID, vm.Started}.alive() })
}

func (v *server) save() error {
	text, err := json.Marshal(v.state)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(v.dir, stateFile), text, 0o600)
}

// serve has the server run for exactly these VMs; without any it ends.
func (v *server) serve(ctx context.Context, n farm.Network, d farm.DHCPServer, vms []VM) error {
	if len(vms) == 0 {
		return v.stop(ctx)
	}
	slices.SortFunc(vms, func(a, b VM) int { return strings.Compare(a.Machine, b.Machine) })
	bridge, err := net.InterfaceByName(n.Bridge())
	if err != nil {
		return fmt.Errorf("bridge %s: %w", n.Bridge(), err)
	}
	if v.Process.alive() && v.Server.Equal(d) && v.MTU == bridge.MTU && v.plugged(ctx, n) &&
		!v.outlived(vms) {
		if slices.EqualFunc(v.VMs, vms, VM.equal) {
			return nil
		}
		if err := v.write(files(d, vms)); err != nil {
			return err
		}
		if err := v.Process.signal(unix.SIGHUP); err != nil { // it reads the files again
			return err
		}
		v.VMs = vms
		return errors.Join(v.route(ctx), v.save())
	}
	if err := v.end(ctx); err != nil {
		return err
	}
	v.state = state{Network: n, Server: d, MTU: bridge.MTU}
	return v.start(ctx, vms)
}

// outlived reports whether the server may hold IPv6 leases of VMs that have gone: it would refuse the address to the
// next VM, whose DUID is another one. For IPv4 the MAC decides.
func (v *server) outlived(vms []VM) bool {
	six := slices.ContainsFunc(v.Server.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() })
	return six && slices.ContainsFunc(v.VMs, func(was VM) bool {
		return !slices.ContainsFunc(vms, func(vm VM) bool { return vm.PID == was.PID && vm.Started == was.Started })
	})
}

// start starts the server. When it is cut short, its process ends by itself, or is in the state that the next look
// finds.
func (v *server) start(ctx context.Context, vms []VM) error {
	as, err := identity(ctx)
	if err != nil {
		return err
	}
	above := filepath.Dir(v.dir) // which the account has to come through, whatever our umask
	err = errors.Join(os.MkdirAll(v.dir, 0o750), os.Chown(v.dir, 0, int(as.GID)), os.Chmod(v.dir, 0o750),
		os.Chmod(above, 0o755), os.Chmod(filepath.Dir(above), 0o755))
	if err != nil {
		return err
	}
	content := files(v.Server, vms)
	content[confFile] = conf(v.dir, v.Server, v.MTU)
	if err := v.write(content); err != nil {
		return err
	}
	h, err := hold(v.dir, as)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		h.wait()
		close(ended)
	}()
	v.Process = h.process
	if err = v.save(); err == nil {
		err = v.plug(ctx)
	}
	if err == nil {
		err = h.letGo()
	}
	if err == nil {
		err = v.ready(ctx, ended)
	}
	if err != nil {
		h.end()
		return err
	}
	v.VMs = vms
	return errors.Join(v.route(ctx), v.save())
}

// write writes files that the server reads.
func (v *server) write(content map[string]string) error {
	for name, text := range content {
		if err := atomicfile.Write(filepath.Join(v.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const startLimit = 10 * time.Second

// ready waits until the server has its ports: from then on it answers, and takes signals.
func (v *server) ready(ctx context.Context, ended <-chan struct{}) error {
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		up := true
		for _, p := range v.Server.Addresses {
			if p.Addr().Is4() {
				up = up && v.Process.listens("udp", 67) && v.Process.listens("udp", 53)
			} else {
				up = up && v.Process.listens("udp6", 547) && v.Process.listens("udp6", 53)
			}
		}
		if up {
			return nil
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(filepath.Join(v.dir, errorsFile))
			text = bytes.TrimSpace(bytes.ToValidUTF8(text[:min(len(text), 1000)], []byte("?")))
			return fmt.Errorf("dnsmasq ends: %s", text)
		default:
		}
		if err := sleep.For(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("dnsmasq does not listen after %v", startLimit)
}

// stop ends the server, and removes what it had.
func (v *server) stop(ctx context.Context) error {
	if err := v.end(ctx); err != nil {
		return err
	}
	return os.RemoveAll(v.dir)
}

// end ends the server's process, and removes its card at once: the kernel takes its time.
func (v *server) end(ctx context.Context) error {
	if err := v.Process.signal(unix.SIGKILL); err != nil {
		return err
	}
	if v.Network == "" {
		return nil
	}
	if _, err := net.InterfaceByName(v.port()); err != nil {
		return nil
	}
	if _, err := ip(ctx, "link", "del", "dev", v.port()); err != nil {
		if _, there := net.InterfaceByName(v.port()); there == nil {
			return err
		}
	}
	return nil
}

// port is the name of the server's port on the bridge.
func (v *server) port() string {
	sum := sha256.Sum256([]byte(v.Network.Bridge()))
	return CardPrefix + hex.EncodeToString(sum[:5])
}

// mac is the server's own hardware address: locally administered, and the same as long as its address is.
func (v *server) mac() net.HardwareAddr {
	sum := sha256.Sum256([]byte(v.Server.Addresses[0].Addr().String()))
	return append(net.HardwareAddr{0x0a}, sum[:5]...)
}

// plug makes the server's card, and plugs it into the network. Addresses are its at once, without a look whether
// somebody has them: they are configured.
func (v *server) plug(ctx context.Context) error {
	mtu, mac, pid := strconv.Itoa(v.MTU), v.mac(), strconv.Itoa(v.Process.PID)
	lines := [][]string{{"ip", "link", "add", "name", v.port(), "group", v.group, "mtu", mtu, "type", "veth", "peer",
		"name", card, "address", mac.String(), "mtu", mtu, "netns", pid},
		{"ip", "link", "set", "dev", v.port(), "addrgenmode", "none"},
		{"ip", "link", "set", "dev", v.port(), "master", v.Network.Bridge(), "up"},
		// The bridge need not learn where the server is, and nobody else's frames say so.
		{"bridge", "link", "set", "dev", v.port(), "learning", "off"},
		{"bridge", "fdb", "replace", mac.String(), "dev", v.port(), "master", "static"}}
	inside := func(words ...string) { lines = append(lines, append(v.inside(), words...)) }
	inside("link", "set", "dev", card, "addrgenmode", "none")
	inside("link", "set", "dev", "lo", "up")
	inside("link", "set", "dev", card, "up")
	for _, p := range v.Server.Addresses {
		if p.Addr().Is4() {
			inside("address", "add", p.String(), "dev", card)
			continue
		}
		local := fmt.Sprintf("fe80::%x:%xff:fe%02x:%x/64", int(mac[0]^2)<<8|int(mac[1]), mac[2], mac[3],
			int(mac[4])<<8|int(mac[5]))
		inside("address", "add", local, "dev", card, "nodad")
		inside("address", "add", p.String(), "dev", card, "nodad")
	}
	for _, words := range lines {
		if _, err := run(ctx, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// inside are the words before those for ip(8) in the server's network.
func (v *server) inside() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", v.Process.PID), "--", "ip"}
}

// route lets the server reach the name servers that it forwards to, as its VMs would.
func (v *server) route(ctx context.Context) error {
	if len(v.Server.Forward) == 0 {
		return nil
	}
	for _, p := range v.Server.Addresses {
		for _, vm := range v.VMs {
			via := within(vm.Gateways, p)
			if len(via) == 0 {
				continue
			}
			words := append(v.inside(), "route", "replace", "default", "via", via[0], "dev", card)
			if _, err := run(ctx, words[0], words[1:]...); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// plugged reports whether the server's card is still in the network's bridge, which may have been made again.
func (v *server) plugged(ctx context.Context, n farm.Network) bool {
	out, err := ip(ctx, "-json", "link", "show", "dev", v.port())
	var links []struct{ Master string }
	return err == nil && json.Unmarshal(out, &links) == nil && len(links) == 1 && links[0].Master == n.Bridge()
}

const toolLimit = 10 * time.Second

func ip(ctx context.Context, args ...string) ([]byte, error) { return run(ctx, "ip", args...) }

func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return program.Start(ctx, program.Call{Path: name, Args: args, Limit: toolLimit})
}
