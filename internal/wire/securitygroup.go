package wire

import (
	"net/netip"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// Words of a direction.
const (
	directionIn  = "in"
	directionOut = "out"
)

func direction(out bool) string {
	if out {
		return directionOut
	}
	return directionIn
}

// SecurityGroup is a security group on the wire.
func SecurityGroup(g farm.SecurityGroup) fleet.SecurityGroup {
	out := fleet.SecurityGroup{Project: g.Project, Name: g.Name, Rules: []fleet.SecurityRule{}, Revision: g.Revision}
	for _, r := range g.Rules {
		out.Rules = append(out.Rules, SecurityRule(r))
	}
	return out
}

// SecurityRule is a rule on the wire.
func SecurityRule(r farm.SecurityRule) fleet.SecurityRule {
	return fleet.SecurityRule{Direction: direction(r.Out), Protocol: r.Protocol.String(), Ports: r.Ports.String(),
		CIDR: prefixText(r.CIDR), Group: r.Group}
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// ParseSecurityRules reads rules. The error is a *farm.Error of kind Invalid. That they can be, Validate says.
func ParseSecurityRules(rules []fleet.SecurityRule) ([]farm.SecurityRule, error) {
	return tryEach(rules, ParseSecurityRule)
}

// ParseSecurityRule reads one.
func ParseSecurityRule(v fleet.SecurityRule) (r farm.SecurityRule, err error) {
	words := []string{v.Direction, "any"}
	if v.Protocol != "" {
		words[1] = v.Protocol
	}
	if v.Ports != "" {
		words = append(words, v.Ports)
	}
	if r, err = farm.ParseSecurityRule(words); err != nil {
		return r, err
	}
	if r.Group = v.Group; v.CIDR != "" {
		r.CIDR, err = farm.ParseCIDR(v.CIDR)
	}
	return r, err
}

// Firewall is a firewall on the wire.
func Firewall(f farm.Firewall) *fleet.Firewall {
	out := &fleet.Firewall{Rules: []fleet.FirewallRule{}}
	for _, r := range f.Rules {
		rule := fleet.FirewallRule{Direction: direction(r.Out), Protocol: string(r.Protocol), Ports: r.Ports.String()}
		for _, p := range r.Peers {
			rule.Peers = append(rule.Peers, p.String())
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// ParseFirewall reads one. A rule that cannot be read lets nothing pass.
func ParseFirewall(v fleet.Firewall) (f farm.Firewall) {
	for _, rule := range v.Rules {
		r, err := ParseSecurityRule(fleet.SecurityRule{Direction: rule.Direction, Protocol: rule.Protocol,
			Ports: rule.Ports})
		out := farm.FirewallRule{Out: r.Out, Protocol: r.Protocol, Ports: r.Ports}
		for _, text := range rule.Peers {
			p, bad := farm.ParseCIDR(text)
			if bad != nil {
				err = bad
			}
			out.Peers = append(out.Peers, p)
		}
		if err == nil {
			f.Rules = append(f.Rules, out)
		}
	}
	return f
}
