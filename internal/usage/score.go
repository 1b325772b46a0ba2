package usage

import (
	"github.com/grange-project/grange/internal/farm"
)

// ScoreOf is the site's score of a core of such hardware in a VM of such a size: one for the very size goes before one
// for all. ok is false where the site has given none: nothing is guessed.
func ScoreOf(scores []farm.Score, hardware string, cores int) (score farm.Score, ok bool) {
	for _, s := range scores {
		if s.Hardware != hardware || s.CPUs != 0 && s.CPUs != cores {
			continue
		}
		if !ok || s.CPUs != 0 {
			score, ok = s, true
		}
	}
	return score, ok
}
