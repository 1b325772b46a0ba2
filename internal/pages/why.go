package pages

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/server"
)

// whyPage says where a VM could be, and what keeps it from each other host.
type whyPage struct {
	VM       string
	Form     vmForm
	Projects []server.ProjectView
	Shapes   []farm.Shape
	Asked    bool
	Failed   *trouble
	Where    where
	Each     []placement.Answer
	More     int // hosts that are not in Each
}

// hostsExplained is how many hosts have a line of their own.
const hostsExplained = 200

func (v *visit) why() error {
	q := v.r.URL.Query()
	page := whyPage{VM: strings.TrimSpace(q.Get("vm")), Form: vmForm{Project: q.Get("project"), Image: q.Get("image"),
		Shape: q.Get("shape"), CPUs: q.Get("cpus"), Memory: q.Get("memory"), Scratch: q.Get("scratch"),
		Network: q.Get("network"), Cell: q.Get("cell")}}
	var err error
	if page.Projects, err = v.mayCreate(); err != nil {
		return err
	}
	if page.Shapes, err = v.Server.Shapes(v.ctx(), v.who); err != nil {
		return err
	}
	var e placement.Explanation
	switch {
	case page.VM != "":
		page.Asked = true
		e, err = v.Server.WhyOf(v.ctx(), v.who, page.VM)
	case page.Form.Project != "":
		page.Asked = true
		order, wrong := page.Form.order()
		if err = wrong; err == nil {
			e, err = v.Server.Why(v.ctx(), v.who, order)
		}
	}
	if err != nil {
		t := troubleOf(err)
		page.Failed = &t
	}
	page.Where = whereOf(e)
	page.Each = e.Each[:min(len(e.Each), hostsExplained)]
	page.More = len(e.Each) - len(page.Each)
	return v.show("why", "Why", "why", page)
}

func whereOf(e placement.Explanation) where {
	w := where{Fits: e.Fits, Hosts: e.Hosts, Percent: share(e.Fits, e.Hosts)}
	for _, s := range e.Sums {
		w.Sums = append(w.Sums, whySum{string(s.Constraint), s.Hosts, share(s.Hosts, e.Hosts), s.Example})
	}
	for _, c := range e.Changes {
		w.Changes = append(w.Changes, c.Text)
	}
	return w
}

// share is how many of a hundred a part is; of what is there at all, one at least, so that its bar is seen.
func share(part, whole int) int {
	if whole <= 0 || part <= 0 {
		return 0
	}
	return min(100, max(1, 100*part/whole))
}
