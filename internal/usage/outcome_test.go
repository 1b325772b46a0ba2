package usage

import (
	"testing"

	"github.com/grange-project/grange/api"
)

func TestOutcomeOf(t *testing.T) {
	for ended, want := range map[string]Outcome{"exit:0": Done, "exit:1": Failed, "signal:9": Failed, "left": Done,
		"stopped": Done, "unseen": Lost, "host-booted": Lost, "": Lost, "cancelled": Cancelled, "timeout": Failed,
		"out of memory": Failed, "node failed": Lost, "no-room": Failed} {
		if got := OutcomeOf(api.Usage{Ended: ended}); got != want {
			t.Errorf("%q is %s, want %s", ended, got, want)
		}
	}
}
