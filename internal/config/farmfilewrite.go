package config

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/grange-project/grange/internal/farm"
)

// FarmText is a farm as a farm file, which ParseFarm reads as the same farm. What has its usual value is left out.
func FarmText(f farm.Farm) ([]byte, error) {
	file := farmFile{}
	if f.Settings != nil {
		file.Settings = &settingsFile{DefaultImage: f.Settings.DefaultImage, Facts: f.Settings.Facts,
			BootTimeout: age(f.Settings.BootTimeout)}
	}
	if m := f.Maxima; m != nil {
		file.Maxima = &maximaFile{CPUs: m.CPUs, Memory: size(m.Memory), Scratch: size(m.Scratch),
			Sockets: m.Guest.Sockets, Cores: m.Guest.Cores, Threads: m.Guest.Threads, CPUModels: m.CPUModels}
	}
	file.Cells = byName(f.Cells, func(c farm.FarmCell) (string, cellFile) { return c.Name, cellText(c) })
	file.Projects = byName(f.Projects, func(p farm.Project) (string, projectFile) {
		return p.Name, projectFile{Account: p.Account, Quota: quotaText(p.Quota), Networks: p.Networks,
			Shapes: p.Shapes, Images: p.Images, MaxAge: age(p.MaxAge), Purpose: string(p.Purpose)}
	})
	file.Shapes = byName(f.Shapes, func(s farm.Shape) (string, farmShapeFile) { return s.Name, shapeText(s) })
	file.Networks = byName(f.Networks, func(n farm.FleetNetwork) (string, networkFile) {
		out := networkFile{Bridge: n.Bridge, VLAN: n.VLAN, Gateway: n.Gateway, DNS: n.DNS, Domain: n.Domain,
			Names: n.Names, Closed: n.Closed, Hosts: n.Hosts}
		for _, p := range n.Addresses {
			out.Addresses = append(out.Addresses, p.String())
		}
		return n.Name, out
	})
	file.Users = byName(f.Users, func(u farm.User) (string, userFile) {
		return u.Name, userFile{Subjects: u.Subjects, Disabled: u.Disabled}
	})
	for _, g := range f.Groups {
		if file.Groups == nil {
			file.Groups = map[string]map[string]groupFile{}
		}
		if file.Groups[g.Project] == nil {
			file.Groups[g.Project] = map[string]groupFile{}
		}
		file.Groups[g.Project][g.Name] = groupFile{Affinity: string(g.Affinity)}
	}
	for _, g := range f.Grants {
		file.Grants = append(file.Grants,
			grantFile{User: g.User, Role: string(g.Role), Project: g.Project, Cell: g.Cell})
	}
	var b bytes.Buffer
	encoder := toml.NewEncoder(&b)
	encoder.SetIndentTables(false)
	if err := encoder.Encode(file); err != nil {
		return nil, fmt.Errorf("write the farm as TOML: %w", err)
	}
	return []byte(spaced(b.String())), nil
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

func byName[T, F any](list []T, convert func(T) (string, F)) map[string]F {
	if list == nil {
		return nil
	}
	out := map[string]F{}
	for _, t := range list {
		name, file := convert(t)
		out[name] = file
	}
	return out
}

func cellText(c farm.FarmCell) cellFile {
	out := cellFile{Broker: c.Broker, Batch: c.Batch, Default: c.Default, Projects: c.Projects, Open: c.Open,
		KeepWhole: c.KeepWhole, Limits: quotaText(c.Limits), PerHost: c.PerHost, Services: c.Services, Labels: c.Labels,
		Reason: c.Reason}
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

func shapeText(s farm.Shape) farmShapeFile {
	out := farmShapeFile{CPUs: s.CPUs, Memory: s.Memory.String(), Scratch: size(s.Scratch), Sockets: s.Guest.Sockets,
		Cores: s.Guest.Cores, Threads: s.Guest.Threads, MaxSockets: s.MaxGuest.Sockets, MaxCores: s.MaxGuest.Cores,
		MaxThreads: s.MaxGuest.Threads, Purpose: string(s.Purpose), CPUModel: s.CPUModel,
		ThreadPolicy: string(s.Threads), Emulator: string(s.Emulator), Cache: s.Cache}
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

func quotaText(q farm.Quota) *quotaFile {
	if q == (farm.Quota{}) {
		return nil
	}
	return &quotaFile{VMs: q.VMs, CPUs: q.CPUs, Memory: size(q.Memory), Scratch: size(q.Scratch)}
}

func size(b farm.Bytes) string {
	if b == 0 {
		return ""
	}
	return b.String()
}

// age is a duration as people write it: whole days as days.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return ""
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}
