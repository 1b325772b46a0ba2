package setup

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Load is what elim tells of a host.
type Load struct {
	Slots  int      // VMs of one CPU that would start now
	Images []string // names
}

// Report is one line of the elim protocol: the number of indices, then name and value of each. Values have no blanks;
// an image list is one word, for LSF's string resources compare whole values: -R "select[grange_sl9]" is what jobs ask
// for.
func (l Load) Report() string {
	images := slices.Sorted(slices.Values(l.Images))
	words := []string{"grange_slots", fmt.Sprint(max(l.Slots, 0))}
	for _, image := range images {
		if name := resourceName(image); name != "" {
			words = append(words, name, "1")
		}
	}
	return fmt.Sprintf("%d %s\n", len(words)/2, strings.Join(words, " "))
}

// resourceName is an image's name as lsf.shared can have it: letters, digits and underscores, 39 at most.
func resourceName(image string) string {
	const longest = 39
	name := "grange_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, image)
	if len(name) > longest {
		return ""
	}
	return name
}

// Elim reports every so often until ctx ends or nobody reads. A look that fails is no free slot: a host whose agent is
// away takes no jobs.
func Elim(ctx context.Context, w io.Writer, every time.Duration, look func(context.Context) (Load, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		load, err := look(ctx)
		if err != nil {
			load = Load{}
		}
		if _, err := io.WriteString(w, load.Report()); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
