package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
)

func TestJobTellsOnceWhatItWaitsFor(t *testing.T) {
	j := newJob(&Agent{}, "some", Caller{})
	for range 3 {
		j.phase("image", time.Now())
		j.publishWaiting("no hypervisor")
		j.delivered = len(j.events)
	}
	j.publishWaiting("3 before it")
	j.publishWaiting("2 before it") // nobody has heard of the 3
	j.delivered = len(j.events)
	j.publish(api.JobEvent{Event: api.EventRetry})
	j.publishWaiting("2 before it")
	var got []string
	for _, e := range j.events {
		if e.Event == api.EventWaiting {
			got = append(got, e.Message)
		}
	}
	if want := []string{"no hypervisor", "2 before it", "2 before it"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}
