package farm

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
)

// What is here refuses objects of a farm that make no sense on their own; what they name is not looked at. Errors are
// *Error of kind Invalid.

func badFarm(kind, name, format string, args ...any) error {
	return &Error{Kind: Invalid, Code: CodeBadFarm,
		Message: strings.TrimSpace(kind+" "+name) + ": " + fmt.Sprintf(format, args...),
		Hint:    "docs/guide/cells.md explains every key"}
}

// Validate refuses a cell that cannot be.
func (c Cell) Validate() error {
	if err := CheckName("cell", c.Name); err != nil {
		return err
	}
	if err := CheckName("broker", c.Broker); err != nil { // which there are, servers know
		return err
	}
	for key := range c.Labels {
		if err := CheckName("label", key); err != nil {
			return err
		}
	}
	switch {
	case twice(c.Projects) != "":
		return badFarm("cell", c.Name, "project %s twice", twice(c.Projects))
	case c.Packing != Pack && c.Packing != Spread && c.Packing != Group:
		return badFarm("cell", c.Name, "no packing is called %q; there are pack, spread and group", c.Packing)
	case c.KeepWhole < 0 || c.PerHost < 0:
		return badFarm("cell", c.Name, "keep_whole and per_host count hosts and VMs: they are not below 0")
	case !(c.Overcommit >= 1 && c.Overcommit <= 10):
		return badFarm("cell", c.Name, "overcommit of %v is not between 1 and 10", c.Overcommit)
	case !c.Limits.valid():
		return badFarm("cell", c.Name, "limits below 0")
	case unprintable(c.Reason) || unprintable(c.Batch):
		return badFarm("cell", c.Name,
			"a reason or batch configuration that cannot be printed, or is longer than %d bytes", maxText)
	}
	return nil
}

// Validate refuses a project that cannot be.
func (p Project) Validate() error {
	if err := CheckName("project", p.Name); err != nil {
		return err
	}
	switch {
	case p.Account != "" && CheckName("account", p.Account) != nil:
		return CheckName("account", p.Account)
	case !p.Quota.valid():
		return badFarm("project", p.Name, "a quota below 0")
	case p.MaxAge < 0 || p.MaxAge > 0 && p.MaxAge < time.Minute:
		return badFarm("project", p.Name, "max_age of %v is less than a minute", p.MaxAge)
	case p.Purpose != PurposeCompute && p.Purpose != PurposeService:
		return badFarm("project", p.Name, "no purpose is called %q; there are compute and service", p.Purpose)
	case badPattern(p.Images) != "":
		return badFarm("project", p.Name, "images: invalid pattern %q", badPattern(p.Images))
	}
	return nil
}

// Validate refuses a network that cannot be.
func (n FleetNetwork) Validate() error {
	if err := CheckName("network", n.Name); err != nil {
		return err
	}
	bad := func(format string, args ...any) error { return badFarm("network", n.Name, format, args...) }
	for i, p := range n.Addresses {
		network := netip.PrefixFrom(p.First, p.Bits).Masked()
		for _, o := range n.Addresses[:i] {
			if !o.Last.Less(p.First) && !p.Last.Less(o.First) {
				return bad("addresses %v and %v overlap", o, p)
			}
			if other := netip.PrefixFrom(o.First, o.Bits).Masked(); other != network {
				return bad("addresses %v are in %v, and %v in %v: one network has one prefix", o, other, p, network)
			}
		}
		if gateway, err := netip.ParseAddr(n.Gateway); err == nil && !network.Contains(gateway) {
			return bad("gateway %s is not in %v", n.Gateway, network)
		} else if err == nil && !gateway.Less(p.First) && !p.Last.Less(gateway) {
			return bad("gateway %s is among the addresses %v that VMs get", n.Gateway, p)
		}
	}
	for _, address := range append(slices.Clone(n.DNS), n.Gateway) {
		if _, err := netip.ParseAddr(address); err != nil && address != "" {
			return bad("invalid address %q", address)
		}
	}
	switch {
	case !NetworkBridge(n.Bridge).valid():
		return bad("no bridge can be called %q", n.Bridge)
	case n.VLAN < 0 || n.VLAN > 4094:
		return bad("no VLAN has the number %d", n.VLAN)
	case n.Domain != "" && !hostname(n.Domain, true):
		return bad("no domain is called %q", n.Domain)
	case twice(n.Names) != "":
		return bad("host name %s twice", twice(n.Names))
	case badPattern(n.Hosts) != "":
		return bad("hosts: invalid pattern %q", badPattern(n.Hosts))
	}
	for _, name := range n.Names {
		if !hostname(name, false) {
			return bad("no host is called %q", name)
		}
	}
	return nil
}

// Validate refuses a group that cannot be.
func (g ServerGroup) Validate() error {
	if err := CheckName("group", g.Name); err != nil {
		return err
	}
	if all := []Affinity{Together, Apart, SoftTogether, SoftApart}; !slices.Contains(all, g.Affinity) {
		return badFarm("group", g.Project+"/"+g.Name, "no rule is called %q; there are %v", g.Affinity, all)
	}
	return CheckName("project", g.Project)
}

// Validate refuses a user that cannot be.
func (u User) Validate() error {
	if err := CheckUser(u.Name); err != nil {
		return err
	}
	// what the audit log and join tokens call the server's own root, and the server
	if u.Name == "root" || u.Name == "grange" {
		return badFarm("user", u.Name, "the server itself is called so in its log")
	}
	for _, s := range u.Subjects {
		if plain, err := PlainSubject(s); err != nil || unprintable(s) || plain != s {
			return badFarm("user", u.Name,
				"invalid certificate subject %q: write its plain form, as \"CN=Ann,O=Grid,C=CH\" or "+
					"\"cern:CN=Ann,O=Grid,C=CH\"", s)
		}
	}
	if s := twice(u.Subjects); s != "" {
		return badFarm("user", u.Name, "subject %s twice", s)
	}
	return nil
}

// Validate refuses a grant that cannot be.
func (g Grant) Validate() error {
	switch {
	case CheckUser(g.User) != nil:
		return CheckUser(g.User)
	case !g.Role.Valid():
		return badFarm("grant of", g.User, "no role is called %q; there are %v", g.Role, Roles)
	case g.Project != "" && g.Cell != "":
		return badFarm("grant of", g.User, "a role is held in a project or in a cell, not in both; give it twice")
	case g.Cell != "" && g.Role == RoleMember:
		return badFarm("grant of", g.User, "members are of projects: in a cell there are readers, operators and admins")
	}
	return nil
}

func (g Grant) String() string {
	switch {
	case g.Project != "":
		return g.User + " " + string(g.Role) + " project:" + g.Project
	case g.Cell != "":
		return g.User + " " + string(g.Role) + " cell:" + g.Cell
	}
	return g.User + " " + string(g.Role)
}

// Validate refuses settings that no host could take.
func (s Settings) Validate() error {
	if s.BootTimeout != 0 && (s.BootTimeout < time.Second || s.BootTimeout > time.Hour) {
		return badFarm("settings", "", "boot_timeout of %v is not between 1s and 1h", s.BootTimeout)
	}
	for key, value := range s.Facts {
		if err := CheckName("fact", key); err != nil {
			return err
		}
		if unprintable(value) {
			return badFarm("settings", "", "fact %s cannot be printed, or is longer than %d bytes", key, maxText)
		}
	}
	if unprintable(s.DefaultImage) {
		return badFarm("settings", "", "no image is called %q", s.DefaultImage)
	}
	return nil
}

// Validate refuses maxima that make no sense.
func (m Maxima) Validate() error {
	switch {
	case m.CPUs < 0 || m.Guest.Sockets < 0 || m.Guest.Cores < 0 || m.Guest.Threads < 0:
		return badFarm("maxima", "", "a number below 0")
	case badPattern(m.CPUModels) != "":
		return badFarm("maxima", "", "cpu_models: invalid pattern %q", badPattern(m.CPUModels))
	}
	return nil
}

func (q Quota) valid() bool { return q.VMs >= 0 && q.CPUs >= 0 }

// maxText bounds what people write for people.
const maxText = 1024

func unprintable(s string) bool {
	return len(s) > maxText || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// twice is a word that is there twice; "": none.
func twice(words []string) string {
	for i, w := range words {
		if slices.Contains(words[:i], w) {
			return w
		}
	}
	return ""
}

func badPattern(patterns []string) string {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return p
		}
	}
	return ""
}

// hostname tells labels as RFC 1123 has them; with dots, or a single one.
func hostname(name string, dots bool) bool {
	if len(name) > 253 || !dots && strings.Contains(name, ".") {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		odd := func(r rune) bool {
			return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, odd) {
			return false
		}
	}
	return true
}
