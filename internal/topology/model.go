package topology

import (
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// model reads the first processor of /proc/cpuinfo, and its highest clock. Processors that are not x86 have other words
// there, and keep what they lack empty.
func (r reader) model(online farm.CPUSet) farm.CPUModel {
	var m farm.CPUModel
	text, _ := r.Head("proc/cpuinfo")
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok && m.Name != "" { // an empty line ends a processor
			break
		}
		switch name {
		case "vendor_id", "vendor": // the second on Itanium
			m.Vendor = value
		case "model name", "cpu", "Processor", "cpu model": // x86 and ARM, POWER, old ARM, MIPS
			m.Name = value
		case "cpu family", "family":
			m.Family, _ = strconv.Atoi(value)
		case "model":
			m.Model, _ = strconv.Atoi(value)
		case "stepping":
			m.Stepping, _ = strconv.Atoi(value)
		case "microcode":
			m.Microcode = value
		case "flags", "Features":
			m.Flags = strings.Fields(value)
		}
	}
	if !online.Empty() {
		khz, _ := r.Number(cpuPath(online.List()[0], "cpufreq/cpuinfo_max_freq"), 1<<31-1)
		m.MaxMHz = max(khz, 0) / 1000
	}
	return m
}
