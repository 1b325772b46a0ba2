package fake

import (
	"errors"
	"testing"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/farm"
)

func TestContract(t *testing.T) {
	s := New(farm.Slurm, 4, 8, "n1", "n2")
	job := func(j batchtest.Job) Job {
		return Job{Name: "job", User: "eva", Account: "atlas", Image: j.Image, Shape: j.Shape, CPUs: j.CPUs,
			Memory: j.Memory, Limit: j.Limit}
	}
	batchtest.Run(t, batchtest.Lab{
		Open:    func(*testing.T) batch.System { return s },
		Hosts:   [2]string{"n1", "n2"},
		Account: "atlas", Queue: "main",
		Pend: func(t *testing.T, j batchtest.Job) string {
			wanted := job(j)
			wanted.Host = "nowhere"
			return s.Submit(wanted)
		},
		Run: func(t *testing.T, host string, j batchtest.Job) string {
			wanted := job(j)
			wanted.Host = host
			id := s.Submit(wanted)
			if s.Runs(id) != host {
				t.Fatal("it does not run")
			}
			return id
		},
		Finish: func(_ *testing.T, id string, status int) {
			o := batch.OutcomeDone
			if status != 0 {
				o = batch.OutcomeFailed
			}
			s.End(id, o, status)
		},
		Cancel:     func(_ *testing.T, id string) { s.End(id, batch.OutcomeCancelled, 0) },
		AdminClose: func(_ *testing.T, host, reason string) { s.AdminClose(host, reason) },
		AdminOpen:  func(_ *testing.T, host string) { s.AdminOpen(host) },
	})
}

func TestFail(t *testing.T) {
	s := New(farm.PBS, 1, 1, "n1")
	s.Fail(errors.New("no route to host"))
	_, err := s.Nodes(t.Context())
	if e := new(farm.Error); !errors.As(err, &e) || e.Code != farm.CodeBatchAway {
		t.Error(err)
	}
}
