package setup

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/slurm/worker"
	"github.com/grange-project/grange/internal/farm"
)

// nodeLine is what slurm.conf says of a node.
type nodeLine struct {
	Names, Hostnames string
	has              map[string]string // by lower-case key
	Where            string
}

// number returns a figure of the line.
func (n nodeLine) number(key string) (int64, bool) {
	v, err := strconv.ParseInt(n.has[key], 10, 64)
	return v, err == nil
}

// nodeLines are the lines of nodes, each with what NodeName=DEFAULT before it said.
func (c Conf) nodeLines() []nodeLine {
	var all []nodeLine
	defaults := map[string]string{}
	for _, s := range c.nodes {
		words := strings.Fields(s.Value)
		if len(words) == 0 {
			continue
		}
		n := nodeLine{Names: words[0], has: map[string]string{}, Where: fmt.Sprintf("%s:%d", s.File, s.Line)}
		for key, value := range defaults {
			n.has[key] = value
		}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			n.has[strings.ToLower(key)] = value
		}
		if strings.EqualFold(n.Names, "DEFAULT") {
			defaults = n.has
			continue
		}
		if n.Hostnames = n.has["nodehostname"]; n.Hostnames == "" {
			n.Hostnames = n.Names
		}
		all = append(all, n)
	}
	return all
}

// ownNode returns the line of this host's node: that of a slurmd that runs here with -N, or that of the host's name. If
// no line names this host, and all lines say the same of memory, it returns the first.
func (s Site) ownNode() (nodeLine, bool) {
	lines := s.Slurm.nodeLines()
	for _, name := range s.slurmdNames() {
		for _, n := range lines {
			if lists(n.Names, name) {
				return n, true
			}
		}
	}
	if name := s.hostname(); name != "" {
		for _, n := range lines {
			if lists(n.Hostnames, name) {
				return n, true
			}
		}
	}
	for _, n := range lines {
		if n.has["realmemory"] != lines[0].has["realmemory"] || n.has["memspeclimit"] != lines[0].has["memspeclimit"] {
			return nodeLine{}, false
		}
	}
	if len(lines) == 0 {
		return nodeLine{}, false
	}
	return lines[0], true
}

func lists(hosts, name string) bool {
	all, err := worker.Expand(hosts)
	return err == nil && slices.Contains(all, name)
}

// hostname returns the name of this host without its domain.
func (s Site) hostname() string {
	text, _ := fs.ReadFile(s.Root, "proc/sys/kernel/hostname")
	name, _, _ := strings.Cut(strings.TrimSpace(string(text)), ".")
	return name
}

// slurmdNames are the names of nodes that slurmds of this host were started with.
func (s Site) slurmdNames() []string {
	var names []string
	for _, dir := range s.slurmds() {
		text, _ := fs.ReadFile(s.Root, dir+"/cmdline")
		args := strings.Split(string(text), "\x00")
		for i, arg := range args {
			if name, ok := strings.CutPrefix(arg, "-N"); ok && name != "" {
				names = append(names, name)
			} else if ok && i+1 < len(args) {
				names = append(names, args[i+1])
			}
		}
	}
	return names
}

// checkRealMemory compares what Slurm gives to a job that has the whole node with what the agent grants to a VM.
func checkRealMemory(s Site) batch.Finding {
	n, ok := s.ownNode()
	real, set := n.number("realmemory")
	if !ok || !set || s.Grants == 0 {
		return batch.Finding{Level: batch.Good, Found: "nothing to compare", Where: s.Slurm.Path}
	}
	spec, _ := n.number("memspeclimit")
	found := fmt.Sprintf("RealMemory=%d", real)
	if spec > 0 {
		found += fmt.Sprintf(" MemSpecLimit=%d", spec)
	}
	found += " of " + n.Names
	grants := int64(s.Grants / farm.MiB)
	if real-spec <= grants {
		return batch.Finding{Level: batch.Good, Found: found, Where: n.Where}
	}
	who := "a job that has the whole node (--mem=0, also with --exclusive)"
	if s.wholeByDefault() {
		who = "a job that names no memory, or --mem=0,"
	}
	return batch.Finding{Level: batch.Warning, Where: n.Where,
		Found: fmt.Sprintf("%s: the agent grants VMs %dM", found, grants),
		Why: fmt.Sprintf("%s is given %dM by Slurm, its VM never fits, and it ends with 197 (too-big)", who,
			real-spec),
		Do: fmt.Sprintf("RealMemory=%d MemSpecLimit=%d, or RealMemory=%d; or a smaller reserved_memory in agent.toml",
			real, real-grants, grants+spec)}
}

// wholeByDefault reports whether a job that asks for no memory has all of its node.
func (s Site) wholeByDefault() bool {
	for _, key := range []string{"DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU"} {
		if v := s.Slurm.Get(key); v != "" && v != "0" {
			return false
		}
	}
	return strings.Contains(strings.ToUpper(s.Slurm.Get("SelectTypeParameters")), "MEMORY")
}
