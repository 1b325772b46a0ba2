package host

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// fitReport is what `grange host fit --json` prints.
type fitReport struct {
	Host    string   `json:"host"`
	VMs     []fitVM  `json:"vms"`               // up to the first that does not fit
	Instead *fitSize `json:"instead,omitempty"` // what would fit in place of that one
	Free    string   `json:"free"`              // CPUs that are left for VMs with CPUs of their own
}

type fitSize struct {
	CPUs   int    `json:"cpus"`
	Memory string `json:"memory"`
}

type fitVM struct {
	Fits     bool      `json:"fits"`
	Reason   string    `json:"reason,omitempty"`
	Hint     string    `json:"hint,omitempty"`
	VCPUs    []string  `json:"vcpus,omitempty"` // host CPUs, by vCPU
	Floating string    `json:"floating,omitempty"`
	Cells    []fitCell `json:"cells,omitempty"`
	Guest    *fitGuest `json:"guest,omitempty"`
	Emulator string    `json:"emulator,omitempty"`
	Extra    string    `json:"extra,omitempty"` // host CPUs held beside the pinned vCPUs'
	Moves    []fitMove `json:"moves,omitempty"` // of other VMs, made before, in this order
}

// fitMove is one VM that goes to other CPUs or nodes of its host.
type fitMove struct {
	VM     string     `json:"vm"` // "beside 2", "VM 1": counted from 1
	VCPUs  int        `json:"vcpus"`
	From   string     `json:"from"` // host CPUs
	To     string     `json:"to"`
	Memory farm.Bytes `json:"memory"` // bytes that change their node
}

func movesOf(moves []numa.Move) []fitMove {
	var out []fitMove
	for _, m := range moves {
		out = append(out, fitMove{VM: m.Name, VCPUs: len(m.To.VCPUs), From: m.From.CPUs().String(),
			To: m.To.CPUs().String(), Memory: m.Memory})
	}
	return out
}

type fitCell struct {
	Node   int        `json:"node"`
	Memory farm.Bytes `json:"memory"` // bytes
	Pages  farm.Bytes `json:"pages"`  // bytes of one page; 0 is ordinary pages
	VCPUs  string     `json:"vcpus"`
	CPUs   string     `json:"cpus"` // of the host
	// Remote: the node of its CPUs has no memory, and Node is the nearest that has any.
	Remote bool `json:"remote,omitempty"`
}

type fitGuest struct {
	Sockets int `json:"sockets"`
	Cores   int `json:"cores"`
	Threads int `json:"threads"`
}

func fitOf(p farm.Plan, err error) fitVM {
	if err != nil {
		message, hint := app.Explain(err)
		return fitVM{Reason: message, Hint: hint}
	}
	vm := fitVM{Fits: true, Floating: p.Floating.String(), Emulator: p.Emulator.String(), Extra: p.Extra.String()}
	vm.Guest = &fitGuest{p.Guest.Sockets, p.Guest.Cores, p.Guest.Threads}
	for _, v := range p.VCPUs {
		vm.VCPUs = append(vm.VCPUs, v.String())
	}
	for _, c := range p.Cells {
		var cpus farm.CPUSet
		for _, v := range c.VCPUs.List() {
			cpus = cpus.Or(p.VCPUs[v])
		}
		vm.Cells = append(vm.Cells, fitCell{Node: c.Node, Memory: c.Memory, Pages: c.PageSize, VCPUs: c.VCPUs.String(),
			CPUs: cpus.String(), Remote: c.Remote})
	}
	return vm
}

func (a fitCommands) printFit(r fitReport, room numa.Room) error {
	if a.JSON {
		return a.PrintJSON(r)
	}
	for i, vm := range r.VMs {
		if !vm.Fits {
			fmt.Fprintf(a.Out, "VM %d does not fit %s: %s\n", i+1, r.Host, vm.Reason)
			if r.Instead != nil {
				fmt.Fprintf(a.Out, "  would fit instead: %s and %s\n", farm.Count(r.Instead.CPUs, "vCPU"),
					r.Instead.Memory)
			}
			if vm.Hint != "" {
				fmt.Fprintf(a.Out, "  try: %s\n", vm.Hint)
			}
			continue
		}
		for _, m := range vm.Moves {
			fmt.Fprintf(a.Out, "move %s, %s, from CPUs %s to %s; %v of memory change node\n", m.VM,
				farm.Count(m.VCPUs, "vCPU"), m.From, m.To, m.Memory)
		}
		if err := a.printFitVM(i+1, r.Host, vm); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.Out, "left: CPUs %s; %s\n", app.OrNone(r.Free), left(room))
	return nil
}

func (a fitCommands) printFitVM(n int, host string, vm fitVM) error {
	fmt.Fprintf(a.Out, "VM %d fits %s; the guest sees %d × %d × %d (sockets × cores × threads)\n", n, host,
		vm.Guest.Sockets, vm.Guest.Cores, vm.Guest.Threads)
	t := output.NewColumns(a.Out)
	fmt.Fprintln(t, "  CELL\tVCPUS\tHOST CPUS\tNODE\tMEMORY\tPAGES")
	for i, c := range vm.Cells {
		pages := "ordinary"
		if c.Pages > 0 {
			pages = fmt.Sprintf("%d × %v", c.Memory/c.Pages, c.Pages)
		}
		fmt.Fprintf(t, "  %d\t%s\t%s\t%d\t%v\t%s\n", i, c.VCPUs, c.CPUs, c.Node, c.Memory, pages)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, c := range vm.Cells {
		if c.Remote {
			fmt.Fprintf(a.Out, "  cell %d: the memory is remote: the node of its CPUs has none, and node %d is the nearest "+
				"that has any\n", i, c.Node)
		}
	}
	fmt.Fprintf(a.Out, "  emulator threads: CPUs %s", vm.Emulator)
	if vm.Extra != "" {
		fmt.Fprintf(a.Out, "; held beside the vCPUs: CPUs %s", vm.Extra)
	}
	if vm.Floating != "" {
		fmt.Fprintf(a.Out, "; vCPUs %s share theirs with other VMs", vm.Floating)
	}
	fmt.Fprintln(a.Out)
	return nil
}

// left returns what each node still has of memory and pages.
func left(room numa.Room) string {
	var parts []string
	for _, n := range room.Topology.Nodes {
		have := room.Nodes[n.ID]
		text := fmt.Sprintf("node %d %v", n.ID, have.Memory/farm.MiB*farm.MiB)
		for _, p := range n.Pages {
			if p.Total == 0 {
				continue
			}
			text += fmt.Sprintf(" and %d × %v", have.Pages[p.Size], p.Size)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func cpuList(cpus []int) string { return farm.NewCPUSet(cpus...).String() }
