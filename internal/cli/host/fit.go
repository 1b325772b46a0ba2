package host

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
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

// fitCommands are the commands that plan VMs on a host.
type fitCommands struct{ *app.App }

func (a fitCommands) hostFitCommand() *cobra.Command {
	var f fitFlags
	cmd := &cobra.Command{
		Use:   "fit",
		Short: "Plan where VMs would run on a host, and explain what does not fit",
		Long: `Plan virtual machines on a host as if the host were empty, and print the host CPU of each
vCPU, and the memory node and page size of each guest NUMA cell. Nothing is started or
changed. The host is this one, or the recorded host given with --from.

If a VM does not fit, the command prints why, and the largest VM of the same kind that would
fit, with as much memory for each vCPU. Exit status 1: the VMs do not fit. 2: a flag or a
property is invalid; a VM needs at least 64M of memory.

--beside places other VMs of the same kind first. A VM whose value ends in "-" is removed
again after all of them are placed, which leaves a hole. With --repack, VMs are moved within
the host if that makes room, and the moves are printed.

A VM is described by flags, or by OpenStack properties, with --property once for each: hw:
properties are those of the flavor, hw_ properties those of the image. A VM described by
properties shares CPUs unless hw:cpu_policy says otherwise; --shared sets the CPUs for such
VMs.

With --cases, the command answers recorded placement cases instead: a JSON document with
"cases", or a list of cases; "-" reads standard input. With --json, each answer is one line
of JSON with id, fits, cells (host_cell, pagesize_kb, pin, reserved_cpus) and reason. An
invalid case is answered with "error"; the other cases are still answered, and the exit
status is 1.`,
		Example: `  grange host fit --cpus 16 --memory 32G --page-size 1G,2M,any
  grange host fit --cpus 8 --memory 16G --threads isolate --emulator isolate --count 4
  grange host fit --cpus 32 --memory 64G --numa 2 --from host.tar
  grange host fit --cpus 8 --memory 16G --property hw:cpu_policy=dedicated --property hw:mem_page_size=large
  grange host fit --cpus 16 --memory 32G --numa none --beside 8x16G- --beside 8x16G --beside 8x16G- --beside 8x16G --repack
  grange host fit --cases cases.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.cases != "" {
				if cmd.Flags().NFlag() > number(a.JSON)+number(cmd.Flags().Changed("socket"))+1 {
					return app.Usage("name the cases alone", "cases say their own hosts and VMs")
				}
				return a.fitCases(f.cases)
			}
			if len(f.properties) > 0 {
				for _, name := range worded {
					if cmd.Flags().Changed(name) {
						return app.Usage("say it with a property", "--%s and --property do not go together", name)
					}
				}
			}
			err := a.fitVMs(cmd.Context(), f)
			if slices.Contains(senseless, farm.Code(app.CodeOf(err))) {
				app.PrintError(a.Err, err)
				return app.ExitError{Status: app.ExitUsage}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&f.cases, "cases", "", "answer the placement cases in this `file`")
	app.FromFlag(cmd, &f.from)
	cmd.Flags().StringVar(&f.reserve, "reserve", "", "`CPUs` that are reserved for the host")
	cmd.Flags().StringVar(&f.shared, "shared", "", "`CPUs` that VMs share")
	cmd.Flags().Float64Var(&f.overcommit, "overcommit", 1, "number of vCPUs per CPU of --shared")
	cmd.Flags().IntVar(&f.cpus, "cpus", 0, "number of vCPUs")
	cmd.Flags().StringVar(&f.memory, "memory", "", "`SIZE` of the VM's memory, for example 32G")
	cmd.Flags().StringVar(&f.pages, "page-size", "",
		"acceptable page `sizes` in order of preference, for example 1G,2M; \"any\" at the end permits ordinary pages")
	app.RenamedFlag(cmd.Flags(), "pages", "page-size")
	cmd.Flags().StringVar(&f.threads, "threads", "prefer", "use of SMT siblings: prefer, require or isolate")
	cmd.Flags().StringVar(&f.nodes, "numa", "auto", "guest NUMA nodes: auto, none or a number")
	cmd.Flags().StringVar(&f.emulator, "emulator", "beside",
		"CPUs of QEMU's own threads: beside (those of the vCPUs) or isolate")
	cmd.Flags().StringArrayVar(&f.properties, "property", nil,
		"`property` of an OpenStack flavor or image, name=value (repeatable)")
	cmd.Flags().StringArrayVar(&f.beside, "beside", nil,
		"VM that is placed first, as `CPUSxMEMORY`; with - at the end it is removed again (repeatable)")
	cmd.Flags().BoolVar(&f.repack, "repack", false, "move VMs within the host if that makes room")
	cmd.Flags().IntVar(&f.count, "count", 1, "number of such VMs to place")
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

func (a fitCommands) fitVMs(ctx context.Context, f fitFlags) error {
	req, err := f.request()
	if err != nil {
		return err
	}
	if f.count < 1 || f.count > maxFits {
		return app.Usage(fmt.Sprintf("take 1 to %d", maxFits), "--count is %d", f.count)
	}
	if f.shared == "" && floats(req) {
		return app.Usage("name CPUs with --shared, or say --property hw:cpu_policy=dedicated",
			"the VM shares CPUs, and the host has none for that")
	}
	tree, err := app.HostTree(ctx, f.from)
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
	h := fitHost{Trial: numa.Trial{Room: room}}
	for _, text := range f.beside {
		if err := h.putBeside(text, req); err != nil {
			return err
		}
	}
	h.Remove(h.leaving)
	report := fitReport{Host: tree.Name}
	for i := range f.count {
		vm, err := h.place(fmt.Sprintf("VM %d", i+1), req, f.repack)
		if err != nil {
			return err
		}
		report.VMs = append(report.VMs, vm)
		if !vm.Fits {
			if small, ok := numa.Smaller(h.Room, req); ok {
				report.Instead = &fitSize{CPUs: small.VCPUs, Memory: small.Memory.String()}
			}
			break
		}
	}
	report.Free = h.Room.Free.String()
	if err := a.printFit(report, h.Room); err != nil {
		return err
	}
	if !report.VMs[len(report.VMs)-1].Fits {
		return app.ExitError{Status: app.ExitFailed}
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
		return numa.Room{}, app.Usage("the host's CPUs are "+host.Online.String(), "the host has no CPUs %v", unknown)
	}
	if !(f.overcommit > 0 && f.overcommit <= 1000) {
		return numa.Room{}, app.Usage("take for example 2", "an overcommit of %v makes no sense", f.overcommit)
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
		return numa.Request{}, app.Usage("for example: grange host fit --cpus 16 --memory 32G",
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
	if req.Threads, err = app.ThreadPolicy("--threads", f.threads); err != nil {
		return req, err
	}
	switch f.emulator {
	case "beside":
	case "isolate":
		req.Emulator = farm.EmulatorIsolate
	default:
		return req, app.Usage("write beside or isolate", "--emulator %q is not known", f.emulator)
	}
	if req.Cells, err = app.GuestNodes("--numa", f.nodes); err != nil {
		return req, err
	}
	if req.Cells > f.cpus {
		return req, app.Usage("ask for no more cells than vCPUs", "%s cannot be in %d cells",
			farm.Count(f.cpus, "vCPU"), req.Cells)
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
			return numa.Request{}, app.Usage("write for example hw:cpu_policy=dedicated",
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
