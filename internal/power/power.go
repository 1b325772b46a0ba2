// Package power reads how much power a host takes, where its hardware tells: a meter of the whole host, as its BMC
// shows it by ACPI, or else what its processors count (RAPL).
package power

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Meter is one that a host has.
type Meter struct {
	Source string   // for people: what it is, and what of the host it measures
	zones  []zone   // that count energy
	watts  []string // files that show power, in microwatts
}

// zone is a part of a host that counts its energy, in microjoules, up to a range.
type zone struct {
	file  string
	whole uint64 // where it begins anew
}

// Reading is what a meter shows at a time.
type Reading struct {
	at     time.Time
	energy []uint64
	watts  float64
}

// Find looks for a meter below /sys; nil: there is none.
func Find(sys string) *Meter {
	if files := acpi(sys); len(files) > 0 {
		return &Meter{Source: "ACPI power meter, of the whole host", watts: files}
	}
	byName := rapl(sys)
	for name := range byName {
		if strings.HasPrefix(name, "psys") {
			return &Meter{Source: "RAPL, of the platform", zones: byName[name]}
		}
	}
	m := &Meter{Source: "RAPL, of processors and memory"}
	for name, zones := range byName {
		if strings.HasPrefix(name, "package-") || name == "dram" {
			m.zones = append(m.zones, zones...)
		}
	}
	if len(m.zones) == 0 {
		return nil
	}
	slices.SortFunc(m.zones, func(a, b zone) int { return strings.Compare(a.file, b.file) })
	return m
}

// acpi are the files of power meters.
func acpi(sys string) (files []string) {
	dirs, _ := filepath.Glob(filepath.Join(sys, "class/hwmon/hwmon*")) // of a pattern that is right
	for _, dir := range dirs {
		if name, err := os.ReadFile(filepath.Join(dir, "name")); err != nil ||
			strings.TrimSpace(string(name)) != "power_meter" {
			continue
		}
		for _, file := range []string{"power1_average", "power1_input"} {
			if _, err := number(filepath.Join(dir, file)); err == nil {
				files = append(files, filepath.Join(dir, file))
				break
			}
		}
	}
	return files
}

// rapl are the zones that can be read, by name: package-0, dram, psys.
func rapl(sys string) map[string][]zone {
	byName := map[string][]zone{}
	dirs, _ := filepath.Glob(filepath.Join(sys, "class/powercap/intel-rapl:*")) // of AMD processors, too
	for _, dir := range dirs {
		name, err := os.ReadFile(filepath.Join(dir, "name"))
		if err != nil {
			continue
		}
		z := zone{file: filepath.Join(dir, "energy_uj")}
		if z.whole, err = number(filepath.Join(dir, "max_energy_range_uj")); err != nil {
			continue
		}
		if _, err := number(z.file); err == nil { // root alone may read it
			word := strings.TrimSpace(string(name))
			byName[word] = append(byName[word], z)
		}
	}
	return byName
}

func number(file string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// Read reads the meter at a time.
func (m *Meter) Read(now time.Time) (r Reading, err error) {
	r.at = now
	for _, z := range m.zones {
		n, err := number(z.file)
		if err != nil {
			return r, err
		}
		r.energy = append(r.energy, n)
	}
	for _, file := range m.watts {
		n, err := number(file)
		if err != nil {
			return r, err
		}
		r.watts += float64(n) / 1e6
	}
	return r, nil
}

// Watts is the power between two readings, which are not so far apart that a counter passes its range twice. 0: not
// known.
func (m *Meter) Watts(from, to Reading) float64 {
	if len(m.watts) > 0 {
		return (from.watts + to.watts) / 2
	}
	seconds := to.at.Sub(from.at).Seconds()
	if seconds <= 0 || len(from.energy) != len(m.zones) || len(to.energy) != len(m.zones) {
		return 0
	}
	joules := 0.0
	for i, z := range m.zones {
		used := to.energy[i] - from.energy[i]
		if to.energy[i] < from.energy[i] {
			used = to.energy[i] + z.whole - from.energy[i]
		}
		joules += float64(used) / 1e6
	}
	return joules / seconds
}

// Watch begins to watch a meter, and returns what ends that: it tells the power meanwhile, and 0 where it is not known.
// A nil meter knows nothing.
func (m *Meter) Watch() (end func() float64) {
	if m == nil {
		return func() float64 { return 0 }
	}
	if len(m.watts) > 0 {
		return m.sample()
	}
	from, err := m.Read(time.Now())
	return func() float64 {
		to, after := m.Read(time.Now())
		if err != nil || after != nil {
			return 0
		}
		return m.Watts(from, to)
	}
}

// often is how often a meter that shows power, and counts no energy, is looked at: BMCs renew theirs about once a
// second.
const often = 200 * time.Millisecond

// sample is Watch of such a meter: the mean of what it showed, at the beginning and the end, too.
func (m *Meter) sample() (end func() float64) {
	sum, n, known := 0.0, 0, true
	look := func() {
		r, err := m.Read(time.Now())
		sum, n, known = sum+r.watts, n+1, known && err == nil
	}
	look()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticks := time.NewTicker(often)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				look()
			}
		}
	}()
	return func() float64 {
		close(stop)
		<-stopped
		if look(); !known {
			return 0
		}
		return sum / float64(n)
	}
}
