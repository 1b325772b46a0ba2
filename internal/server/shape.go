package server

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/apply"
	"github.com/grange-project/grange/internal/server/images"
	"github.com/grange-project/grange/internal/wire"
)

// allowImage refuses images that the project may not have.
func allowImage(p farm.Project, image string) error {
	match := func(pattern string) bool { ok, err := path.Match(pattern, image); return ok && err == nil }
	if len(p.Images) == 0 || slices.ContainsFunc(p.Images, match) {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: CodeImage,
		Message: fmt.Sprintf("project %s may not have image %.80q; there are %s", p.Name, image,
			strings.Join(p.Images, ", ")), Hint: "name another image, or ask an administrator"}
}

// resolve enters what the VM's image is in the catalogue, and what the image says of the VM's shape; asked is set where
// somebody chose the guest's topology. An image that is not there is one of the hosts' own.
func resolve(c *call, vm *farm.VM, asked bool) error {
	image, err := images.Resolve(c.Tx, vm.Image, vm.Project)
	if err != nil {
		return err
	}
	vm.Digest = image.Digest
	shape, err := images.Shape(image, vm.Shape, asked)
	if err != nil || reflect.DeepEqual(shape, vm.Shape) {
		return err
	}
	site, err := apply.Maxima(c.Tx)
	if err != nil {
		return err
	}
	vm.Shape = shape
	return errors.Join(shape.Validate(), site.Check(shape))
}

// shape is what the VMs of a request get: the shape it names, with what the request says instead, within what project
// and site allow.
func (c creation) shape(p farm.Project, cells []farm.Cell) (farm.Shape, error) {
	r := c.asked
	named, err := c.named(p, r.Shape)
	if err != nil {
		return named, err
	}
	s := named
	if r.CPUs != 0 {
		s.CPUs = r.CPUs
	}
	if r.Memory != 0 {
		s.Memory = r.Memory
	}
	if r.Scratch != nil {
		s.Scratch = *r.Scratch
	}
	s = wire.WithDisks(s, r.Disks)
	if r.CPUModel != "" {
		s.CPUModel = r.CPUModel
	}
	s.Display = s.Display || r.Display
	if s, err = s.WithGuest(r.Guest); err != nil {
		return s, err
	}
	s.Purpose = purpose(s.Purpose, p, cells)
	return s, c.fits(p, named, s)
}

// named is a shape by its name. Without one, the request says all.
func (c *call) named(p farm.Project, name string) (farm.Shape, error) {
	if name == "" {
		if len(p.Shapes) > 0 {
			return farm.Shape{}, notShape(p, "a shape without a name")
		}
		return farm.Shape{Network: farm.NetworkNone}, nil
	}
	s, err := c.Shape(name)
	if action.Missing(err) {
		return s, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoShape,
			Message: fmt.Sprintf("no shape %.80q", name), Hint: "name another, or say --cpus and --memory"}
	}
	if err == nil && len(p.Shapes) > 0 && !slices.Contains(p.Shapes, name) {
		err = notShape(p, "shape "+name)
	}
	return s, err
}

func notShape(p farm.Project, what string) error {
	return &farm.Error{Kind: farm.Denied, Code: CodeShape,
		Message: fmt.Sprintf("project %s may not have %s; there are %s", p.Name, what, strings.Join(p.Shapes, ", ")),
		Hint:    "name one of them"}
}

// fits holds a shape against what any VM can have, what the site lets VMs have, and what the shape's name stands for
// where a project is bound to names.
func (c *call) fits(p farm.Project, named, s farm.Shape) error {
	if s.CPUs == 0 || s.Memory == 0 {
		return badVM("neither a shape, nor both CPUs and memory are said")
	}
	if err := s.Validate(); err != nil {
		return err
	}
	if _, err := s.WithGuest(s.Guest); err != nil { // the shape's own, with other CPUs
		return err
	}
	if len(p.Shapes) > 0 && (s.CPUs > named.CPUs || s.Memory > named.Memory || s.DiskSpace() > named.DiskSpace()) {
		return notShape(p, "more than shape "+named.Name+" has")
	}
	site, err := apply.Maxima(c.Tx)
	if err != nil {
		return err
	}
	return site.Check(s)
}

// purpose is what the VM is tuned for: what the shape or the project says, or that of services where it can only go to
// cells of services.
func purpose(own farm.Purpose, p farm.Project, cells []farm.Cell) farm.Purpose {
	services := len(cells) > 0 && !slices.ContainsFunc(cells, func(c farm.Cell) bool { return !c.Services })
	switch {
	case own != farm.PurposeCompute:
		return own
	case p.Purpose != farm.PurposeCompute:
		return p.Purpose
	case services:
		return farm.PurposeService
	}
	return farm.PurposeCompute
}
