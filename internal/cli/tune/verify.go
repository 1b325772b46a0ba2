package tune

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/verify"
)

func (a tuneCommands) tuneVerifyCommand() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "verify [VM...]",
		Short: "Verify that every virtual machine runs where it was planned",
		Long: `For every virtual machine on the host, created by grange or not, compare the plan, libvirt's
definition and the kernel's state: the CPUs of threads, the location of memory, and the
limits of control groups. The command changes nothing.

It reports, among others, several VMs on one CPU while other CPUs are idle, memory on other
NUMA nodes than the vCPUs, QEMU's own threads on CPUs of vCPUs, pins to offline or isolated
CPUs, and unpinned VMs on CPUs of pinned ones.

Exit status 0: there are no problems. 4: there are problems, or the threads of a VM cannot
be read. 5: there are faults, such as two VMs on one CPU.`,
		Example: `  grange tune verify
  grange tune verify --from host.tar --json
  grange tune verify grange-1a2b3c4d`,
		RunE: func(cmd *cobra.Command, names []string) error {
			tree, err := app.HostTree(cmd.Context(), from)
			if err != nil {
				return err
			}
			defer tree.Close()
			report, notes, err := VerifyTree(tree)
			if err != nil {
				return err
			}
			where := tree.Name
			if tree.Live {
				where = "this host"
			}
			if report, err = only(report, names, where); err != nil {
				return err
			}
			if err := a.printProof(report, notes); err != nil {
				return err
			}
			switch report.Worst() {
			case tuning.Fault:
				return app.ExitError{Status: app.ExitCrowded}
			case tuning.Warning:
				return app.ExitError{Status: app.ExitMisplaced}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	app.FromFlag(cmd, &from)
	return cmd
}

// VerifyTree reads all three sides. Notes are about what could not be read.
func VerifyTree(tree *hosttree.Tree) (verify.Report, []string, error) {
	host, machines, err := readSides(tree)
	if err != nil {
		return verify.Report{}, nil, err
	}
	r, notes := verifySides(host, machines)
	return r, notes, nil
}

func readSides(tree *hosttree.Tree) (host farm.HostFacts, machines hostfacts.Machines, err error) {
	if host, err = hostfacts.Read(tree); err == nil {
		machines, err = hostfacts.ReadMachines(tree, host.Domains, tree.Live)
	}
	return host, machines, err
}

func verifySides(host farm.HostFacts, machines hostfacts.Machines) (verify.Report, []string) {
	host.Domains = machines.Domains
	notes := machines.Unread
	unread := 0
	for _, p := range machines.Processes {
		if p.Memory.Resident == nil && len(host.Topology.Nodes) > 1 {
			unread++
		}
	}
	if unread > 0 {
		notes = append(notes, fmt.Sprintf(
			"where the memory of %d VMs lies is not known: numa_maps of their processes takes root", unread))
	}
	for _, u := range host.Unread {
		if strings.Contains(u, "libvirt") {
			notes = append(notes, u)
		}
	}
	return verify.Verify(host, slices.Concat(machines.Processes, machines.Unseen), machines.Plans), notes
}

// only keeps the VMs with these names, and the problems that are about them; all without names. The host is called
// where.
func only(r verify.Report, names []string, where string) (verify.Report, error) {
	if len(names) == 0 {
		return r, nil
	}
	var out verify.Report
	for _, name := range names {
		before := len(out.VMs)
		for _, v := range r.VMs {
			// one of several with the name
			if v.Name == name || v.UUID == name || strings.HasPrefix(v.Name, name+" (process ") {
				out.VMs = append(out.VMs, v)
			}
		}
		if len(out.VMs) == before {
			return out, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM,
				Message: fmt.Sprintf("no VM %q runs on %s", name, where),
				Hint:    "`grange tune verify` without a name shows all"}
		}
	}
	for _, p := range r.Problems {
		about := func(v verify.VM) bool { return v.Name == p.VM || slices.Contains(p.Others, v.Name) }
		if slices.ContainsFunc(out.VMs, about) {
			out.Problems = append(out.Problems, p)
		}
	}
	return out, nil
}

func (a tuneCommands) printProof(r verify.Report, notes []string) error {
	if a.JSON {
		return a.PrintJSON(proofJSON(r, notes))
	}
	if err := proofTable(a.Out, r); err != nil {
		return err
	}
	for _, p := range r.Problems {
		about := append([]string{p.VM}, p.Others...)
		fmt.Fprintf(a.Out, "\n%s: %s: %s [%s]\n  try: %s\n  why: %s (%s)\n", p.Severity,
			farm.Printable(strings.Join(about, ", ")), farm.Printable(p.Message), p.Kind, p.Fix, p.Source.Says,
			p.Source.Name)
	}
	for _, n := range notes {
		fmt.Fprintf(a.Out, "note: %s\n", farm.Printable(n))
	}
	return nil
}

// proofTable has a line for each thread; vCPUs that are alike share one.
func proofTable(w io.Writer, r verify.Report) error {
	if len(r.VMs) == 0 {
		_, err := fmt.Fprintln(w, "no virtual machine runs")
		return err
	}
	t := output.NewColumns(w)
	fmt.Fprintln(t, "VM\tTHREAD\tPLANNED\tLIBVIRT\tKERNEL\tMEMORY\tVERDICT")
	for _, vm := range r.VMs {
		name, memory, verdict := farm.Printable(vm.Name), nodeMemory(guestMemory(vm)), string(vm.Verdict)
		for _, l := range alike(vm.Lines) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, l.Thread, orDash(l.Planned), orDash(l.Libvirt),
				orDash(l.Kernel), memory, verdict)
			name, memory, verdict = "", "", ""
		}
	}
	return t.Flush()
}

// alike joins lines of vCPUs that follow each other with the same sets.
func alike(lines []verify.Line) []verify.Line {
	var out []verify.Line
	from := ""
	for i, l := range lines {
		number, isVCPU := strings.CutPrefix(l.Thread, "vCPU ")
		if n := len(out); i > 0 && isVCPU && strings.HasPrefix(out[n-1].Thread, "vCPU") && same(out[n-1], l) {
			out[n-1].Thread = fmt.Sprintf("vCPUs %s-%s", from, number)
			continue
		}
		from, out = number, append(out, l)
	}
	return out
}

func same(a, b verify.Line) bool {
	return a.Planned.Equal(b.Planned) && a.Libvirt.Equal(b.Libvirt) && a.Kernel.Equal(b.Kernel)
}

func orDash(s farm.CPUSet) string {
	if s.Empty() {
		return "-"
	}
	return s.String()
}

// nodeMemory is where memory lies, in words.
func nodeMemory(memory map[int]farm.Bytes) string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(memory)) {
		if memory[node] > 0 {
			parts = append(parts, fmt.Sprintf("node %d: %.1fM", node, float64(memory[node])/float64(farm.MiB)))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// What tune verify prints as JSON. CPU sets are in the kernel's list format, memory is in bytes.
type (
	verifyJSON struct {
		VMs      []verifyVM      `json:"vms"`
		Problems []verifyProblem `json:"problems"`
		Notes    []string        `json:"notes,omitempty"`
	}
	verifyVM struct {
		Name    string         `json:"name"`
		UUID    string         `json:"uuid,omitempty"`
		PID     int            `json:"pid"` // 0 when its process is not to be seen
		Ours    bool           `json:"ours"`
		Verdict string         `json:"verdict"`
		Threads []verifyThread `json:"threads"`
		// the guest's; with QEMU's where that cannot be told apart
		Memory map[string]uint64 `json:"memory,omitempty"`
		Own    map[string]uint64 `json:"own_memory,omitempty"` // QEMU's
	}
	verifyThread struct {
		Thread  string `json:"thread"`
		Planned string `json:"planned,omitempty"`
		Libvirt string `json:"libvirt,omitempty"`
		Kernel  string `json:"kernel"`
		LastCPU *int   `json:"last_cpu,omitempty"`
	}
	verifyProblem struct {
		Kind     string       `json:"kind"`
		Severity string       `json:"severity"`
		VM       string       `json:"vm"`
		Others   []string     `json:"others,omitempty"`
		CPUs     string       `json:"cpus,omitempty"`
		Message  string       `json:"message"`
		Fix      string       `json:"fix"`
		Source   verifySource `json:"source"`
	}
	verifySource struct {
		Name string `json:"name"`
		URL  string `json:"url,omitempty"`
		Says string `json:"says"`
	}
)

// guestMemory is the guest's memory by node, or with QEMU's own what cannot be told from it.
func guestMemory(vm verify.VM) map[int]farm.Bytes {
	if guest := vm.Memory.Guest(); guest != nil {
		return guest
	}
	return vm.Memory.Resident
}

// byNode is nil where nothing is known.
func byNode(memory map[int]farm.Bytes) map[string]uint64 {
	if memory == nil {
		return nil
	}
	out := map[string]uint64{}
	for node, size := range memory {
		if size > 0 {
			out[strconv.Itoa(node)] = uint64(size)
		}
	}
	return out
}

func proofJSON(r verify.Report, notes []string) verifyJSON {
	out := verifyJSON{VMs: []verifyVM{}, Problems: []verifyProblem{}, Notes: notes}
	for _, vm := range r.VMs {
		v := verifyVM{Name: vm.Name, UUID: vm.UUID, PID: vm.PID, Ours: vm.Ours, Verdict: string(vm.Verdict),
			Threads: []verifyThread{}}
		for _, l := range vm.Lines {
			t := verifyThread{Thread: l.Thread, Planned: l.Planned.String(), Libvirt: l.Libvirt.String(),
				Kernel: l.Kernel.String()}
			if l.LastCPU >= 0 {
				t.LastCPU = &l.LastCPU
			}
			v.Threads = append(v.Threads, t)
		}
		v.Memory, v.Own = byNode(guestMemory(vm)), byNode(vm.Memory.Own())
		out.VMs = append(out.VMs, v)
	}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, verifyProblem{Kind: string(p.Kind), Severity: p.Severity.String(), VM: p.VM,
			Others: p.Others, CPUs: p.CPUs.String(), Message: p.Message, Fix: p.Fix,
			Source: verifySource{p.Source.Name, p.Source.URL, p.Source.Says}})
	}
	return out
}
