package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// fitHost is a host on which VMs are placed in thought.
type fitHost struct {
	room    numa.Room
	running []numa.Running
	leaving []int // of running
}

// putBeside places a VM like req of another size: "8x16G", or "8x16G-" for one that is to leave.
func (h *fitHost) putBeside(text string, req numa.Request) error {
	size, leaves := strings.CutSuffix(text, "-")
	cpus, memory, ok := strings.Cut(size, "x")
	n, err := strconv.Atoi(cpus)
	if !ok || err != nil {
		return app.Usage("write for example 8x16G", "--beside %q is not CPUSxMEMORY", text)
	}
	if len(req.Each) > 0 {
		return app.Usage("describe the VM with flags", "--beside and --property do not go together")
	}
	if req.Memory, err = farm.ParseBytes(memory); err != nil {
		return err
	}
	if err := enough(req.Memory); err != nil {
		return err
	}
	req.VCPUs, req.Guest = n, farm.GuestTopology{}
	vm, err := h.place(fmt.Sprintf("beside %d", len(h.running)+1), req, false)
	if err != nil {
		return err
	}
	if !vm.Fits {
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: fmt.Sprintf("--beside %s does not fit: %s", text, vm.Reason), Hint: vm.Hint}
	}
	if leaves {
		h.leaving = append(h.leaving, len(h.running)-1)
	}
	return nil
}

// leave takes away the VMs that were to leave.
func (h *fitHost) leave() {
	var stay []numa.Running
	for i, vm := range h.running {
		if len(h.leaving) > 0 && h.leaving[0] == i {
			h.leaving = h.leaving[1:]
			h.room = h.room.Give(vm.Plan)
			continue
		}
		stay = append(stay, vm)
	}
	h.running = stay
}

// place plans a VM and puts it there; the error is for a request that makes no sense.
func (h *fitHost) place(name string, req numa.Request, repack bool) (fitVM, error) {
	plan, err := numa.Plan(h.room, req)
	var moves []numa.Move
	if repack && app.CodeOf(err) == string(farm.CodeNoRoom) {
		if moves, err = numa.Repack(h.room, h.running, req); err == nil {
			if err = h.move(moves); err == nil {
				plan, err = numa.Plan(h.room, req)
			}
		}
	}
	next := h.room
	if err == nil {
		next, err = h.room.Take(plan)
	}
	if own := new(farm.Error); err != nil && (!errors.As(err, &own) || own.Code == farm.CodeBadShape) {
		return fitVM{}, err
	}
	vm := fitOf(plan, err)
	if err == nil {
		h.room = next
		h.running = append(h.running, numa.Running{Name: name, Plan: plan, Request: req})
		vm.Moves = movesOf(moves)
	}
	return vm, nil
}

// move makes the moves, one after the other.
func (h *fitHost) move(moves []numa.Move) error {
	for _, m := range moves {
		room, err := h.room.Give(m.From).Take(m.To)
		if err != nil {
			return fmt.Errorf("move %s: %w", m.Name, err)
		}
		h.room = room
		for i := range h.running {
			if h.running[i].Name == m.Name {
				h.running[i].Plan = m.To
			}
		}
	}
	return nil
}

// smaller is the largest VM of the same kind that fits, found by halving; nil when none does. Cells that were said one
// by one are not halved.
func smaller(room numa.Room, req numa.Request) *fitSize {
	if len(req.Each) > 1 {
		return nil
	}
	page := 2 * farm.MiB
	for _, size := range req.Pages {
		page = max(page, size)
	}
	vcpus := farm.Bytes(req.VCPUs)
	for n := req.VCPUs / 2; n >= 1; n /= 2 {
		memory := (req.Memory/vcpus*farm.Bytes(n) + req.Memory%vcpus*farm.Bytes(n)/vcpus) / page * page
		if memory < farm.MinMemory {
			return nil
		}
		small := req
		small.VCPUs, small.Memory, small.Guest = n, memory, farm.GuestTopology{}
		if len(req.Each) == 1 {
			cell := req.Each[0]
			cell.VCPUs, cell.Memory = cell.VCPUs.And(firstCPUs(n)), memory
			cell.Floating = cell.Floating.And(cell.VCPUs)
			small.Each = []numa.CellRequest{cell}
		}
		if _, err := numa.Plan(room, small); err == nil {
			return &fitSize{CPUs: n, Memory: memory.String()}
		}
	}
	return nil
}

func firstCPUs(n int) farm.CPUSet {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return farm.NewCPUSet(ids...)
}
