package binds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench"
)

// streamed are the types of file systems that auto leaves to the caller's own process, and why.
var streamed = map[string]string{
	autofs: "what is below autofs is mounted when it is used, which virtiofs does not see",
	"afs":  "AFS goes by the tokens of the caller's session, which virtiofsd does not have",
}

// order returns the gateways of a bind that leaves the choice to the site, the first to be tried first, and why that
// one is. They are those that the site allows, nil being all. Where two or more of them were measured for the type of
// the directory's file system, what is faster comes first, and what was not measured last; else it is the order of
// farm.Automatic. m may be of any type, or empty.
func order(allowed []farm.Gateway, fileSystem string, m filebench.Measurement) (all []farm.Gateway, why string) {
	for _, g := range farm.Automatic {
		if allowed == nil || slices.Contains(allowed, g) {
			all = append(all, g)
		}
	}
	if why := streamed[fileSystem]; why != "" && slices.Contains(all, farm.FUSE) {
		return []farm.Gateway{farm.FUSE}, why
	}
	scores := map[farm.Gateway]float64{}
	if fileSystem != "" && m.FileSystem == fileSystem {
		scores = m.Scores()
	}
	measured := slices.DeleteFunc(slices.Clone(all), func(g farm.Gateway) bool { return scores[g] == 0 })
	if len(measured) < 2 {
		return all, fmt.Sprintf("the first of %s; nothing to choose by was measured here for %s", list(all),
			cmp.Or(fileSystem, "its file system"))
	}
	slices.SortStableFunc(all, func(a, b farm.Gateway) int { return cmp.Compare(scores[b], scores[a]) })
	return all, fmt.Sprintf("the fastest that the site allows: %.1f times %s, by gateway bench of %s for %s",
		scores[all[0]]/scores[all[1]], all[1], m.Time.UTC().Format(time.DateOnly), fileSystem)
}

func list(all []farm.Gateway) string {
	var names []string
	for _, g := range all {
		names = append(names, string(g))
	}
	return strings.Join(names, ", ")
}

// measured is what this host knows of a type of file systems.
func measured(stateDir, fileSystem string) (filebench.Measurement, error) {
	k, err := filebench.ReadKept(stateDir)
	return k.FileSystems[fileSystem], err
}
