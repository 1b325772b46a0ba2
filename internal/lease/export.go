package lease

import (
	"fmt"
	"io"
	"strings"
)

// Formats are those that Export writes.
var Formats = []string{"hosts", "zone", "dhcpd", "dnsmasq"}

// Export writes leases as the registry of a site takes them: lines of /etc/hosts, records of a DNS zone, hosts of ISC's
// dhcpd.conf, or dnsmasq's options.
func Export(w io.Writer, format string, all []Lease) error {
	line, ok := map[string]func(Lease) []string{"hosts": hostsLines, "zone": zoneLines, "dhcpd": dhcpdLines,
		"dnsmasq": dnsmasqLines}[format]
	if !ok {
		return fmt.Errorf("no format %q; there are %s", format, strings.Join(Formats, ", "))
	}
	for _, l := range all {
		for _, text := range line(l) {
			if _, err := fmt.Fprintln(w, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Names are the names of a host in /etc/hosts: the whole one, and without its domain.
func (l Lease) Names() string {
	if label, _, ok := strings.Cut(l.Name, "."); ok {
		return l.Name + " " + label
	}
	return l.Name
}

func hostsLines(l Lease) (lines []string) {
	for _, a := range l.Addresses {
		lines = append(lines, fmt.Sprintf("%v\t%s", a.Addr(), l.Names()))
	}
	return lines
}

// zoneLines have absolute names where there is a domain: the zone's $ORIGIN is not known.
func zoneLines(l Lease) (lines []string) {
	name := l.Name
	if strings.Contains(name, ".") {
		name += "."
	}
	for _, a := range l.Addresses {
		kind := "AAAA"
		if a.Addr().Is4() {
			kind = "A"
		}
		lines = append(lines, fmt.Sprintf("%s\tIN\t%s\t%v", name, kind, a.Addr()))
	}
	return lines
}

// dhcpdLines has a declaration for each family: a dhcpd serves one.
func dhcpdLines(l Lease) (lines []string) {
	host := func(name, address string) {
		lines = append(lines, fmt.Sprintf("host %s { hardware ethernet %s;%s option host-name %q; }", name, l.MAC,
			address, l.Name))
	}
	if len(l.Addresses) == 0 {
		host(l.Name, "")
	}
	if a := l.IPv4(); a.IsValid() {
		host(l.Name, fmt.Sprintf(" fixed-address %v;", a.Addr()))
	}
	if a := l.IPv6(); a.IsValid() {
		host("ip6-"+l.Name, fmt.Sprintf(" fixed-address6 %v;", a.Addr()))
	}
	return lines
}

func dnsmasqLines(l Lease) []string {
	words := []string{l.MAC, l.Name}
	for _, a := range l.Addresses {
		if a.Addr().Is4() {
			words = append(words, a.Addr().String())
		} else {
			words = append(words, "["+a.Addr().String()+"]")
		}
	}
	return []string{"dhcp-host=" + strings.Join(words, ",")}
}
