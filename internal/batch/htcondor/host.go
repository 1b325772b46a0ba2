package htcondor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/classad"
)

// Host is what a host says of itself in its ad.
type Host struct {
	Images  []string
	Free    int // CPUs that no VM holds
	Metal   Metal
	Version string
	Problem string // why no VM can be made; "": one can
}

// Ad is the output of a job of the startd's cron: attributes, and a line that ends them.
func (h Host) Ad() string {
	slices.Sort(h.Images)
	var b strings.Builder
	fmt.Fprintf(&b, "GrangeReady = %t\n", h.Problem == "")
	fmt.Fprintf(&b, "GrangeImages = %s\n", classad.Quote(strings.Join(h.Images, ",")))
	fmt.Fprintf(&b, "GrangeFreeSlots = %d\n", h.Free)
	fmt.Fprintf(&b, "GrangeMetal = %s\n", classad.Quote(string(h.Metal)))
	fmt.Fprintf(&b, "GrangeVersion = %s\n", classad.Quote(h.Version))
	fmt.Fprintf(&b, "GrangeProblem = %s\n", classad.Quote(h.Problem))
	return b.String() + "-\n"
}
