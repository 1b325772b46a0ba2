package farmfile

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/grange-project/grange/internal/farm"
)

// Format returns a farm as a farm file, which Parse reads as the same farm. What has its usual value is left out.
func Format(f farm.Farm) ([]byte, error) {
	var b bytes.Buffer
	encoder := toml.NewEncoder(&b)
	encoder.SetIndentTables(false)
	if err := encoder.Encode(tablesOf(f)); err != nil {
		return nil, fmt.Errorf("write the farm as TOML: %w", err)
	}
	return []byte(spaced(b.String())), nil
}

// tablesOf returns the tables of a farm.
func tablesOf(f farm.Farm) file {
	out := file{Groups: groupTables(f.Groups)}
	if s := f.Settings; s != nil {
		out.Settings = &settingsTable{DefaultImage: s.DefaultImage, Facts: s.Facts, BootTimeout: age(s.BootTimeout)}
	}
	if m := f.Maxima; m != nil {
		out.Maxima = &maximaTable{CPUs: m.CPUs, Memory: size(m.Memory), Scratch: size(m.Scratch),
			Sockets: m.Guest.Sockets, Cores: m.Guest.Cores, Threads: m.Guest.Threads, CPUModels: m.CPUModels}
	}
	out.Cells = tables(f.Cells, cellName, cellTableOf)
	out.Projects = tables(f.Projects, projectName, projectTableOf)
	out.Shapes = tables(f.Shapes, shapeName, shapeTableOf)
	out.Networks = tables(f.Networks, networkName, networkTableOf)
	out.Scores = tables(f.Scores, scoreName, func(s farm.Score) scoreTable {
		return scoreTable{Hardware: s.Hardware, CPUs: s.CPUs, Tuning: s.Tuning, Core: s.Core, Unit: s.Unit,
			Source: s.Source}
	})
	out.Users = tables(f.Users, userName, func(u farm.User) userTable {
		return userTable{Subjects: u.Subjects, Logins: u.Logins, Disabled: u.Disabled}
	})
	for _, g := range f.Grants {
		out.Grants = append(out.Grants,
			grantTable{User: g.User, Role: string(g.Role), Project: g.Project, Cell: g.Cell})
	}
	for _, m := range f.Mappings {
		out.Mappings = append(out.Mappings, mappingTable{Issuer: m.Issuer, Claim: m.Claim, Value: m.Value,
			Role: string(m.Role), Project: m.Project, Cell: m.Cell})
	}
	return out
}

// tables returns the tables of objects by their names; nil where there is no list.
func tables[T, F any](list []T, name func(T) string, convert func(T) F) map[string]F {
	if list == nil {
		return nil
	}
	out := map[string]F{}
	for _, t := range list {
		out[name(t)] = convert(t)
	}
	return out
}

func groupTables(list []farm.ServerGroup) map[string]map[string]groupTable {
	var out map[string]map[string]groupTable
	for _, g := range list {
		if out == nil {
			out = map[string]map[string]groupTable{}
		}
		if out[g.Project] == nil {
			out[g.Project] = map[string]groupTable{}
		}
		out[g.Project][g.Name] = groupTable{Affinity: string(g.Affinity)}
	}
	return out
}

// Strip removes from a whole farm what a farm file does not say: revisions and drains, that a cell is open, and
// settings and maxima that are none.
func Strip(f *farm.Farm) {
	for i := range f.Cells {
		c := &f.Cells[i]
		c.Drain, c.Revision = farm.Drain{}, 0
		if c.Closed {
			shut := false
			c.Open = &shut
		} else {
			c.Reason = ""
		}
	}
	for i := range f.Projects {
		f.Projects[i].Revision = 0
	}
	for i := range f.Networks {
		f.Networks[i].Revision = 0
	}
	for i := range f.Groups {
		f.Groups[i].Revision = 0
	}
	for i := range f.Users {
		f.Users[i].Revision = 0
	}
	if f.Settings.IsZero() {
		f.Settings = nil
	}
	if len(maximaFields(*f.Maxima)) == 0 {
		f.Maxima = nil
	}
}

// spaced sets tables apart, and leaves headers out that only say that others follow.
func spaced(text string) string {
	var out strings.Builder
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		header := strings.HasPrefix(line, "[")
		switch {
		case line == "", header && i+1 < len(lines) && strings.HasPrefix(lines[i+1], strings.TrimSuffix(line, "]")+"."):
			continue
		case header && out.Len() > 0:
			out.WriteByte('\n')
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

func cellTableOf(c farm.FarmCell) cellTable {
	out := cellTable{Broker: c.Broker, Batch: c.Batch, Default: c.Default, Projects: c.Projects, Open: c.Open,
		KeepWhole: c.KeepWhole, Limits: quotaTableOf(c.Limits), PerHost: c.PerHost, Services: c.Services,
		Labels: c.Labels, Reason: c.Reason}
	if c.Broker == farm.BrokerGrange {
		out.Broker = ""
	}
	if c.Packing != farm.Pack {
		out.Packing = string(c.Packing)
	}
	if c.Overcommit != 1 {
		out.Overcommit = c.Overcommit
	}
	return out
}

func projectTableOf(p farm.Project) projectTable {
	return projectTable{Account: p.Account, Quota: quotaTableOf(p.Quota), Networks: p.Networks, Shapes: p.Shapes,
		Images: p.Images, MaxAge: age(p.MaxAge), Purpose: string(p.Purpose), Pledge: p.Pledge,
		SecurityGroups: p.SecurityGroups, SSHFrom: prefixTexts(p.SSHFrom)}
}

func prefixTexts(all []netip.Prefix) (texts []string) {
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return texts
}

func networkTableOf(n farm.FleetNetwork) networkTable {
	return networkTable{Bridge: n.Bridge, VLAN: n.VLAN, VXLAN: n.VXLAN, Addresses: poolTexts(n.Addresses),
		Gateway: n.Gateway, DNS: n.DNS, Domain: n.Domain, Names: n.Names, Isolate: n.Isolate, Closed: n.Closed,
		Hosts: n.Hosts}
}

func poolTexts(pools []farm.AddressPool) (texts []string) {
	for _, p := range pools {
		texts = append(texts, p.String())
	}
	return texts
}

func shapeTableOf(s farm.Shape) shapeTable {
	disks := s.Texts()
	out := shapeTable{CPUs: s.CPUs, Memory: s.Memory.String(), Scratch: disks.Scratch, Disk: disks.Root,
		Volumes: disks.Volumes, Swap: disks.Swap, MemoryPeak: disks.MemoryPeak, Sockets: s.Guest.Sockets,
		Cores: s.Guest.Cores, Threads: s.Guest.Threads, MaxSockets: s.MaxGuest.Sockets, MaxCores: s.MaxGuest.Cores,
		MaxThreads: s.MaxGuest.Threads, Purpose: string(s.Purpose), CPUModel: s.CPUModel, Display: s.Display,
		ThreadPolicy: string(s.Threads), Emulator: string(s.Emulator), Cache: s.Cache}
	if b := s.Bandwidth; b.In > 0 {
		out.BandwidthIn = b.In.String()
	}
	if b := s.Bandwidth; b.Out > 0 {
		out.BandwidthOut = b.Out.String()
	}
	switch s.Cells {
	case 0:
	case 1:
		out.NUMA = "none"
	default:
		out.NUMA = fmt.Sprint(s.Cells)
	}
	var pages []string
	for _, p := range s.Pages {
		pages = append(pages, p.String())
	}
	out.PageSize = strings.Join(pages, ",")
	return out
}

func quotaTableOf(q farm.Quota) *quotaTable {
	if q == (farm.Quota{}) {
		return nil
	}
	return &quotaTable{VMs: q.VMs, CPUs: q.CPUs, Memory: size(q.Memory), Scratch: size(q.Scratch)}
}

func size(b farm.Bytes) string {
	if b == 0 {
		return ""
	}
	return b.String()
}
