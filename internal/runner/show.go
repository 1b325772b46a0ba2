package runner

import (
	"fmt"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
)

// printer is where people read what the agent tells.
type printer struct {
	opts     *Options
	notes    *notes
	emulated sync.Once // it was said that the VM is emulated
}

// show hands an event on, or notes it where someone wants to read it: waiting and trouble always, phases with -v.
func (w *printer) show(e api.JobEvent) {
	if w.opts.Events != nil {
		w.opts.Events(e)
		return
	}
	if e.VM != nil && e.VM.Applied.Emulated != "" {
		w.emulated.Do(func() {
			if !w.opts.Quiet && firstOfDay(emulatedNote(), time.Now()) {
				w.notes.say("the VM is emulated, many times slower than under KVM (told once a day): %s",
					e.VM.Applied.Emulated)
			}
		})
	}
	switch {
	case e.Event == api.EventWaiting, e.Event == api.EventRetry:
		w.notes.say("%s: %s", e.Event, e.Message)
	case e.Code == api.CodePoolWarning, e.Code == api.CodePoolEnds, e.Code == codePublished:
		w.printf("%s", e.Message)
	case e.Event == api.EventWarning && e.Code == api.CodeGuestDiffers:
		w.notes.say("note: %s", e.Message)
	case !w.opts.Verbose:
	case e.Phase != nil:
		w.phase(*e.Phase)
	case e.VM != nil:
		w.printf("vm %s on CPUs %v", e.VM.Name, e.VM.Plan.VCPUs)
		for _, s := range e.VM.Services {
			w.printf("service %s", s)
		}
	case e.Event == api.EventPolicy:
		w.printf("policy: %s", e.Message)
	case e.Event == api.EventWarning:
		w.printf("note: %s", e.Message)
	}
}

func (w *printer) phase(p api.Phase) {
	w.printf("%-8s %9.1f ms", p.Name, p.Milliseconds)
}

// printf writes a line for people.
func (w *printer) printf(format string, args ...any) {
	fmt.Fprintf(w.opts.Notes, "grange: "+format+"\n", args...)
}
