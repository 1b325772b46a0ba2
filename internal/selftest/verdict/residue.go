package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Snapshot is what of a host jobs could leave behind.
type Snapshot struct {
	Items   map[string]map[string]bool // by kind: files, processes, rules and so on, as they are
	Amounts map[string]int             // by kind: what only its number is known of
}

// Descriptors is the kind of the agent's open files: each job that leaves one open shows in their number.
const Descriptors = "open files of the agent"

// Left is what is there after so many jobs and was not before, by kind. What names a VM of others is theirs. Amounts
// say nothing where others' VMs came or went meanwhile.
func Left(before, after Snapshot, others []string, quiet bool, jobs int) map[string][]string {
	left := map[string][]string{}
	for kind, items := range after.Items {
		for _, item := range slices.Sorted(maps.Keys(items)) {
			theirs := slices.ContainsFunc(others, func(name string) bool { return strings.Contains(item, name) })
			if !before.Items[kind][item] && !theirs {
				left[kind] = append(left[kind], item)
			}
		}
	}
	for kind, n := range after.Amounts {
		slack := 0
		if kind == Descriptors {
			slack = max(5, jobs/2) // connections of others come and go
		}
		if had := before.Amounts[kind]; quiet && n > had+slack {
			left[kind] = append(left[kind], fmt.Sprintf("%d, and %d before", n, had))
		}
	}
	return left
}
