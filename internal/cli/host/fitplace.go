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
	numa.Trial
	leaving []string // names of those that are to leave
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
	name := fmt.Sprintf("beside %d", len(h.Running)+1)
	vm, err := h.place(name, req, false)
	if err != nil {
		return err
	}
	if !vm.Fits {
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: fmt.Sprintf("--beside %s does not fit: %s", text, vm.Reason), Hint: vm.Hint}
	}
	if leaves {
		h.leaving = append(h.leaving, name)
	}
	return nil
}

// place plans a VM and puts it there; the error is for a request that makes no sense.
func (h *fitHost) place(name string, req numa.Request, repack bool) (fitVM, error) {
	plan, moves, err := h.Place(name, req, repack)
	if own := new(farm.Error); err != nil && (!errors.As(err, &own) || own.Code == farm.CodeBadShape) {
		return fitVM{}, err
	}
	vm := fitOf(plan, err)
	vm.Moves = movesOf(moves)
	return vm, nil
}
