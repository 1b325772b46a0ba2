package hostfacts

import (
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io/fs"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

// HiddenDomains finds the domains of processes that no known domain names, where each process itself sees them: a libvirt in a mount
// namespace of its own keeps its files away from the host's. It takes a live host.
func HiddenDomains(fsys fs.FS, known []farm.Domain, procs []farm.Process) []farm.Domain {
	seen := map[string]bool{"": true}
	for _, d := range known {
		seen[d.UUID] = true
	}
	var out []farm.Domain
	for _, p := range procs {
		file := fmt.Sprintf("proc/%d/root/run/libvirt/qemu/%s.xml", p.PID, p.Name)
		if seen[p.UUID] || strings.Contains(p.Name, "/") || !fs.ValidPath(file) {
			continue
		}
		text, err := readSome(fsys, file, hosttree.MaxLarge)
		if err != nil {
			continue
		}
		// Whoever started the process chose what it sees: only the domain that it runs counts.
		if d, err := parseDomain(text); err == nil && d.UUID == p.UUID {
			d.Path = file
			seen[d.UUID], out = true, append(out, d)
		}
	}
	return out
}

// Plans reads the plans of our VMs, by their UUIDs: their agent keeps each in the metadata of its domain. Plans that cannot be read
// are left out, and unread says which and why; their VMs can be judged by libvirt's word alone.
func Plans(fsys fs.FS, domains []farm.Domain) (plans map[string]farm.Plan, unread []string) {
	plans = map[string]farm.Plan{}
	for _, d := range domains {
		if !d.Ours || d.Path == "" {
			continue
		}
		text, err := readSome(fsys, d.Path, hosttree.MaxLarge)
		var plan farm.Plan
		if err == nil {
			plan, err = parsePlan(text)
		}
		if err != nil {
			unread = append(unread, fmt.Sprintf("the plan of VM %s: %v", d.Name, err))
			continue
		}
		plans[d.UUID] = plan
	}
	return plans, unread
}

// parsePlan reads the plan in a domain's XML, or in the status around it. See internal/hyper/libvirt for the metadata, and
// internal/agent for the record that it holds.
func parsePlan(text []byte) (farm.Plan, error) {
	if err := checkXML(text); err != nil {
		return farm.Plan{}, err
	}
	type metadata struct {
		VM string `xml:"https://grange.dev/xmlns/vm/1 vm"`
	}
	var x struct {
		Own   metadata `xml:"metadata"`
		Below metadata `xml:"domain>metadata"`
	}
	if err := xml.Unmarshal(text, &x); err != nil {
		return farm.Plan{}, fmt.Errorf("read domain XML: %w", err)
	}
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(x.Own.VM + x.Below.VM))
	if err != nil {
		return farm.Plan{}, fmt.Errorf("decode metadata: %w", err)
	}
	var record struct{ Plan farm.Plan }
	if err := json.Unmarshal(data, &record); err != nil {
		return farm.Plan{}, fmt.Errorf("decode record: %w", err)
	}
	if n := len(record.Plan.VCPUs); n == 0 || n > farm.MaxCPUs {
		return farm.Plan{}, fmt.Errorf("a record with %d planned vCPUs", n)
	}
	return record.Plan, nil
}
