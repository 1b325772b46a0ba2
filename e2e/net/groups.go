package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network/nwfilter"
)

// groupsTests are about security groups, between guests of two projects and a machine that nobody filters. Where the
// kernel cannot follow connections on bridges, a VM in a group is refused, and that is all.
func groupsTests() []test {
	if err := nwfilter.CheckGroups(context.Background()); err != nil {
		fmt.Println("skip groups beside the refusal:", strings.Split(err.Error(), "\n")[0])
		return []test{{"groups refused", groupsRefused}}
	}
	return []test{{"groups default", groupsDefault}, {"groups prefix", groupsPrefix}, {"groups group", groupsGroup},
		{"groups out", groupsOut}, {"groups host", groupsHost}, {"groups flows", groupsFlows},
		{"groups restored", groupsRestored}}
}

// groupsRefused: who cannot be held to security groups is not let run, and nothing is left.
func groupsRefused(l *lab, f *figures) error {
	g, err := l.raw()
	if err != nil {
		return err
	}
	g.vm.Firewall = &farm.Firewall{}
	err = l.fence(g)
	if !farm.IsCode(err, farm.CodeNoFilter) || !strings.Contains(err.Error(), "nf_conntrack_bridge") {
		return fmt.Errorf("a VM in a security group starts where nothing can hold it to it: %w", err)
	}
	if l.restore(g) == nil {
		return errors.New("no error where its groups cannot be restored")
	}
	f.Leaked += count(f, "sends, where its groups cannot be restored", l.honestlyUp(g) == nil)
	return l.end(g)
}

func count(f *figures, what string, leaks bool) int {
	if !leaks {
		return 0
	}
	f.problems = append(f.problems, what)
	return 1
}

// rules reads rules in people's words, without groups.
func rules(texts ...string) *farm.Firewall {
	var g farm.SecurityGroup
	for _, text := range texts {
		r, err := farm.ParseSecurityRule(strings.Fields(text))
		if err != nil {
			panic(err)
		}
		g.Rules = append(g.Rules, r)
	}
	f := farm.FirewallOf(farm.Lease{}, []farm.SecurityGroup{g}, nil)
	return &f
}

// trio is two guests in security groups, and one in none, which all have a stack.
func (l *lab) trio(a, b *farm.Firewall, run func(a, b, c *guest) error) error {
	var all []*guest
	for _, wall := range []*farm.Firewall{a, b, nil} {
		g, err := l.stacked()
		if err != nil {
			return err
		}
		all = append(all, g)
		g.vm.Firewall = wall
		if err := l.fence(g); err != nil {
			return errors.Join(err, l.end(all...))
		}
	}
	return errors.Join(run(all[0], all[1], all[2]), l.end(all...))
}

// regroup gives a guest other rules, as the agent does while it runs.
func (l *lab) regroup(g *guest, wall *farm.Firewall) error {
	g.vm.Firewall = wall
	return l.fence(g)
}

// listen has a guest answer on a port, until the returned function is called: each line comes back.
func (l *lab) listen(g *guest, port int) (func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(g.cmd.Process.Pid), "-n", "--", "env",
		fmt.Sprintf("%s=%d", asEcho, port), self)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 16)) // it listens
	}
	return func() { cmd.Process.Kill(); cmd.Wait() }, err
}

// beEcho answers on a port of both families: each datagram and all of each connection comes back.
func beEcho(port string) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	u, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		for b := make([]byte, 2048); ; {
			if n, from, err := u.ReadFrom(b); err == nil {
				u.WriteTo(b[:n], from)
			}
		}
	}()
	fmt.Println("listens")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			for b := make([]byte, 2048); ; {
				n, err := c.Read(b)
				if err != nil {
					c.Close()
					return
				}
				c.Write(b[:n])
			}
		}()
	}
}

// call is a connection of a guest, which a process of its own holds.
type call struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

// dial has a guest connect. What is dropped is not answered: reach is how long it is tried.
func (l *lab) dial(g *guest, kind string, to netip.Addr, port int) (*call, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(g.cmd.Process.Pid), "-n", "--", "env",
		asCall+"="+kind+" "+net.JoinHostPort(to.String(), fmt.Sprint(port)), self)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &call{cmd, json.NewEncoder(in), json.NewDecoder(out)}
	return c, cmd.Start()
}

const reach = 4 * time.Second

// beCall connects, and says for each line of its input whether an answer came.
func beCall(words string) error {
	kind, to, _ := strings.Cut(words, " ")
	c, err := connect(kind, to)
	for end := time.Now().Add(reach); err != nil && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		c, err = connect(kind, to)
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for n := 0; ; n++ {
		var more int
		if err := in.Decode(&more); err != nil {
			return err
		}
		if err != nil {
			out.Encode(false)
			continue
		}
		text := fmt.Sprintf("message %06d", n)
		c.SetDeadline(time.Now().Add(reach))
		c.Write([]byte(text))
		got := make([]byte, 2048)
		answered := false
		for all := ""; !answered; answered = strings.Contains(all, text) {
			m, err := c.Read(got)
			if err != nil {
				break
			}
			all += string(got[:m])
		}
		out.Encode(answered)
	}
}

// connect does so from the guest's own address. While that is not sure yet (DAD) a socket of UDP would be bound to the
// card's link-local address or, before that one is sure either, to ::1, for good.
func connect(kind, to string) (net.Conn, error) {
	c, err := net.DialTimeout(kind, to, reach)
	if err != nil {
		return nil, err
	}
	if from := netip.MustParseAddrPort(c.LocalAddr().String()).Addr(); from.Is6() && !from.IsGlobalUnicast() {
		c.Close()
		return nil, fmt.Errorf("the guest has no other address than %v yet", from)
	}
	return c, nil
}

// answers asks once more over the connection.
func (c *call) answers() bool {
	var yes bool
	return c.in.Encode(1) == nil && c.out.Decode(&yes) == nil && yes
}

func (c *call) end() { c.cmd.Process.Kill(); c.cmd.Wait() }

// gets reports whether a guest gets an answer from a port.
func (l *lab) gets(g *guest, kind string, to netip.Addr, port int) bool {
	c, err := l.dial(g, kind, to, port)
	if err != nil {
		return false
	}
	defer c.end()
	return c.answers()
}

// expects tries a port by TCP and UDP, over both families.
func (f *figures) expects(l *lab, what string, passes bool, from, to *guest, port int) error {
	var errs []error
	for _, kind := range []string{"tcp", "udp"} {
		for _, address := range []netip.Addr{to.ip4, to.ip6} {
			got := l.gets(from, kind, address, port)
			if passes && !got {
				errs = append(errs, fmt.Errorf("%s: %s to %v does not pass", what, kind, address))
			}
			f.Leaked += count(f, fmt.Sprintf("%s: %s to %v passes", what, kind, address), got && !passes)
		}
	}
	return errors.Join(errs...)
}

const (
	openPort   = 7070
	closedPort = 7071
)

// serving runs a case while guests answer on both ports.
func (l *lab) serving(guests []*guest, run func() error) error {
	for _, g := range guests {
		for _, port := range []int{openPort, closedPort} {
			stop, err := l.listen(g, port)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			defer stop()
		}
	}
	return run()
}

// groupsDefault: nobody comes in, all goes out, and answers come back: errors, fragments and pings, too.
func groupsDefault(l *lab, f *figures) error {
	return l.trio(rules("out any"), rules("out any"), func(a, b, c *guest) error {
		return l.serving([]*guest{a, c}, func() error {
			err := errors.Join(f.expects(l, "out", true, a, c, openPort), f.expects(l, "in", false, c, a, openPort),
				f.expects(l, "between two", false, b, a, openPort), l.ping(a, c.ip4), l.ping(a, c.ip6))
			f.Leaked += count(f, "ping in", l.ping(c, a.ip4) == nil) + count(f, "ping6 in", l.ping(c, a.ip6) == nil)
			return err
		})
	})
}

// groupsPrefix: a rule with a prefix and ports lets in who is in it, there, and nobody else.
func groupsPrefix(l *lab, f *figures) error {
	return l.trio(rules(), rules("out any"), func(a, b, c *guest) error {
		own := func(g *guest) []string {
			return []string{fmt.Sprintf("in tcp 7070 from %v", g.ip4), fmt.Sprintf("in udp 7070 from %v", g.ip4),
				fmt.Sprintf("in tcp 7070 from %v", g.ip6), fmt.Sprintf("in udp 7070 from %v", g.ip6)}
		}
		if err := l.regroup(a, rules(own(c)...)); err != nil {
			return err
		}
		return l.serving([]*guest{a, c}, func() error {
			return errors.Join(f.expects(l, "who may", true, c, a, openPort),
				f.expects(l, "another port", false, c, a, closedPort),
				f.expects(l, "who may not", false, b, a, openPort),
				f.expects(l, "out without a rule", false, a, c, openPort))
		})
	})
}

// groupsGroup: a rule with a group lets its VMs in, and a VM that leaves the group no more.
func groupsGroup(l *lab, f *figures) error {
	return l.trio(rules("out any"), rules("out any"), func(a, b, c *guest) error {
		with := func(members ...*guest) *farm.Firewall {
			lease := func(g *guest) farm.Lease {
				return farm.Lease{Network: "lan", Address: netip.PrefixFrom(g.ip4, 16), MAC: g.mac.String()}
			}
			var peers []farm.SecurityPeer
			for _, g := range members {
				peers = append(peers, farm.SecurityPeer{Groups: []string{"web"}, Lease: lease(g)})
			}
			wall := farm.FirewallOf(lease(a), []farm.SecurityGroup{{Rules: []farm.SecurityRule{
				{Protocol: farm.TCP, Ports: farm.PortRange{First: openPort, Last: openPort}, Group: "web"}}}}, peers)
			return &wall
		}
		return l.serving([]*guest{a}, func() error {
			steps := []struct {
				what string
				wall *farm.Firewall
				b, c bool
			}{{"both", with(b, c), true, true}, {"one", with(b), true, false}, {"none", with(), false, false}}
			var errs []error
			for _, s := range steps {
				errs = append(errs, l.regroup(a, s.wall))
				for _, g := range []struct {
					*guest
					in bool
				}{{b, s.b}, {c, s.c}} {
					got := l.gets(g.guest, "tcp", a.ip4, openPort)
					f.Leaked += count(f, "a VM of no group comes in: "+s.what, got && !g.in)
					if g.in && !got {
						errs = append(errs, fmt.Errorf("a VM of the group does not come in: %s", s.what))
					}
				}
				f.Leaked += count(f, "another port", l.gets(b, "tcp", a.ip4, closedPort))
			}
			return errors.Join(errs...)
		})
	})
}

// groupsOut: what a VM begins is bounded as well, and what others begin is answered.
func groupsOut(l *lab, f *figures) error {
	return l.trio(rules("out tcp 7070", "out udp 7070", "in any"), rules("in any"), func(a, _, c *guest) error {
		return l.serving([]*guest{a, c}, func() error {
			return errors.Join(f.expects(l, "out, to the port", true, a, c, openPort),
				f.expects(l, "out, to another port", false, a, c, closedPort),
				f.expects(l, "in", true, c, a, closedPort))
		})
	})
}

// groupsHost: root of the host reaches a VM that lets nobody in, other users of it do not, and the VM reaches the host
// as its rules say.
func groupsHost(l *lab, f *figures) error {
	host := netip.MustParseAddr("10.77.0.1")
	return l.trio(rules("out tcp 7070"), rules(), func(a, b, _ *guest) error {
		for _, port := range []int{openPort, closedPort} {
			s, err := net.Listen("tcp", net.JoinHostPort(host.String(), fmt.Sprint(port)))
			if err != nil {
				return err
			}
			defer s.Close()
			go func() {
				for {
					c, err := s.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						b := make([]byte, 2048)
						for n, err := c.Read(b); err == nil; n, err = c.Read(b) {
							c.Write(b[:n])
						}
					}()
				}
			}()
		}
		return l.serving([]*guest{a}, func() error {
			address := net.JoinHostPort(a.ip4.String(), fmt.Sprint(openPort))
			c, err := net.DialTimeout("tcp", address, patience)
			if err != nil {
				return fmt.Errorf("the host's root does not reach a VM: %w", err)
			}
			c.Close()
			_, err = l.run("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "timeout", "3", "bash",
				"-c", fmt.Sprintf("exec 3<>/dev/tcp/%v/%d", a.ip4, openPort))
			f.Leaked += count(f, "another user of the host reaches a VM", err == nil)
			if !l.gets(a, "tcp", host, openPort) {
				return errors.New("a VM does not reach the host, which its rules let it")
			}
			f.Leaked += count(f, "a VM reaches another port of the host", l.gets(a, "tcp", host, closedPort)) +
				count(f, "a VM without rules reaches the host", l.gets(b, "tcp", host, openPort))
			return nil
		})
	})
}

// groupsFlows: a connection goes on when rules are loaded again, when others change, and when the agent is killed
// meanwhile; it ends with the rule that let it in, whoever sends.
func groupsFlows(l *lab, f *figures) error {
	in := []string{"in tcp 7070", "in udp 7070"}
	return l.trio(rules(in...), rules(), func(a, _, c *guest) error {
		return l.serving([]*guest{a}, func() error {
			var calls []*call
			for _, kind := range []string{"tcp", "udp"} {
				for _, address := range []netip.Addr{a.ip4, a.ip6} {
					dialled, err := l.dial(c, kind, address, openPort)
					if err != nil {
						return err
					}
					defer dialled.end()
					calls = append(calls, dialled)
				}
			}
			all := func(what string, want bool) error {
				var errs []error
				for i, each := range calls {
					got := each.answers()
					f.Leaked += count(f, fmt.Sprintf("%s: connection %d goes on", what, i), got && !want)
					if want && !got {
						errs = append(errs, fmt.Errorf("%s: connection %d does not go on", what, i))
					}
				}
				return errors.Join(errs...)
			}
			steps := []error{all("made", true), l.restore(a, c), all("restored", true),
				l.regroup(a, rules(append(in, "out udp 53")...)), all("another rule", true),
				l.killedBetween(a), l.restore(a, c), all("the agent was killed", true),
				l.regroup(a, rules("out udp 53")), all("the rule has gone", false),
				l.regroup(a, rules(in...))}
			for i, each := range calls { // TCP sends again what was dropped, some time later
				if err := wait(each.answers); err != nil {
					steps = append(steps, fmt.Errorf("the rule is back, and connection %d is not: %w", i, err))
				}
			}
			return errors.Join(steps...)
		})
	})
}

// killedBetween has another process filter a guest, without releasing it, until it is killed.
func (l *lab) killedBetween(g *guest) error {
	text, err := json.Marshal(g.vm)
	if err != nil {
		return err
	}
	agent := exec.Command("/proc/self/exe")
	agent.Env = append(os.Environ(), asFencer+"="+string(text))
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := agent.Start(); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	agent.Process.Kill()
	agent.Wait()
	return nil
}

// groupsRestored: after somebody has flushed the host's rules the next look brings them back; with the last VM in a
// group, nothing of groups is left, and the others' filters stay.
func groupsRestored(l *lab, f *figures) error {
	return l.trio(rules("out any"), rules(), func(a, b, c *guest) error {
		return l.serving([]*guest{a, c}, func() error {
			if err := errors.Join(l.must("nft flush ruleset"), l.restore(a, b, c)); err != nil {
				return err
			}
			err := errors.Join(f.expects(l, "restored, in", false, c, a, openPort),
				f.expects(l, "restored, out", true, a, c, openPort))
			a.vm.Firewall, b.vm.Firewall = nil, nil
			err = errors.Join(err, l.restore(a, b, c), f.expects(l, "in no group any more", true, c, a, openPort))
			text, listed := l.run("nft", "list", "chains", "bridge")
			f.Left += count(f, "rules of groups are left", strings.Contains(text, "group"))
			if !strings.Contains(text, "send_") {
				err = errors.Join(err, errors.New("the filters are gone with the groups"))
			}
			return errors.Join(err, listed)
		})
	})
}

// beFencer fences a guest again and again.
func beFencer(text string) error {
	g := &guest{}
	if err := json.Unmarshal([]byte(text), &g.vm); err != nil {
		return err
	}
	l := &lab{ctx: context.Background()}
	for {
		if err := errors.Join(l.fence(g), l.restore(g)); err != nil {
			return err
		}
	}
}
