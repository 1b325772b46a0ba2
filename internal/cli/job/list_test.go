package job

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
)

// TestWriteJob: a job for people, with its start as a waterfall.
func TestWriteJob(t *testing.T) {
	j := fleet.Job{ID: "1", Kind: "job", State: "ended", Batch: "slurm/17", User: "ann", Host: "wn-1", Cores: 1,
		Memory: 4 << 30, Phases: []api.StartPhase{{Name: "grant", Milliseconds: 500}, {Name: "boot", At: 500,
			Milliseconds: 1500}, {Name: "guest", At: 2000, Milliseconds: 0.4}}, Record: &api.Usage{Ended: "exit:3", Wall: 60,
			CPU: new(30.0)}}
	const want = `job       1
state     ended
note      exit:3
job       slurm/17
user      ann
host      wn-1
size      1 CPU, 4G
asked     -
ended     -
used      30 s of CPU in 60 s

start
  grant         500ms  #########
  boot           1.5s           ##############################
  guest         400µs                                         #
`
	var out strings.Builder
	if err := writeJob(&out, j); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestNote(t *testing.T) {
	for want, j := range map[string]fleet.Job{"exit:0": {Record: &api.Usage{Ended: "exit:0"}},
		"its host is silent": {Silent: true, Why: "2 before it"}, "2 before it": {Why: "2 before it"}, "": {}} {
		if got := note(j); got != want {
			t.Errorf("%+v: %q, want %q", j, got, want)
		}
	}
	if n := nameOf(fleet.Job{Name: "vm3", Batch: "slurm/2"}); n != "worker vm3" {
		t.Error(n)
	}
}
