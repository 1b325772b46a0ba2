package server

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/wire"
)

// securityGroup is a group of project alice with rules in people's words.
func securityGroup(t *testing.T, name string, rules ...string) farm.SecurityGroup {
	t.Helper()
	g := farm.SecurityGroup{Project: "alice", Name: name}
	for _, text := range rules {
		r, err := farm.ParseSecurityRule(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		g.Rules = append(g.Rules, r)
	}
	return g
}

// secureHost is a host that holds VMs to security groups, or not.
func (l *lab) secureHost(name string, follows bool) farm.Host {
	h := l.host(name, "east")
	h.Facts.Networks = []string{"br0"}
	if follows {
		h.Facts.Networks = append(h.Facts.Networks, farm.FollowsFlows)
	}
	l.update(func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) })
	return h
}

// walls are the firewalls that a host is sent, by the names of its VMs.
func (l *lab) walls(h farm.Host) map[string]*fleet.Firewall {
	l.t.Helper()
	who, facts := farm.Identity{Host: h.ID}, wire.Facts(h.Facts, l.clock())
	facts.Instance, facts.Capability = h.Name, fleet.Capability
	if _, err := l.Links.Report(l.t.Context(), who, fleet.Report{Instance: h.Name, Facts: &facts}); err != nil {
		l.t.Fatal(err)
	}
	list, _, err := l.Links.Wanted(l.t.Context(), who, h.Name, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	walls := map[string]*fleet.Firewall{}
	for _, vm := range list.VMs {
		walls[vm.Name] = vm.Firewall
	}
	return walls
}

// tells reports whether what do changes has a host look at its security groups.
func (l *lab) tells(h farm.Host, do func()) bool {
	l.t.Helper()
	before := l.revision()
	do()
	changes, _, err := l.store.Changes(l.t.Context(), before, 1000)
	if err != nil {
		l.t.Fatal(err)
	}
	return slices.ContainsFunc(changes, func(c store.Change) bool {
		return c.Kind == store.KindSecurityGroup && c.Host == h.ID
	})
}

// in is a request for a VM in security groups.
func in(name string, groups ...string) CreateVM {
	r := web(name)
	r.Network, r.SecurityGroups = "lan", groups
	return r
}

func (l *lab) putSecurityGroup(g farm.SecurityGroup) {
	l.t.Helper()
	if _, err := l.SecurityGroups.Put(l.t.Context(), root, g, 0); err != nil {
		l.t.Fatal(err)
	}
}

// TestSecurityGroups: hosts are sent the addresses of the VMs that a rule means, and told when they change.
func TestSecurityGroups(t *testing.T) {
	l := newLab(t)
	l.putSecurityGroup(securityGroup(t, "web", "in tcp 443", "out any"))
	l.putSecurityGroup(securityGroup(t, "db", "in tcp 5432 from group web"))
	h := l.secureHost("node-1", true)
	l.running(ann, in("pg", "db"), h)
	if wall := l.walls(h)["pg"]; wall == nil || len(wall.Rules) != 0 {
		t.Errorf("with nobody in group web: %+v", wall)
	}
	var www VMView
	if !l.tells(h, func() { www = l.create(ann, in("www", "web"))[0] }) {
		t.Error("the host is not told of a VM in a group that a rule of its VM names")
	}
	local, _ := farm.LinkLocal(www.Lease.MAC)
	want := &fleet.Firewall{Rules: []fleet.FirewallRule{{Direction: "in", Protocol: "tcp", Ports: "5432",
		Peers: []string{www.Lease.Address.Addr().String() + "/32", local.String() + "/128"}}}}
	if diff := cmp.Diff(want, l.walls(h)["pg"]); diff != "" {
		t.Error(diff)
	}
	regroup := func(vm string, groups ...string) error {
		_, err := l.VMs.Update(t.Context(), root, vm, 0, UpdateVM{SecurityGroups: &groups})
		return err
	}
	if !l.tells(h, func() {
		if err := regroup(www.ID); err != nil {
			t.Fatal(err)
		}
	}) {
		t.Error("the host is not told of a VM that left the group")
	}
	if wall := l.walls(h)["pg"]; len(wall.Rules) != 0 {
		t.Errorf("after the VM has left the group: %+v", wall)
	}
	if err := regroup(www.ID, "web"); err != nil {
		t.Fatal(err)
	}
	if !l.tells(h, func() {
		if _, err := l.VMs.Delete(t.Context(), ann, www.ID, 0); err != nil {
			t.Fatal(err)
		}
	}) {
		t.Error("the host is not told of a VM that is gone")
	}
	if !l.tells(h, func() { l.putSecurityGroup(securityGroup(t, "db", "in udp 53")) }) {
		t.Error("the host is not told of other rules")
	}
	if wall := l.walls(h)["pg"]; len(wall.Rules) != 1 || wall.Rules[0].Protocol != "udp" {
		t.Errorf("after its rules have changed: %+v", wall)
	}
}

// TestCreateExisting: a request that creates a group leaves one of the same name alone.
func TestCreateExisting(t *testing.T) {
	l := newLab(t)
	put := func(revision int64, rules ...string) error {
		_, err := l.SecurityGroups.Put(t.Context(), root, securityGroup(t, "web", rules...), revision)
		return err
	}
	if err := put(action.Absent, "in tcp 443"); err != nil {
		t.Fatal(err)
	}
	for _, rules := range [][]string{{"in tcp 22"}, {"in tcp 443"}, nil} {
		if err := put(action.Absent, rules...); code(err) != action.CodeExists {
			t.Errorf("%q: %v", rules, err)
		}
	}
	g, err := l.SecurityGroups.Get(t.Context(), root, "alice", "web")
	if err != nil || len(g.Rules) != 1 || g.Rules[0].String() != "in tcp 443" {
		t.Errorf("%+v %v", g, err)
	}
	if err := put(0, "in tcp 22"); err != nil {
		t.Error(err)
	}
	group := farm.ServerGroup{Project: "alice", Name: "ha", Affinity: farm.Apart}
	for i, want := range []farm.Code{"", action.CodeExists} {
		if _, err := l.Groups.Put(t.Context(), ann, group, action.Absent); code(err) != want {
			t.Errorf("request %d: %v", i, err)
		}
		group.Affinity = farm.Together
	}
	user := farm.User{Name: "zoe", Logins: []string{}}
	for i, want := range []farm.Code{"", action.CodeExists} {
		if _, err := l.Accounts.PutUser(t.Context(), root, user, action.Absent); code(err) != want {
			t.Errorf("user, request %d: %v", i, err)
		}
	}
}

// TestSecurityGroupsRefused: what cannot be held, or is used, is refused.
func TestSecurityGroupsRefused(t *testing.T) {
	l := newLab(t)
	put := func(who farm.Identity, g farm.SecurityGroup) error {
		_, err := l.SecurityGroups.Put(t.Context(), who, g, 0)
		return err
	}
	drop := func(name string) error { return l.SecurityGroups.Delete(t.Context(), root, "alice", name, 0) }
	l.putSecurityGroup(securityGroup(t, "web", "in tcp 443"))
	l.putSecurityGroup(securityGroup(t, "db", "in tcp 5432 from group web", "in any from group db"))
	old := l.running(ann, in("old"), l.secureHost("node-1", false))
	refused := map[string]struct {
		err  error
		want farm.Code
	}{
		"a member's rules":    {put(ann, securityGroup(t, "web")), farm.CodeNoRole},
		"the default group's": {put(root, securityGroup(t, "default")), CodeDefaultGroup},
		"deleting that":       {drop("default"), CodeDefaultGroup},
		"a rule with nobody":  {put(root, securityGroup(t, "x", "in any from group none")), CodeNoSecurityGroup},
		"a rule twice":        {put(root, securityGroup(t, "x", "in any", "in any")), farm.CodeBadRule},
		"a group in a rule":   {drop("web"), CodeSecurityGroupUsed},
		"no group":            {drop("none"), CodeNoSecurityGroup},
	}
	create := func(r CreateVM) error { _, err := l.VMs.Create(t.Context(), ann, r); return err }
	update := func(groups ...string) error {
		_, err := l.VMs.Update(t.Context(), root, old.ID, 0, UpdateVM{SecurityGroups: &groups})
		return err
	}
	apart := in("apart", "web")
	apart.Network = ""
	for what, c := range map[string]struct {
		err  error
		want farm.Code
	}{
		"a VM in no group that there is": {create(in("a", "none")), CodeNoSecurityGroup},
		"a VM without a network":         {create(apart), CodeBadVM},
		"a host that cannot hold it":     {update("web"), farm.CodeNoFilter},
	} {
		refused[what] = c
	}
	for what, c := range refused {
		if code(c.err) != c.want {
			t.Errorf("%s: %v, want %s", what, c.err, c.want)
		}
	}
	l.create(ann, in("user", "db"))
	if err := drop("db"); code(err) != CodeSecurityGroupUsed {
		t.Errorf("a group with a VM: %v", err)
	}
}

// TestDefaultSecurityGroup: VMs of a project that says so are in the group default, with SSH from where it says.
func TestDefaultSecurityGroup(t *testing.T) {
	l := newLab(t)
	h := l.secureHost("node-1", true)
	project := farm.Project{Name: "alice", SSHFrom: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	l.update(func(tx *store.Tx) error { return tx.PutProject(project) })
	l.running(ann, in("open"), h)
	project.SecurityGroups = true
	l.update(func(tx *store.Tx) error { return tx.PutProject(project) })
	v := l.running(ann, in("safe"), h)
	walls := l.walls(h)
	want := &fleet.Firewall{Rules: []fleet.FirewallRule{{Direction: "out"},
		{Direction: "in", Protocol: "tcp", Ports: "22", Peers: []string{"192.0.2.0/24"}}}}
	if diff := cmp.Diff(want, walls["safe"]); diff != "" || walls["open"] != nil {
		t.Errorf("%s; that of the older one is %+v", diff, walls["open"])
	}
	if !l.tells(h, func() {
		project.SSHFrom = nil
		l.update(func(tx *store.Tx) error { return tx.PutProject(project) })
	}) {
		t.Error("the host is not told of another ssh_from")
	}
	if wall := l.walls(h)["safe"]; len(wall.Rules) != 1 {
		t.Errorf("without ssh_from: %+v", wall)
	}
	none := []string{}
	if _, err := l.VMs.Update(t.Context(), ann, v.ID, 0, UpdateVM{SecurityGroups: &none}); code(err) != CodeBadVM {
		t.Errorf("a VM is taken out of all groups: %v", err)
	}
	groups, err := l.SecurityGroups.List(t.Context(), ann, "alice")
	if err != nil || len(groups) != 1 || !slices.Equal(groups[0].VMs, []string{"safe"}) {
		t.Errorf("%+v, %v", groups, err)
	}
}
