package farmfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	f.add("max_age", age(p.MaxAge))
	f.add("purpose", string(p.Purpose))
	f.add("pledge", p.Pledge)
	f.add("security_groups", p.SecurityGroups)
	f.add("ssh_from", prefixTexts(p.SSHFrom))
	return f
}

func shapeFields(s farm.Shape) []field {
	var f fields
	f.add("cpus", s.CPUs)
	f.add("memory", s.Memory)
	disks := s.Texts()
	f.add("disk", disks.Root)
	f.add("scratch", disks.Scratch)
	f.add("volumes", disks.Volumes)
	f.add("swap", disks.Swap)
	f.add("memory_peak", disks.MemoryPeak)
	f.add("bandwidth_in", s.Bandwidth.In)
	f.add("bandwidth_out", s.Bandwidth.Out)
	f.add("sockets", s.Guest.Sockets)
	f.add("cores", s.Guest.Cores)
	f.add("threads", s.Guest.Threads)
	f.add("max_sockets", s.MaxGuest.Sockets)
	f.add("max_cores", s.MaxGuest.Cores)
	f.add("max_threads", s.MaxGuest.Threads)
	f.add("purpose", string(s.Purpose))
	f.add("cpu_model", s.CPUModel)
	f.add("display", s.Display)
	f.add("thread_policy", string(s.Threads))
	f.add("emulator", string(s.Emulator))
	f.add("numa", s.Cells)
	if len(s.Pages) > 0 {
		f.add("page_size", strings.Trim(fmt.Sprint(s.Pages), "[]"))
	}
	f.add("cache", s.Cache)
	return f
}

func scoreFields(s farm.Score) []field {
	var f fields
	f.add("hardware", s.Hardware)
	f.add("cpus", s.CPUs)
	f.add("core", s.Core)
	f.add("unit", s.Unit)
	f.add("source", s.Source)
	return f
}

func networkFields(n farm.FleetNetwork) []field {
	var f fields
	f.add("bridge", n.Bridge)
	f.add("vlan", n.VLAN)
	f.add("vxlan", n.VXLAN)
	f.add("addresses", poolTexts(n.Addresses))
	f.add("gateway", n.Gateway)
	f.add("dns", n.DNS)
	f.add("domain", n.Domain)
	f.add("names", n.Names)
	f.add("isolate", n.Isolate)
	f.add("closed", n.Closed)
	f.add("hosts", n.Hosts)
	return f
}

func groupFields(g farm.ServerGroup) []field { return fields{{"affinity", string(g.Affinity)}} }

func userFields(u farm.User) []field {
	var f fields
	f.add("subjects", strings.Join(u.Subjects, " | "))
	f.add("logins", strings.Join(u.Logins, " | "))
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

// DiffUser returns what differs between two users, as Change.Details has it; all of the second where the first is zero.
func DiffUser(was, is farm.User) []string { return fieldsDiff(userFields(was), userFields(is)) }
