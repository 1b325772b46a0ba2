package usage

import (
	"github.com/grange-project/grange/internal/farm"
)

// ScoreOf is the site's score of a core of such hardware, tuned so, in a VM of such a size. One for the very size goes
// before one for all sizes, and of those one for the very state of tuning before one for all. ok is false where the
// site has given none: nothing is guessed.
func ScoreOf(scores []farm.Score, hardware string, cores int, tuning string) (score farm.Score, ok bool) {
	best := -1
	for _, s := range scores {
		if s.Hardware != hardware || s.CPUs != 0 && s.CPUs != cores || s.Tuning != "" && s.Tuning != tuning {
			continue
		}
		fits := 0
		if s.CPUs != 0 {
			fits += 2
		}
		if s.Tuning != "" {
			fits++
		}
		if fits > best {
			score, best = s, fits
		}
	}
	return score, best >= 0
}
