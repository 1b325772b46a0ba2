package setup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/htcondor"
	"github.com/grange-project/grange/internal/classad"
)

// Host is what a host says of itself in its ad.
type Host struct {
	Images  []string
	Free    int // CPUs that no VM holds
	Metal   htcondor.Metal
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

// Statuses that a prepare hook prints for its starter: from 300 the job goes back into the queue, below it is held with
// that subcode. Seen with 23.9.
const (
	hookRequeue = 300
	hookHold    = batch.ExitNever
)

// NotReady is the output of a prepare hook whose host can not run the job.
func NotReady(job classad.Ad, why string, requeues int, final bool) string {
	status := hookRequeue
	if starts, _ := job.Int("NumShadowStarts"); final || starts > int64(requeues) {
		status = hookHold
	}
	why = strings.Join(strings.Fields(why), " ") // it goes into the job's log
	return fmt.Sprintf("HookStatusCode = %d\nHookStatusMessage = %s\n", status, classad.Quote("grange: "+why))
}
