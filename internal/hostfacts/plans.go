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
