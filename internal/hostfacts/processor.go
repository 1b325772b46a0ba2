package hostfacts

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

const (
	cpuDir       = "sys/devices/system/cpu"
	maxIdle      = 16 // C-states of one CPU; Linux knows 10 at most (CPUIDLE_STATE_MAX)
	maxIdleNames = 64
)

// processors reads what the host's CPUs are set to.
type processors struct{ *reader }

func (r processors) read(h *farm.HostFacts) {
	h.CPUTime = r.cpuTime()
	h.Virtual = slices.Contains(h.Topology.CPU.Flags, "hypervisor")
	h.Clocks = r.governors(h.Topology.Online)
	h.Idle = r.idle(h.Topology.Online)
	h.SMT = r.word(cpuDir + "/smt/control")
	h.Vulnerabilities = map[string]string{}
	for _, name := range r.Names(cpuDir + "/vulnerabilities") {
		if text, ok := r.Text(cpuDir + "/vulnerabilities/" + name); ok {
			h.Vulnerabilities[name] = text
		}
	}
	h.Present, _ = r.List(cpuDir + "/present")
	var told bool
	if h.Isolated, told = r.List(cpuDir + "/isolated"); !told {
		h.Isolated = fromCommand(h.Kernel.Command, "isolcpus")
	}
	// "(null)" where the option is not given
	if text, ok := r.Text(cpuDir + "/nohz_full"); ok && strings.Trim(text, "()") != "null" {
		h.NoHzFull, _ = r.List(cpuDir + "/nohz_full")
	} else if !ok {
		h.NoHzFull = fromCommand(h.Kernel.Command, "nohz_full")
	}
}

// fromCommand reads a CPU list from the kernel's command line. isolcpus may begin with words:
// "managed_irq,domain,2-31".
func fromCommand(command, option string) farm.CPUSet {
	for _, field := range strings.Fields(command) {
		list, ok := strings.CutPrefix(field, option+"=")
		if !ok {
			continue
		}
		for list != "" && (list[0] < '0' || list[0] > '9') {
			_, list, _ = strings.Cut(list, ",")
		}
		set, _ := hosttree.ParseList(list) // the kernel passes over what it cannot read, too
		return set
	}
	return farm.CPUSet{}
}

func cpuFile(cpu int, name string) string { return cpuDir + "/cpu" + strconv.Itoa(cpu) + "/" + name }

// governors groups CPUs by their frequency policy, in order of their first CPU.
func (r processors) governors(online farm.CPUSet) []farm.Governor {
	var out []farm.Governor
	cpus := [][]int{}
	for _, cpu := range online.List() {
		g := farm.Governor{Name: r.word(cpuFile(cpu, "cpufreq/scaling_governor")),
			Driver:     r.word(cpuFile(cpu, "cpufreq/scaling_driver")),
			Preference: r.word(cpuFile(cpu, "cpufreq/energy_performance_preference"))}
		if g.Name == "" {
			continue
		}
		i := slices.IndexFunc(out, func(o farm.Governor) bool {
			return o.Name == g.Name && o.Driver == g.Driver && o.Preference == g.Preference
		})
		if i < 0 {
			i = len(out)
			out, cpus = append(out, g), append(cpus, nil)
		}
		cpus[i] = append(cpus[i], cpu)
	}
	for i := range out {
		out[i].CPUs = farm.NewCPUSet(cpus[i]...)
	}
	return out
}

// idle lists the C-states, by name and latency: fast and slow cores of one processor have different ones under one
// name.
func (r processors) idle(online farm.CPUSet) []farm.IdleState {
	var out []farm.IdleState
	enabled := [][]int{}
	for _, cpu := range online.List() {
		for n := range maxIdle {
			dir := cpuFile(cpu, "cpuidle/state"+strconv.Itoa(n))
			name := r.word(dir + "/name")
			if name == "" {
				break
			}
			latency := r.count(dir+"/latency", math.MaxInt32)
			i := slices.IndexFunc(out, func(s farm.IdleState) bool {
				return s.Name == name &&
					s.LatencyMicros == latency
			})
			if i < 0 {
				if i = len(out); i == maxIdleNames {
					r.Fail(dir, "is one of more than %d idle states", maxIdleNames)
					return nil
				}
				out, enabled = append(out, farm.IdleState{Name: name, LatencyMicros: latency}), append(enabled, nil)
			}
			if r.word(dir+"/disable") != "1" {
				enabled[i] = append(enabled[i], cpu)
			}
		}
	}
	for i := range out {
		out[i].Enabled = farm.NewCPUSet(enabled[i]...)
	}
	return out
}

// cpuTime reads the first line of /proc/stat.
func (r processors) cpuTime() farm.CPUTime {
	text, _ := r.Head("proc/stat")
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != "cpu" {
		return farm.CPUTime{}
	}
	v := make([]int64, 11)
	for i, f := range fields[1:min(len(fields), len(v))] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || n < 0 {
			r.Fail("proc/stat", "%q is not CPU time", hosttree.Cut(line))
			return farm.CPUTime{}
		}
		v[i] = n
	}
	// user nice system idle iowait irq softirq steal guest guest_nice
	return farm.CPUTime{User: v[0], Nice: v[1], System: v[2] + v[5] + v[6], Idle: v[3], IOWait: v[4], Steal: v[7],
		Guest: v[8] + v[9]}
}
