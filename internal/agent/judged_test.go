package agent

import (
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/farm"
)

// TestRejoin has a caller come again to an agent that was restarted: its request counts only if it is what was allowed.
func TestRejoin(t *testing.T) {
	script := &api.Script{Path: "/tmp/s", Content: []byte("echo")}
	base := api.JobRequest{ID: api.NewID(), Argv: []string{"x"}, Dir: "/", Image: "el9",
		Binds: []api.Bind{{Target: "/home", ReadOnly: true}}, Script: script}
	for name, c := range map[string]struct {
		change func(*api.JobRequest)
		older  bool // the record is of a release that kept no digest
		want   farm.Code
	}{
		"the same":         {change: func(*api.JobRequest) {}},
		"was told ready":   {change: func(r *api.JobRequest) { r.Started = true }},
		"another terminal": {change: func(r *api.JobRequest) { r.Terminal = &api.Size{Rows: 2} }},
		"another bind": {change: func(r *api.JobRequest) { r.Binds = []api.Bind{{Target: "/secret"}} },
			want: CodeJobDiffers},
		"a bind for writing": {change: func(r *api.JobRequest) { r.Binds = []api.Bind{{Target: "/home"}} },
			want: CodeJobDiffers},
		"another command": {change: func(r *api.JobRequest) { r.Argv = []string{"y"} },
			want: CodeJobDiffers},
		"another script": {change: func(r *api.JobRequest) { r.Script = nil },
			want: CodeJobDiffers},
		"another environment": {change: func(r *api.JobRequest) { r.Env = []string{"A=b"} },
			want: CodeJobDiffers},
		"kept":            {change: func(r *api.JobRequest) { r.Keep = true }, want: CodeJobDiffers},
		"older: the same": {change: func(*api.JobRequest) {}, older: true},
		"older: a bind that is allowed": {change: func(r *api.JobRequest) { r.Binds[0].Target = "/home/x" },
			older: true},
		"older: a bind that is not": {change: func(r *api.JobRequest) { r.Binds = []api.Bind{{Target: "/secret"}} },
			older: true, want: farm.CodePolicy},
		"older: an image that is not": {change: func(r *api.JobRequest) { r.Image = "mine" }, older: true,
			want: farm.CodePolicy},
		"older: another batch system": {change: func(r *api.JobRequest) { r.Batch = "slurm" }, older: true,
			want: CodeWrongBatch},
	} {
		t.Run(name, func(t *testing.T) {
			a := testAgent(t, "[[policy]]\nimages = [\"el9\"]\nmounts = [\"/home\", \"/home/*\"]\n")
			c0 := Caller{UID: 7}
			j := newJob(a, base.ID, c0)
			j.record = record{Shape: farm.Shape{Memory: farm.GiB}}
			if !c.older {
				j.record.Judged = jobrequest.Digest(&base)
			}
			again := base
			again.Binds = []api.Bind{base.Binds[0]}
			c.change(&again)
			err := j.join(&again, c0)
			if c.want == "" && (err != nil || j.request == nil) || c.want != "" &&
				(!farm.IsCode(err, c.want) || j.request != nil) {
				t.Errorf("got %v, want %q; the request counts: %v", err, c.want, j.request != nil)
			}
		})
	}
}

// TestDigestIsKept has a job's record, and a task's, carry the digest of what was asked for, whatever the site made of
// it.
func TestDigestIsKept(t *testing.T) {
	f := newFarmhouse(t)
	r := api.JobRequest{ID: api.NewID(), Argv: []string{"x"}, Dir: "/"}
	first := f.mustAsk(f.caller("7"), r)
	second := f.mustAsk(f.caller("7"), api.JobRequest{Env: []string{"A=b"}})
	first.until(api.EventRunning)
	second.until(api.EventRunning)
	found, err := f.agent.hyper.List(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	kept, err := decodeRecord(found[0].Metadata)
	if err != nil || kept.Judged != jobrequest.Digest(&r) {
		t.Errorf("the machine's record has digest %q, %v; want %q", kept.Judged, err, jobrequest.Digest(&r))
	}
	tasks, err := tasksOf(first.job.vm.current())
	if err != nil || len(tasks) != 2 || tasks[0].Judged == "" || tasks[0].Judged == tasks[1].Judged {
		t.Errorf("tasks' records: %+v, %v", tasks, err)
	}
}
