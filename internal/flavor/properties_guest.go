package flavor

import (
	"strconv"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// guest is the topology that lscpu shows in the guest; zero when nothing is said, which lets the planner follow the
// pins.
//
// The flavor's hw:cpu_max_* bound what an image may ask for, maximum or not. What the image prefers wins over what the
// flavor prefers. Of the shapes that are left, the one that meets most of what is preferred is taken; of several, the
// one with fewest threads, for the host may have no more, and then fewest sockets, for licences and schedulers of
// guests count sockets. Each core lies in one of the cells, and sockets and cells lie within each other: where what is
// preferred contradicts the cells, it is refused.
func (v VM) guest(cells []numa.CellRequest) (farm.GuestTopology, error) {
	flavorMax, imageMax, err := v.shapes("cpu_max_")
	if err != nil {
		return farm.GuestTopology{}, err
	}
	flavor, image, err := v.shapes("cpu_")
	if err != nil {
		return farm.GuestTopology{}, err
	}
	if exceeds(imageMax, flavorMax) {
		return farm.GuestTopology{}, conflict("the image's hw_cpu_max_* allow more than the flavor's hw:cpu_max_*")
	}
	limit := or(imageMax, flavorMax)
	if exceeds(image, limit) {
		return farm.GuestTopology{},
			conflict("the image asks for %d sockets × %d cores × %d threads, more than hw:cpu_max_* allow", image[0],
				image[1], image[2])
	}
	want := image
	if want == (shape{}) && !exceeds(flavor, limit) {
		want = flavor // one that a smaller maximum of the image excludes is forgotten
	}
	if want == (shape{}) && limit == (shape{}) {
		return farm.GuestTopology{}, nil
	}
	all := v.best(want, limit)
	if len(all) == 0 {
		return farm.GuestTopology{},
			badProperty("allow a larger maximum, or another number of vCPUs",
				"no sockets × cores × threads within hw:cpu_max_* make %d vCPUs", v.VCPUs)
	}
	return nested(all, cells)
}

// nested is the first of some topologies that nests with the cells.
func nested(all []farm.GuestTopology, cells []numa.CellRequest) (farm.GuestTopology, error) {
	var sets []farm.CPUSet
	for _, c := range cells {
		sets = append(sets, c.VCPUs)
	}
	for _, g := range all {
		if numa.Cut(g, sets) == "" {
			return g, nil
		}
	}
	g := all[0]
	return farm.GuestTopology{}, badProperty(
		"give each cell the vCPUs of whole cores and sockets, in a row, or leave hw:cpu_sockets, hw:cpu_cores and "+
			"hw:cpu_threads out", "%d sockets × %d cores × %d threads do not nest with the NUMA cells: %s", g.Sockets,
		g.Cores, g.Threads, numa.Cut(g, sets))
}

// shape is sockets, cores and threads; 0 where nothing is said.
type shape [3]int

var shapeNames = [3]string{"sockets", "cores", "threads"}

func (v VM) shapes(prefix string) (flavor, image shape, err error) {
	for i, name := range shapeNames {
		f, im := v.both(prefix + name)
		for _, side := range []struct {
			text string
			to   *int
		}{{f, &flavor[i]}, {im, &image[i]}} {
			if side.text == "" {
				continue
			}
			n, err := strconv.Atoi(side.text)
			if err != nil || n < 0 || n > 1<<16 {
				return flavor, image, badProperty("write a number", "%q is not a number of %s", side.text, name)
			}
			*side.to = n
		}
	}
	return flavor, image, nil
}

// exceeds reports whether s is larger than a limit that is said.
func exceeds(s, limit shape) bool {
	for i := range s {
		if limit[i] > 0 && s[i] > limit[i] {
			return true
		}
	}
	return false
}

func or(a, b shape) shape {
	for i := range a {
		if a[i] == 0 {
			a[i] = b[i]
		}
	}
	return a
}

// best returns the topologies within limit that meet most of what is wanted: those with fewest threads first, and then
// those with fewest sockets.
func (v VM) best(want, limit shape) (best []farm.GuestTopology) {
	score := -1
	for threads := 1; threads <= v.VCPUs; threads++ {
		for sockets := 1; threads*sockets <= v.VCPUs; sockets++ {
			s := shape{sockets, v.VCPUs / sockets / threads, threads}
			if s[0]*s[1]*s[2] != v.VCPUs || exceeds(s, limit) {
				continue
			}
			met := 0
			for i := range s {
				if s[i] == want[i] {
					met++
				}
			}
			if met > score {
				best, score = nil, met
			}
			if met == score {
				best = append(best, farm.GuestTopology{Sockets: s[0], Cores: s[1], Threads: s[2]})
			}
		}
	}
	return best
}
