package report

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// ChangeText is a change as an administrator would say it, with what it waits for.
func ChangeText(c tuning.Change) string {
	text := fmt.Sprintf("%s %s", c.Kind, c.Name)
	switch c.Kind {
	case tuning.SetValue:
		text = fmt.Sprintf("write %s to /%s", c.Value, c.Path)
	case tuning.SetBoot:
		text = "put " + assigned(c) + " on the kernel's command line"
		if c.Remove {
			text = "take " + assigned(c) + " off the kernel's command line"
		}
	case tuning.SetModule:
		text = fmt.Sprintf("load %s with %s", c.Unit, assigned(c))
		if c.Remove {
			text = fmt.Sprintf("load %s without the option %s", c.Unit, c.Name)
		}
	case tuning.SetService:
		text = "stop and disable " + c.Unit
		if c.Value == "on" {
			text = "start and enable " + c.Unit
		}
	case tuning.SetTuned:
		text = fmt.Sprintf("put %s into section %s of /%s, for tuned's next start", assigned(c), c.Unit, c.Path)
	case tuning.Unmerge:
		text = "take KSM's merged pages apart in steps, then stop KSM"
	}
	switch {
	case c.Reboot:
		text += " (from the next boot)"
	case c.NoVMs:
		text += " (while no VM runs)"
	}
	return text
}

func assigned(c tuning.Change) string {
	if c.Value == "" {
		return c.Name
	}
	return c.Name + "=" + c.Value
}

// place is findings of one rule that differ only in where they are.
type place struct {
	finding tuning.Finding
	where   []string
}

// places puts findings with the same text together, in the order of the first of each.
func places(findings []tuning.Finding) []place {
	var out []place
	at := map[string]int{}
	for _, f := range findings {
		changes := make([]string, 0, len(f.Changes))
		for _, c := range f.Changes {
			changes = append(changes, ChangeText(c))
		}
		key := fmt.Sprintf("%d\x00%s\x00%s\x00%s\x00%q", f.Severity, f.Got, f.Wanted, f.Manual, changes)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, place{finding: f})
		}
		out[i].where = append(out[i].where, f.Where)
	}
	return out
}

// Summary counts findings in words.
func Summary(r tuning.Report) string {
	var parts []string
	for _, s := range []struct {
		severity  tuning.Severity
		one, many string
	}{{tuning.Fault, "fault", "faults"}, {tuning.Warning, "warning", "warnings"}, {tuning.Advice, "piece of advice",
		"pieces of advice"}} {
		if n := r.Count(s.severity); n > 0 {
			parts = append(parts, counted(n, s.one, s.many))
		}
	}
	rules := counted(r.Applied, "rule", "rules")
	if len(parts) == 0 {
		return "nothing found by " + rules
	}
	return strings.Join(parts, ", ") + " by " + rules
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func hostName(h farm.HostFacts) string {
	if h.Name == "" {
		return "unnamed host"
	}
	return farm.Printable(h.Name)
}

// hardware is the host in one line.
func hardware(h farm.HostFacts) string {
	t := h.Topology
	parts := []string{}
	if t.CPU.Name != "" {
		parts = append(parts, t.CPU.Name)
	}
	parts = append(parts, counted(len(t.Sockets), "socket", "sockets"), counted(len(t.Nodes), "node", "nodes"),
		counted(len(t.Cores), "core", "cores"), counted(t.Online.Len(), "thread", "threads"))
	if memory := farm.Bytes(hostOf(h).Memory); memory > 0 {
		parts = append(parts, sizeText(memory))
	}
	return strings.Join(parts, ", ")
}

// sizeText is b in whole units of which there are ten or more: exact sizes of real nodes are unreadable.
func sizeText(b farm.Bytes) string {
	for _, unit := range []struct {
		size farm.Bytes
		name string
	}{{farm.TiB, "TiB"}, {farm.GiB, "GiB"}, {farm.MiB, "MiB"}} {
		if b >= 10*unit.size {
			return fmt.Sprintf("%d %s", (b+unit.size/2)/unit.size, unit.name)
		}
	}
	return b.String()
}

// software is the host's programs in one line.
func software(h farm.HostFacts) string {
	var parts []string
	for _, p := range []struct{ name, value string }{{"", h.OS.Name}, {"kernel ", h.Kernel.Release},
		{"QEMU ", h.Versions.QEMU}, {"libvirt ", h.Versions.Libvirt}} {
		if p.value != "" {
			parts = append(parts, p.name+p.value)
		}
	}
	return strings.Join(parts, ", ")
}
