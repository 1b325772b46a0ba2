package flavor

import (
	"strconv"

	"github.com/grange-project/grange/internal/farm"
)

// guest is the topology that lscpu shows in the guest; zero when nothing is said, which lets the planner follow the
// pins.
//
// The flavor's hw:cpu_max_* bound what an image may ask for, maximum or not. What the image prefers wins over what the
// flavor prefers. Of the shapes that are left, the one that meets most of what is preferred is taken; of several, the
// one with fewest sockets, and then fewest threads, for licences and schedulers of guests count sockets.
func (v VM) guest() (farm.GuestTopology, error) {
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
	best, found := v.best(want, limit)
	if !found {
		return farm.GuestTopology{},
			badProperty("allow a larger maximum, or another number of vCPUs",
				"no sockets × cores × threads within hw:cpu_max_* make %d vCPUs", v.VCPUs)
	}
	return farm.GuestTopology{Sockets: best[0], Cores: best[1], Threads: best[2]}, nil
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

func (v VM) best(want, limit shape) (best shape, found bool) {
	score := -1
	for sockets := 1; sockets <= v.VCPUs; sockets++ {
		for threads := 1; threads*sockets <= v.VCPUs; threads++ {
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
				best, score = s, met
			}
		}
	}
	return best, score >= 0
}
