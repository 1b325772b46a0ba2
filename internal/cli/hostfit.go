package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/flavor"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
)

// fitFlags are what `grange host fit` takes.
type fitFlags struct {
	cases                         string
	from, reserve, shared         string
	overcommit                    float64
	cpus, count                   int
	memory, pages, threads, nodes string
	emulator                      string
	properties, beside            []string
	repack                        bool
}

// senseless are the errors of a VM or a reserve that makes no sense on any host.
var senseless = []farm.Code{farm.CodeUsage, farm.CodeBadSize, farm.CodeBadCPUList, farm.CodeBadShape,
	farm.CodeBadProperty, farm.CodePropertyConflict}

// worded are the flags that a property says as well.
var worded = []string{"page-size", "pages", "threads", "numa", "emulator"}

func (a *app) hostFitCommand() *cobra.Command {
	var f fitFlags
	cmd := &cobra.Command{
		Use:   "fit",
		Short: "Say where VMs would go on a host, and why not",
		Long: `Plans virtual machines on a host as if it were empty: which host CPU each vCPU gets, which memory node and pages each guest NUMA
cell. Nothing is started and nothing is changed. The host is this one, or the recorded one that --from names.

What does not fit is explained, with the largest VM of the same kind that would fit. The exit status is 1 then, and 2 where a flag or
a property makes no sense: no VM has less than 64M of memory. --beside puts other VMs
of the same kind there first; one that ends in "-" leaves again when all are placed, so that there are holes. With --repack VMs are moved
within the host where that makes room, and the moves are shown.

A VM is described by flags, or in OpenStack's words with --property, once for each: hw: properties are the flavor's, hw_ properties
the image's. In OpenStack's words a VM shares CPUs unless hw:cpu_policy says otherwise; --shared names the CPUs for that.

With --cases it answers recorded placement cases instead: a JSON document with "cases", or a list of them ("-" reads standard input).
With --json each answer is one line of JSON with id, fits, cells (host_cell, pagesize_kb, pin, reserved_cpus) and reason. A case that
makes no sense is answered with "error"; the others are answered all the same, and the exit status is 1.`,
		Example: `  grange host fit --cpus 16 --memory 32G --page-size 1G,2M,any
  grange host fit --cpus 8 --memory 16G --threads isolate --emulator isolate --count 4
  grange host fit --cpus 32 --memory 64G --numa 2 --from host.tar
  grange host fit --cpus 8 --memory 16G --property hw:cpu_policy=dedicated --property hw:mem_page_size=large
  grange host fit --cpus 16 --memory 32G --numa none --beside 8x16G- --beside 8x16G --beside 8x16G- --beside 8x16G --repack
  grange host fit --cases cases.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.cases != "" {
				if cmd.Flags().NFlag() > number(a.json)+number(cmd.Flags().Changed("socket"))+1 {
					return usage("name the cases alone", "cases say their own hosts and VMs")
				}
				return a.fitCases(f.cases)
			}
			if len(f.properties) > 0 {
				for _, name := range worded {
					if cmd.Flags().Changed(name) {
						return usage("say it with a property", "--%s and --property do not go together", name)
					}
				}
			}
			err := a.fitVMs(cmd.Context(), f)
			if slices.Contains(senseless, farm.Code(codeOf(err))) {
				printError(a.err, err)
				return exitError{exitUsage}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&f.cases, "cases", "", "answer the placement cases of this `file`")
	fromFlag(cmd, &f.from)
	cmd.Flags().StringVar(&f.reserve, "reserve", "", "`CPUs` that stay the host's own")
	cmd.Flags().StringVar(&f.shared, "shared", "", "`CPUs` that VMs share")
	cmd.Flags().Float64Var(&f.overcommit, "overcommit", 1, "vCPUs that share a CPU of --shared")
	cmd.Flags().IntVar(&f.cpus, "cpus", 0, "vCPUs")
	cmd.Flags().StringVar(&f.memory, "memory", "", "memory, for example 32G")
	cmd.Flags().StringVar(&f.pages, "page-size", "",
		"page `sizes` that will do, best first, for example 1G,2M; \"any\" ends in ordinary pages")
	renamedFlag(cmd.Flags(), "pages", "page-size")
	cmd.Flags().StringVar(&f.threads, "threads", "prefer", "how vCPUs use siblings: prefer, require or isolate")
	cmd.Flags().StringVar(&f.nodes, "numa", "auto", "guest NUMA: auto, none or a number of cells")
	cmd.Flags().StringVar(&f.emulator, "emulator", "beside",
		"where QEMU's own threads run: beside the vCPUs, or isolate")
	cmd.Flags().StringArrayVar(&f.properties, "property", nil,
		"a `property` of an OpenStack flavor or image, name=value; may be repeated")
	cmd.Flags().StringArrayVar(&f.beside, "beside", nil,
		"a VM that is there already, as `CPUSxMEMORY`; with - at its end it has left again; may be repeated")
	cmd.Flags().BoolVar(&f.repack, "repack", false, "move VMs within the host where that makes room")
	cmd.Flags().IntVar(&f.count, "count", 1, "how many such VMs, one after the other")
	for flag, words := range map[string][]string{
		"threads": {"prefer", "require", "isolate"}, "emulator": {"beside", "isolate"}, "numa": {"auto", "none", "2"},
	} {
		cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxFits bounds --count.
const maxFits = 10000

func (a *app) fitVMs(ctx context.Context, f fitFlags) error {
	req, err := f.request()
	if err != nil {
		return err
	}
	if f.count < 1 || f.count > maxFits {
		return usage(fmt.Sprintf("take 1 to %d", maxFits), "--count is %d", f.count)
	}
	if f.shared == "" && floats(req) {
		return usage("name CPUs with --shared, or say --property hw:cpu_policy=dedicated",
			"the VM shares CPUs, and the host has none for that")
	}
	tree, err := hostTree(ctx, f.from)
	if err != nil {
		return err
	}
	defer tree.Close()
	host, err := topology.Read(tree)
	if err != nil {
		return fmt.Errorf("read %s: %w", tree.Name, err)
	}
	room, err := f.room(host)
	if err != nil {
		return err
	}
	req.Allowed = host.Online
	h := fitHost{room: room}
	for _, text := range f.beside {
		if err := h.putBeside(text, req); err != nil {
			return err
		}
	}
	h.leave()
	report := fitReport{Host: tree.Name}
	for i := range f.count {
		vm, err := h.place(fmt.Sprintf("VM %d", i+1), req, f.repack)
		if err != nil {
			return err
		}
		report.VMs = append(report.VMs, vm)
		if !vm.Fits {
			report.Instead = smaller(h.room, req)
			break
		}
	}
	report.Free = h.room.Free.String()
	if err := a.printFit(report, h.room); err != nil {
		return err
	}
	if !report.VMs[len(report.VMs)-1].Fits {
		return exitError{exitFailed}
	}
	return nil
}

// floats reports whether some vCPU shares CPUs.
func floats(req numa.Request) bool {
	return req.CPU == farm.Shared && len(req.Each) == 0 ||
		slices.ContainsFunc(req.Each, func(c numa.CellRequest) bool { return !c.Floating.Empty() })
}

func (f fitFlags) room(host farm.Topology) (numa.Room, error) {
	var reserve numa.Reserve
	var err error
	if reserve.CPUs, err = farm.ParseCPUSet(f.reserve); err != nil {
		return numa.Room{}, err
	}
	shared, err := farm.ParseCPUSet(f.shared)
	if err != nil {
		return numa.Room{}, err
	}
	if unknown := reserve.CPUs.Or(shared).Minus(host.Online); !unknown.Empty() {
		return numa.Room{}, usage("the host's CPUs are "+host.Online.String(), "the host has no CPUs %v", unknown)
	}
	if !(f.overcommit > 0 && f.overcommit <= 1000) {
		return numa.Room{}, usage("take for example 2", "an overcommit of %v makes no sense", f.overcommit)
	}
	if shared = shared.Minus(reserve.CPUs); !shared.Empty() {
		reserve.Shared = map[int]numa.SharedRoom{}
		for _, n := range host.Nodes {
			pool := n.CPUs.And(shared)
			reserve.Shared[n.ID] = numa.SharedRoom{CPUs: pool, VCPUs: int(float64(pool.Len()) * f.overcommit),
				Memory: n.Memory}
		}
	}
	return numa.NewRoom(host, reserve, nil), nil
}

// request is the VM that the flags describe.
func (f fitFlags) request() (numa.Request, error) {
	if f.cpus < 1 || f.memory == "" {
		return numa.Request{}, usage("for example: grange host fit --cpus 16 --memory 32G",
			"say how large the VM is, with --cpus and --memory")
	}
	memory, err := farm.ParseBytes(f.memory)
	if err != nil {
		return numa.Request{}, err
	}
	if err := enough(memory); err != nil {
		return numa.Request{}, err
	}
	if len(f.properties) > 0 {
		return f.fromProperties(memory)
	}
	req := numa.Request{VCPUs: f.cpus, Memory: memory}
	switch f.threads {
	case "prefer":
	case "require", "isolate":
		req.Threads = farm.ThreadPolicy(f.threads)
	default:
		return req, usage("write prefer, require or isolate", "--threads %q is not known", f.threads)
	}
	switch f.emulator {
	case "beside":
	case "isolate":
		req.Emulator = farm.EmulatorIsolate
	default:
		return req, usage("write beside or isolate", "--emulator %q is not known", f.emulator)
	}
	switch cells, err := strconv.Atoi(f.nodes); {
	case f.nodes == "none":
		req.Cells = 1
	case f.nodes != "auto" && (err != nil || cells < 1):
		return req, usage("write auto, none or a number of cells", "--numa %q is not known", f.nodes)
	case cells > f.cpus:
		return req, usage("ask for no more cells than vCPUs", "%s cannot be in %d cells",
			farm.Count(f.cpus, "vCPU"), cells)
	default:
		req.Cells = cells
	}
	req.Pages, err = pageList(f.pages)
	return req, err
}

// enough refuses memory that no VM starts with.
func enough(memory farm.Bytes) error {
	if memory >= farm.MinMemory {
		return nil
	}
	said := memory.String()
	if memory%farm.KiB != 0 || memory == 0 {
		said = farm.Count(int(memory), "byte")
	}
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadShape,
		Hint:    fmt.Sprintf("ask for at least %v", farm.MinMemory),
		Message: fmt.Sprintf("%s of memory is less than any VM starts with", said)}
}

func pageList(text string) ([]farm.Bytes, error) {
	var sizes []farm.Bytes
	for word := range strings.SplitSeq(text, ",") {
		if word == "" {
			continue
		}
		if word == "any" {
			sizes = append(sizes, 0)
			continue
		}
		size, err := farm.ParseBytes(word)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func (f fitFlags) fromProperties(memory farm.Bytes) (numa.Request, error) {
	vm := flavor.VM{VCPUs: f.cpus, Memory: memory, Flavor: map[string]string{}, Image: map[string]string{}}
	for _, p := range f.properties {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return numa.Request{}, usage("write for example hw:cpu_policy=dedicated",
				"--property %q is not name=value", p)
		}
		to := vm.Flavor
		if strings.HasPrefix(name, "hw_") || name == "traits_required" {
			to = vm.Image
		}
		to[name] = value
	}
	return vm.Request()
}
