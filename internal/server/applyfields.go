package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// field is one key of an object, as people read it. Those with their usual value are left out.
type field struct{ key, text string }

// fields gathers those that say something.
type fields []field

func (f *fields) add(key string, value any) {
	text := fmt.Sprint(value)
	switch v := value.(type) {
	case []string:
		text = strings.Join(v, " ")
	case farm.Bytes:
		if v == 0 {
			text = ""
		}
	}
	if text != "" && text != "0" && text != "false" && text != "0s" {
		*f = append(*f, field{key, text})
	}
}

func (f *fields) quota(key string, q farm.Quota) {
	f.add(key+".vms", q.VMs)
	f.add(key+".cpus", q.CPUs)
	f.add(key+".memory", q.Memory)
	f.add(key+".scratch", q.Scratch)
}

func (f *fields) words(key string, words map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(words)) {
		*f = append(*f, field{key + "." + k, words[k]})
	}
}

func cellFields(c farm.FarmCell) []field {
	var f fields
	f.add("broker", c.Broker)
	f.add("batch", c.Batch)
	f.add("default", c.Default)
	f.add("projects", c.Projects)
	f.add("closed", c.Closed)
	if c.Closed {
		f.add("reason", c.Reason)
	}
	f.add("packing", string(c.Packing))
	f.add("keep_whole", c.KeepWhole)
	f.add("overcommit", c.Overcommit)
	f.quota("limits", c.Limits)
	f.add("per_host", c.PerHost)
	f.add("services", c.Services)
	f.words("labels", c.Labels)
	return f
}

func projectFields(p farm.Project) []field {
	var f fields
	f.add("account", p.Account)
	f.quota("quota", p.Quota)
	f.add("networks", p.Networks)
	f.add("shapes", p.Shapes)
	f.add("images", p.Images)
	f.add("max_age", inDays(p.MaxAge))
	f.add("purpose", string(p.Purpose))
	return f
}

// inDays writes whole days as farm files do.
func inDays(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}

func shapeFields(s farm.Shape) []field {
	var f fields
	f.add("cpus", s.CPUs)
	f.add("memory", s.Memory)
	f.add("scratch", s.Scratch)
	f.add("sockets", s.Guest.Sockets)
	f.add("cores", s.Guest.Cores)
	f.add("threads", s.Guest.Threads)
	f.add("max_sockets", s.MaxGuest.Sockets)
	f.add("max_cores", s.MaxGuest.Cores)
	f.add("max_threads", s.MaxGuest.Threads)
	f.add("purpose", string(s.Purpose))
	f.add("cpu_model", s.CPUModel)
	f.add("thread_policy", string(s.Threads))
	f.add("emulator", string(s.Emulator))
	f.add("numa", s.Cells)
	if len(s.Pages) > 0 {
		f.add("page_size", strings.Trim(fmt.Sprint(s.Pages), "[]"))
	}
	f.add("cache", s.Cache)
	return f
}

func networkFields(n farm.FleetNetwork) []field {
	var f fields
	f.add("bridge", n.Bridge)
	f.add("vlan", n.VLAN)
	var pools []string
	for _, p := range n.Addresses {
		pools = append(pools, p.String())
	}
	f.add("addresses", pools)
	f.add("gateway", n.Gateway)
	f.add("dns", n.DNS)
	f.add("domain", n.Domain)
	f.add("names", n.Names)
	f.add("closed", n.Closed)
	f.add("hosts", n.Hosts)
	return f
}

func groupFields(g farm.ServerGroup) []field { return fields{{"affinity", string(g.Affinity)}} }

func userFields(u farm.User) []field {
	var f fields
	f.add("subjects", strings.Join(u.Subjects, " | "))
	f.add("disabled", u.Disabled)
	return f
}

func settingsFields(s farm.Settings) []field {
	var f fields
	f.add("boot_timeout", s.BootTimeout)
	f.add("default_image", s.DefaultImage)
	f.words("facts", s.Facts)
	return f
}

func maximaFields(m farm.Maxima) []field {
	var f fields
	f.add("cpus", m.CPUs)
	f.add("memory", m.Memory)
	f.add("scratch", m.Scratch)
	f.add("sockets", m.Guest.Sockets)
	f.add("cores", m.Guest.Cores)
	f.add("threads", m.Guest.Threads)
	f.add("cpu_models", m.CPUModels)
	return f
}

// changed compares objects name by name.
func changed[T any](kind string, have, after []T, name func(T) string, of func(T) []field) (made, gone []FarmChange) {
	was, is := byName(have, name), byName(after, name)
	for _, a := range after {
		old, ok := was[name(a)]
		if !ok {
			made = append(made, FarmChange{Op: opCreate, Kind: kind, Name: name(a), Details: against(nil, of(a))})
			continue
		}
		if details := against(of(old), of(a)); len(details) > 0 {
			made = append(made, FarmChange{Op: opChange, Kind: kind, Name: name(a), Details: details})
		}
	}
	for _, h := range have {
		if _, ok := is[name(h)]; !ok {
			gone = append(gone, FarmChange{Op: opDelete, Kind: kind, Name: name(h)})
		}
	}
	return made, gone
}

// against tells what differs, in the order of the keys as they are now, and then of those that are no more.
func against(was, is []field) (details []string) {
	text := func(list []field, key string) string {
		return named(list, key, func(f field) string { return f.key }).text
	}
	for _, f := range is {
		switch old := text(was, f.key); {
		case old == "" && was == nil:
			details = append(details, f.key+": "+f.text)
		case old == "":
			details = append(details, f.key+": - → "+f.text)
		case old != f.text:
			details = append(details, f.key+": "+old+" → "+f.text)
		}
	}
	for _, f := range was {
		if !hasName(is, f.key, func(f field) string { return f.key }) {
			details = append(details, f.key+": "+f.text+" → -")
		}
	}
	return details
}

func join(details []string) string { return strings.Join(details, ", ") }
