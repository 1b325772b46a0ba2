package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/store"
)

// Any server explains, from the store alone, and follows what changes.
func TestWhyOnAServerThatDoesNotLead(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	waits := l.create(ann, CreateVM{Project: "alice", Name: "a", Image: "micro", CPUs: 8, Memory: 8 * farm.GiB,
		Needs: []string{"gpu"}})[0]
	e, err := l.WhyOf(t.Context(), ann, "alice/a")
	if err != nil || e.Hosts != 1 || e.Fits != 0 || e.Sums[0].Constraint != placement.WrongLabels ||
		e.Changes[0].Text != "without the label selector gpu" {
		t.Errorf("%+v, %v", e, err)
	}
	l.update(func(tx *store.Tx) error {
		h, err := tx.Host("id-e1")
		h.Labels = map[string]string{"gpu": ""}
		return errors.Join(err, tx.SetHost(h))
	})
	if e, err = l.WhyOf(t.Context(), ann, waits.ID); err != nil || e.Fits != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := l.WhyOf(t.Context(), eve, waits.ID); err == nil {
		t.Error("eve hears of a VM that she may not see")
	}
	if l.must(waits.ID).Host != "" {
		t.Error("asking placed it")
	}
}

func TestWhyOfARequest(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	l.machine("w1", "west")
	e, err := l.Why(t.Context(), ann, CreateVM{Project: "alice", Shape: "large"}) // of any image
	if err != nil || e.Hosts != 2 || e.Fits != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := l.Why(t.Context(), eve, CreateVM{Project: "alice", Image: "micro", Shape: "large"}); code(err) == "" {
		t.Error("eve asks for a project that is not hers")
	}
	l.update(func(tx *store.Tx) error {
		return tx.PutCell(farm.Cell{Name: "east", Default: true, Closed: true, Reason: "new racks"}.WithDefaults())
	})
	e, err = l.Why(t.Context(), ann, CreateVM{Project: "alice", Image: "micro", Shape: "large"})
	if err != nil || e.Fits != 0 || e.Changes[0].Text != "open cell east" {
		t.Errorf("%+v, %v", e, err)
	}
}

// The end of a VM may be what helps. Its name is for those who may see it.
func TestWhyNamesVMsToThoseWhoMaySee(t *testing.T) {
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutProject(farm.Project{Name: "alice"}),
			tx.PutCell(farm.Cell{Name: "east", Default: true, PerHost: 1}.WithDefaults()),
			tx.PutProject(farm.Project{Name: "other"}),
			tx.PutGrant(farm.Grant{User: "eve", Role: farm.RoleMember, Project: "other"}))
	})
	l.machine("e1", "east")
	p := l.placing()
	l.create(ann, CreateVM{Project: "alice", Name: "a", Image: "micro", Shape: "small"})
	l.settle(p)
	for _, c := range []struct {
		who     farm.Identity
		project string
		named   bool
	}{{ann, "alice", true}, {eve, "other", false}} {
		e, err := l.Why(t.Context(), c.who, CreateVM{Project: c.project, Image: "micro", CPUs: 1, Memory: farm.GiB})
		if err != nil || len(e.Changes) == 0 {
			t.Fatal(err, e)
		}
		if text := e.Changes[0].Text; !strings.Contains(text, "end a VM of 2 CPUs") ||
			strings.Contains(text, "alice/a") != c.named {
			t.Errorf("%s hears %q", c.who.User, text)
		}
	}
}
