package runner

import (
	"fmt"

	"github.com/grange-project/grange/api"
)

// show hands an event on, or notes it where someone wants to read it: waiting and trouble always, phases with -v.
func (j *Job) show(e api.JobEvent) {
	if j.opts.Events != nil {
		j.opts.Events(e)
		return
	}
	if e.VM != nil && e.VM.Applied.Emulated != "" {
		j.emulated.Do(func() {
			j.notes.say("the VM is emulated, many times slower than under KVM: %s", e.VM.Applied.Emulated)
		})
	}
	switch {
	case e.Event == api.EventWaiting, e.Event == api.EventRetry:
		j.notes.say("%s: %s", e.Event, e.Message)
	case e.Event == api.EventWarning && e.Code == api.CodeGuestDiffers:
		j.notes.say("note: %s", e.Message)
	case !j.opts.Verbose:
	case e.Phase != nil:
		j.showPhase(*e.Phase)
	case e.VM != nil:
		j.printf("vm %s on CPUs %v", e.VM.Name, e.VM.Plan.VCPUs)
	case e.Event == api.EventPolicy:
		j.printf("policy: %s", e.Message)
	case e.Event == api.EventWarning:
		j.printf("note: %s", e.Message)
	}
}

func (j *Job) showPhase(p api.Phase) {
	j.printf("%-8s %9.1f ms", p.Name, p.Milliseconds)
}

// printf writes a line for people.
func (j *Job) printf(format string, args ...any) {
	fmt.Fprintf(j.opts.Notes, "grange: "+format+"\n", args...)
}
