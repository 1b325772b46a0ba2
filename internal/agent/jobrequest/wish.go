package jobrequest

import (
	"path/filepath"
	"strconv"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/wire"
)

// Wish is what a request asks of the site's policy.
func Wish(r *api.JobRequest) policy.Wish {
	w := policy.Wish{Image: r.Image, Shape: r.Shape, Network: r.Network, CPUs: r.CPUs, Memory: farm.Bytes(r.Memory)}
	if r.Scratch != nil {
		w.Scratch = farm.Bytes(*r.Scratch)
	}
	for _, b := range r.Binds {
		w.Mounts = append(w.Mounts, b.Target)
		w.Gateways = append(w.Gateways, farm.Gateway(b.Gateway))
	}
	return w
}

// Shape is s with what the request says of it in its place. It is not valid for that.
func Shape(s farm.Shape, r *api.JobRequest) (farm.Shape, error) {
	if r.CPUs != 0 {
		s.CPUs = r.CPUs
	}
	if r.Memory != 0 {
		s.Memory = farm.Bytes(r.Memory)
	}
	if r.Scratch != nil {
		s.Scratch = farm.Bytes(*r.Scratch)
	}
	if r.BandwidthIn != 0 {
		s.Bandwidth.In = farm.Rate(r.BandwidthIn)
	}
	if r.BandwidthOut != 0 {
		s.Bandwidth.Out = farm.Rate(r.BandwidthOut)
	}
	pages := r.Pages
	if pages == "" && r.PageSize != nil {
		pages = strconv.FormatUint(*r.PageSize, 10)
	}
	return wire.WithDisks(s, r.Disks).With(farm.Tuning{Purpose: r.Purpose, CPUModel: r.CPUModel,
		ThreadPolicy: r.ThreadPolicy, Emulator: r.Emulator, NUMA: r.NUMA, Pages: pages, Cache: r.Cache})
}

// Brief is the first words of a command, for lists. Arguments may hold secrets: they stay out.
func Brief(argv []string) string {
	if len(argv) == 0 {
		return "the image's own"
	}
	return farm.Clean(filepath.Base(argv[0]), 40)
}
