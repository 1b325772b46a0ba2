package pages

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/action"
)

// vmPage is one VM.
type vmPage struct {
	vmRow
	ID                               string
	Cell, Network, MAC, Group, Shape string
	Needs, SecurityGroups            []string
	Tags                             []string
	Since                            time.Time
	SinceAgo                         string
	Ready                            bool
	Pending                          string // what was asked for and is not done
	Keys                             int
	Plan                             []planLine
	Memory                           []string // where it is, a line for each cell of the guest
	Tail                             string   // the end of it, of a VM that failed
	Job                              string
	Poll, Seen                       string
	Revision                         int64
	Move                             *moveLine
	Incidents                        about
}

// planLine is where vCPUs run.
type planLine struct {
	VCPU int
	CPUs string
	Free bool // it shares them with other VMs
}

// moveLine is the last move of a VM.
type moveLine struct {
	From, To, State string
	Active          bool
	Since           time.Time
}

func (v *visit) ref() string { return v.r.PathValue("project") + "/" + v.r.PathValue("name") }

func (v *visit) back() string { return vmPath(v.r.PathValue("project"), v.r.PathValue("name")) }

func (v *visit) vm() error {
	page, err := v.vmPage()
	if err != nil {
		return err
	}
	return v.show("vm", page.Name, "vms", page)
}

// vmNow answers with the part of the page that changes by itself.
func (v *visit) vmNow() error {
	page, err := v.vmPage()
	if farm.IsCode(err, farm.CodeNoVM) && v.r.Header.Get("HX-Request") != "" {
		v.w.Header().Set("HX-Redirect", "/vms") // it has been deleted
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	if page.Seen == v.r.URL.Query().Get("seen") {
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.part("vm", "now", page)
}

func (v *visit) vmPage() (page vmPage, err error) {
	vm, err := v.Server.VMs.Get(v.ctx(), v.who, v.ref())
	if err != nil {
		return page, err
	}
	now := v.Now()
	page = vmPage{vmRow: rowOf(vm, now), ID: vm.ID, Cell: vm.Cell, Network: vm.Network, MAC: vm.Lease.MAC,
		Group: vm.Group, Shape: vm.Shape.Name, Needs: vm.Needs, SecurityGroups: vm.SecurityGroups,
		Since: vm.Observed.Since, Ready: vm.Observed.Ready && vm.State == farm.VMRunning, Keys: len(vm.Keys),
		Job: vm.Job(), Revision: vm.Revision, Pending: pendingOf(vm)}
	if !page.Since.IsZero() {
		page.SinceAgo = span(now.Sub(page.Since))
	}
	for k, value := range vm.Tags {
		page.Tags = append(page.Tags, k+"="+value)
	}
	slices.Sort(page.Tags)
	if _, tail, ok := strings.Cut(vm.Observed.Reason, "\n"); ok {
		page.Tail = tail
	}
	page.setPlan(vm)
	if page.Move, err = moveOf(v, vm); err != nil {
		return page, err
	}
	page.Incidents, err = incidentsAbout(v, "vm", page.Project+"/"+page.Name, vm.ID, action.VMTarget(vm.VM))
	if err != nil {
		return page, err
	}
	page.Seen = sumOf(page)
	page.Poll = page.Path + "/now?seen=" + page.Seen
	return page, nil
}

// setPlan shows where the VM was planned to be, or where its host put it.
func (p *vmPage) setPlan(vm server.VMView) {
	plan := vm.Plan
	if plan.VCPUs == nil {
		plan = vm.Observed.Plan
	}
	for i, cpus := range plan.VCPUs {
		p.Plan = append(p.Plan, planLine{i, cpus.String(), plan.Floating.Has(i)})
	}
	for _, c := range plan.Cells {
		pages := "ordinary pages"
		if c.PageSize != 0 {
			pages = c.PageSize.String() + " pages"
		}
		p.Memory = append(p.Memory, fmt.Sprintf("%s on node %d in %s, for vCPUs %s", c.Memory, c.Node, pages, c.VCPUs))
	}
}

func pendingOf(vm server.VMView) string {
	switch {
	case vm.Resize != nil:
		return "to be resized to " + sizeOf(*vm.Resize)
	case vm.Wanted.Power == farm.PowerOn && !vm.Done():
		return "its host has still to start it anew"
	}
	return ""
}

func moveOf(v *visit, vm server.VMView) (*moveLine, error) {
	m, err := v.Server.VMs.LastMove(v.ctx(), v.who, vm.ID)
	if farm.IsKind(err, farm.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state := "under way"
	switch {
	case m.Failure != "":
		state = m.Failure
	case m.Cancelled && m.Active():
		state = "being cancelled"
	case !m.Active():
		state = "done"
	}
	return &moveLine{From: m.FromName, To: m.ToName, Active: m.Active(), Since: m.Since, State: state}, nil
}

// question is the page that asks before something is done to a VM, or what it is to be.
type question struct {
	Verb, Title string
	vmPage
	Shapes []farm.Shape
	Images []string
	Hosts  []string // to which it could move
	Failed *trouble
	Values url.Values
}

// questions are the verbs that have a page, and its title.
var questions = map[string]string{"delete": "Delete", "rebuild": "Rebuild", "resize": "Resize", "move": "Move",
	"expiry": "Change the expiry of"}

func (v *visit) askVM() error { return v.ask(http.StatusOK, nil) }

func (v *visit) ask(status int, failed error) error {
	verb := v.r.PathValue("verb")
	title, ok := questions[verb]
	if !ok {
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoPage, Message: "there is no page " + v.r.URL.Path,
			Hint: "go back to the VM's page"}
	}
	page, err := v.vmPage()
	if err != nil {
		return err
	}
	q := question{Verb: verb, Title: title + " " + page.Name, vmPage: page, Values: v.r.Form}
	if failed != nil {
		t := troubleOf(failed)
		q.Failed = &t
	}
	switch verb {
	case "resize":
		q.Shapes, err = v.Server.Shapes(v.ctx(), v.who)
	case "rebuild":
		q.Images, err = imageNames(v)
	}
	if err != nil {
		return err
	}
	return v.write(status, "ask", q.Title, "vms", q)
}

// verbs are what the buttons of a VM do.
var verbs = map[string]func(v *visit, revision int64) error{
	"start": func(v *visit, revision int64) error {
		_, err := v.Server.VMs.Start(v.ctx(), v.who, v.ref(), revision)
		return err
	},
	"stop": func(v *visit, revision int64) error {
		_, err := v.Server.VMs.Stop(v.ctx(), v.who, v.ref(), revision)
		return err
	},
	"restart": func(v *visit, revision int64) error {
		_, err := v.Server.VMs.Restart(v.ctx(), v.who, v.ref(), revision)
		return err
	},
	"delete": func(v *visit, revision int64) error {
		_, err := v.Server.VMs.Delete(v.ctx(), v.who, v.ref(), revision)
		return err
	},
	"rebuild": func(v *visit, revision int64) error {
		_, err := v.Server.VMs.Rebuild(v.ctx(), v.who, v.ref(), revision, strings.TrimSpace(v.r.FormValue("image")))
		return err
	},
	"resize": resizeVM,
	"move": func(v *visit, revision int64) error {
		_, err := v.Server.VMs.Move(v.ctx(), v.who, v.ref(), revision, strings.TrimSpace(v.r.FormValue("to")))
		return err
	},
	"stay": func(v *visit, revision int64) error {
		_, err := v.Server.VMs.CancelMove(v.ctx(), v.who, v.ref(), revision)
		return err
	},
	"expiry": func(v *visit, revision int64) error {
		at, err := parseExpiry(v.r.FormValue("expires"))
		if err != nil {
			return err
		}
		_, err = v.Server.VMs.Update(v.ctx(), v.who, v.ref(), revision, server.UpdateVM{Expires: &at})
		return err
	},
}

func resizeVM(v *visit, revision int64) error {
	cpus, err := number("CPUs", v.r.FormValue("cpus"))
	if err != nil {
		return err
	}
	memory, err := bytesOf(v.r.FormValue("memory"))
	if err != nil {
		return err
	}
	_, err = v.Server.VMs.Resize(v.ctx(), v.who, v.ref(), revision,
		server.ResizeVM{Shape: v.r.FormValue("shape"), CPUs: cpus, Memory: memory})
	return err
}

// doVM does what a button or a question's form says, and goes back to where that was.
func (v *visit) doVM() error {
	verb := v.r.PathValue("verb")
	do, ok := verbs[verb]
	if !ok {
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoPage, Message: "nothing is called " + strconv.Quote(verb),
			Hint: "go back to the VM's page"}
	}
	if err := v.parse(); err != nil {
		return err
	}
	revision, _ := strconv.ParseInt(v.r.FormValue("revision"), 10, 64) // none: whatever it is
	if err := do(v, revision); err != nil {
		if _, asked := questions[verb]; asked && !farm.IsKind(err, farm.NotFound) {
			if e, ok := errors.AsType[*farm.Error](err); ok {
				return v.ask(troubleOf(e).Status, e)
			}
		}
		return err
	}
	if verb == "delete" {
		return v.to(apiserver.LocalPath(v.r.FormValue("back"), "/vms"))
	}
	return v.to(apiserver.LocalPath(v.r.FormValue("back"), v.back()))
}

// parse reads a form. Its size is bounded by who hands the request over.
func (v *visit) parse() error {
	if err := v.r.ParseForm(); err != nil {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: "the form did not arrive whole",
			Hint: "send it again", Err: err}
	}
	return nil
}

// number reads a count that may be left out.
func number(what, text string) (int, error) {
	text = strings.TrimSpace(text)
	n, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil || n < 0 {
		return 0, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: fmt.Sprintf("%s: %.20q is not a number", what, text), Hint: "write digits alone"}
	}
	return n, nil
}

// bytesOf reads a size that may be left out.
func bytesOf(text string) (farm.Bytes, error) {
	if strings.TrimSpace(text) == "" {
		return 0, nil
	}
	return farm.ParseBytes(text)
}

// parseExpiry reads the day on which a VM ends; "": never.
func parseExpiry(text string) (time.Time, error) {
	if text = strings.TrimSpace(text); text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02 15:04", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return day, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: fmt.Sprintf("%.40q is not a date", text), Hint: "write it as 2026-12-31"}
	}
	return day.Add(24*time.Hour - time.Second), nil // the day is the VM's own
}

// mayCreate are the projects in which the caller may make VMs.
func (v *visit) mayCreate() (projects []server.ProjectView, err error) {
	all, err := v.Server.Projects(v.ctx(), v.who)
	if err != nil {
		return nil, err
	}
	grants, err := v.Server.Accounts.Whoami(v.ctx(), v.who)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p server.ProjectView) bool {
		return !policy.Allow(v.who, grants, policy.CreateVM, policy.Target{Project: p.Name, Owner: v.who.User}).Allowed
	}), nil
}
