package hostfacts

import (
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// modprobeDirs are where options of modules are, the one that wins first: a file hides those of the same name in later
// ones.
var modprobeDirs = []string{"etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d",
	"lib/modprobe.d"}

func (r *reader) kvm() farm.KVM {
	k := farm.KVM{Params: map[string]string{}}
	for _, module := range r.Names("sys/module") {
		if !kvmModule(module) {
			continue
		}
		k.Loaded = k.Loaded || module != "kvm" // kvm itself may be built in on a machine that cannot run VMs
		dir := "sys/module/" + module + "/parameters"
		for _, name := range r.Names(dir) {
			if value, ok := r.Text(dir + "/" + name); ok {
				k.Params[module+"."+name] = value
			}
		}
	}
	k.Options = r.moduleOptions()
	return k
}

func kvmModule(name string) bool { return name == "kvm" || strings.HasPrefix(name, "kvm_") }

// moduleOptions reads the options of the kvm modules in modprobe's order.
func (r *reader) moduleOptions() []farm.ModuleOption {
	where := map[string]string{}
	for _, dir := range modprobeDirs {
		for _, name := range r.Names(dir) {
			if _, hidden := where[name]; !hidden && strings.HasSuffix(name, ".conf") {
				where[name] = dir + "/" + name
			}
		}
	}
	var names []string
	for name := range where {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []farm.ModuleOption
	for _, name := range names {
		out = append(out, r.optionsIn(where[name])...)
	}
	if len(out) == 0 && r.Exists("etc/modprobe.conf") { // of before 2009
		out = r.optionsIn("etc/modprobe.conf")
	}
	return out
}

func (r *reader) optionsIn(path string) []farm.ModuleOption {
	text, _ := r.Text(path)
	var out []farm.ModuleOption
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "options" {
			continue
		}
		module := strings.ReplaceAll(fields[1], "-", "_")
		if !kvmModule(module) {
			continue
		}
		for _, option := range fields[2:] {
			if strings.HasPrefix(option, "#") {
				break
			}
			name, value, _ := strings.Cut(option, "=")
			out = append(out, farm.ModuleOption{Path: path, Module: module, Name: name,
				Value: strings.Trim(value, `"`)})
		}
	}
	return out
}
