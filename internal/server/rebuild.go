package server

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/apply"
	"github.com/grange-project/grange/internal/server/images"
)

// remade enters what the image of a VM is in the catalogue by now. Its size stays, and must do for the image. The VM
// gets the processor's model and the display that another image asks for. Cells, threads and pages of another image
// take another plan: a VM that gets a new place has that, and one that stays on its host is refused.
func remade(c *call, vm *farm.VM, placedAnew bool) error {
	old, err := images.Entry(c.Tx, vm.Digest)
	if err != nil {
		return err
	}
	image, err := images.Resolve(c.Tx, vm.Image, vm.Project)
	if err != nil {
		return err
	}
	vm.Digest = image.Digest
	shape, err := images.Reshape(old, image, vm.Shape)
	if err != nil || reflect.DeepEqual(shape, vm.Shape) {
		return err
	}
	if what := replanned(vm.Shape, shape); what != "" && !placedAnew {
		return &farm.Error{Kind: farm.Conflict, Code: CodeImageShape,
			Message: fmt.Sprintf("image %s asks for another plan than VM %s has on its host: %s", vm.Image,
				action.Label(*vm), what),
			Hint: "create another VM from this image, and delete this one; or name an image that asks for the same"}
	}
	site, err := apply.Maxima(c.Tx)
	if err != nil {
		return err
	}
	vm.Shape = shape
	return errors.Join(shape.Validate(), site.Check(shape))
}

// replanned tells what of two shapes takes another plan; "": nothing.
func replanned(has, wants farm.Shape) string {
	var all []string
	differ := func(what string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			all = append(all, fmt.Sprintf("%s %v, not %v", what, b, a))
		}
	}
	differ("cells", has.Cells, wants.Cells)
	differ("thread policy", has.Threads, wants.Threads)
	differ("topology", has.Guest, wants.Guest)
	differ("page sizes", has.Pages, wants.Pages)
	return strings.Join(all, ", ")
}
