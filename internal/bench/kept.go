package bench

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/grange-project/grange/internal/chart"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

// HostState is what of the host a measurement depends on.
type HostState struct {
	Kind        string            `json:"kind"` // as amd-epyc-7302-2s
	CPU         string            `json:"cpu"`
	CPUs        int               `json:"cpus"`
	Microcode   string            `json:"microcode,omitempty"`
	Nodes       int               `json:"nodes"`
	Virtual     bool              `json:"virtual"` // it is a virtual machine itself
	Kernel      string            `json:"kernel"`
	QEMU        string            `json:"qemu"`
	KVM         map[string]string `json:"kvm,omitempty"` // parameters of the modules
	THP         string            `json:"thp"`
	Governors   []string          `json:"governors,omitempty"` // of the frequency
	Mitigations map[string]string `json:"mitigations,omitempty"`
	Emulated    bool              `json:"emulated"` // VMs ran without KVM
	// Tuning is a digest of what the audit finds, and Findings how many that are; "": it could not tell.
	Tuning   string `json:"tuning,omitempty"`
	Findings int    `json:"findings,omitempty"`
	Power    string `json:"power,omitempty"` // what told how much the host takes; "": nothing
}

// StateOf is that of a host.
func StateOf(h farm.HostFacts) HostState {
	cpu := h.Topology.CPU
	s := HostState{Kind: topology.Kind(h.Topology), CPU: cpu.Name, CPUs: h.Topology.Online.Len(),
		Microcode: cpu.Microcode, Nodes: len(h.Topology.Nodes), Virtual: h.Virtual, Kernel: h.Kernel.Release,
		QEMU: h.Versions.QEMU, KVM: h.KVM.Params, THP: h.THP.Enabled, Mitigations: h.Vulnerabilities}
	for _, g := range h.Clocks {
		s.Governors = append(s.Governors, g.Name)
	}
	return s
}

// Measurement is one run, as it is kept.
type Measurement struct {
	Time    time.Time     `json:"time"`
	Command string        `json:"command"`
	Each    time.Duration `json:"each_nanoseconds"`
	Options string        `json:"options,omitempty"` // of the command: how its VMs are made
	Host    HostState     `json:"host"`
	Results []Result      `json:"results"`
	Ended   string        `json:"ended,omitempty"` // before all was measured: why
}

// Kept are the measurements of a host, the newest last.
type Kept struct {
	Version      int           `json:"version"`
	Measurements []Measurement `json:"measurements"`
}

// mostKept bounds them.
const mostKept = 50

// KeptFile is in the agent's state directory.
func KeptFile(stateDir string) string { return filepath.Join(stateDir, "bench.json") }

// ReadKept reads them; none is no error.
func ReadKept(stateDir string) (k Kept, err error) {
	text, err := os.ReadFile(KeptFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return Kept{Version: 1}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	return k, err
}

// Add keeps one more.
func (k *Kept) Add(m Measurement) {
	k.Measurements = append(k.Measurements, m)
	k.Measurements = k.Measurements[max(0, len(k.Measurements)-mostKept):]
}

// Table is a measurement for people: what VMs of each size do, as a part of what the host does by itself.
func Table(m Measurement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s, %s, kernel %s, QEMU %s\n", m.Command, m.Time.Format(time.RFC3339), m.Host.CPU,
		m.Host.Kernel, m.Host.QEMU)
	if m.Host.Emulated {
		fmt.Fprint(&b, "The VMs ran without KVM: this says nothing of those of a real host.\n")
	} else if m.Host.Virtual {
		fmt.Fprint(&b, "This host is a virtual machine itself: its VMs are slower than those of a real one.\n")
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKLOAD\tSIZE\tHOST\tVMS\t\tVMS/HOST\t95 %\tNOISE\tROUNDS\tOUTLIERS\tSHOWN")
	for _, r := range m.Results {
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%.3f\t%s\t%.1f %%\t%d\t%d\t%s\n", r.Workload, r.Size, number(r.Host),
			number(r.VM), r.Unit, r.Ratio.Median, bounds(r), 100*r.Noise, len(r.Rounds), r.Outliers, r.Shown())
	}
	w.Flush()
	if m.Ended != "" {
		fmt.Fprintf(&b, "\nNot all was measured: %s.\n", m.Ended)
	}
	return b.String()
}

func bounds(r Result) string {
	if !r.Ratio.Known() {
		return "not known"
	}
	return fmt.Sprintf("%.3f to %.3f", r.Ratio.Low, r.Ratio.High)
}

// number is a rate in so many digits as mean something.
func number(n float64) string {
	if n >= 1000 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(n, 'g', 4, 64)
}

// CSV is a measurement for spreadsheets, a line for each workload and size.
func CSV(m Measurement) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	w.Write([]string{"time", "cpu", "kernel", "qemu", "workload", "vms", "cpus", "memory", "unit", "host", "vm", "ratio",
		"low", "high", "noise", "rounds", "outliers", "shown", "host_watts", "vm_watts"})
	f := func(n float64) string { return strconv.FormatFloat(n, 'g', 8, 64) }
	watts := func(n float64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	for _, r := range m.Results {
		low, high := "", ""
		if r.Ratio.Known() {
			low, high = f(r.Ratio.Low), f(r.Ratio.High)
		}
		w.Write([]string{m.Time.Format(time.RFC3339), m.Host.CPU, m.Host.Kernel, m.Host.QEMU, r.Workload,
			strconv.Itoa(r.Size.VMs), strconv.Itoa(r.Size.CPUs), strconv.FormatUint(uint64(r.Size.Memory), 10), r.Unit,
			f(r.Host), f(r.VM), f(r.Ratio.Median), low, high, f(r.Noise),
			strconv.Itoa(len(r.Rounds)), strconv.Itoa(r.Outliers), r.Shown(), watts(r.HostWatts), watts(r.VMWatts)})
	}
	w.Flush() // into memory, which takes all
	return b.String()
}

// Picture draws it: a group for each workload, a bar for each size.
func Picture(m Measurement) string {
	var bars []chart.Bar
	for _, r := range m.Results {
		bars = append(bars, chart.Bar{Group: r.Workload, Name: r.Size.String(), Value: r.Ratio.Median,
			Text: fmt.Sprintf("%.3f (%s)", r.Ratio.Median, bounds(r))})
	}
	return chart.Bars(m.Command, bars)
}
