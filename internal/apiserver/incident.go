package apiserver

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/incidents"
)

// IncidentRef names an incident in a path.
type IncidentRef struct {
	Incident int64 `path:"incident" minimum:"1" example:"17"`
}

// IncidentChoice chooses incidents.
type IncidentChoice struct {
	State   string    `query:"state" enum:"open,closed" doc:"empty: all"`
	Host    string    `query:"host" maxLength:"100" doc:"name or ID"`
	VM      string    `query:"vm" maxLength:"200" doc:"as project/name, or ID"`
	Finding string    `query:"finding" maxLength:"100" doc:"rule of the audit"`
	Project string    `query:"project" maxLength:"100" doc:"that concern it, or a VM of it"`
	Cell    string    `query:"cell" maxLength:"100" doc:"that concern it, or a host or a VM of it"`
	Since   time.Time `query:"since" doc:"something was written then or later"`
}

// incidentRoutes are the routes of incidents.
type incidentRoutes struct{ *API }

func (a incidentRoutes) register() {
	handle(a.API, route{method: "GET", path: "/v1/incidents", id: "list-incidents", tag: "incidents",
		summary: "List incidents, the newest first: shared records of problems, without their entries",
		about:   "Those that concern what the caller may read: a project or a cell in which one has a role, or all."},
		a.list)
	handle(a.API, route{method: "POST", path: "/v1/incidents", id: "open-incident", tag: "incidents",
		status: http.StatusCreated, summary: "Open an incident",
		about: "The caller must have a right to each thing that it concerns: be a member of its project, or an " +
			"operator of its cell."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Once
			Body fleet.IncidentRequest
		}) (*one[fleet.Incident], error) {
			b := in.Body
			return answerIncident(a.server.Incidents.Open(ctx, who, incidents.Opening{Title: b.Title,
				Severity: farm.IncidentSeverity(b.Severity), Text: b.Text, Began: timeOf(b.Began),
				Names: incidents.Names(b.Concerns), Links: b.Incidents, Once: in.Key}))
		})
	handle(a.API, route{method: "GET", path: "/v1/incidents/{incident}", id: "get-incident", tag: "incidents",
		summary: "One incident, with all its entries"},
		func(ctx context.Context, who farm.Identity, in *struct{ IncidentRef }) (*one[fleet.Incident], error) {
			return answerIncident(a.server.Incidents.Get(ctx, who, in.Incident))
		})
	handle(a.API, route{method: "POST", path: "/v1/incidents/{incident}/notes", id: "note-incident", tag: "incidents",
		summary: "Add a note to an incident", about: "Nobody changes a note. Another severity is for those who may close " +
			"the incident."},
		func(ctx context.Context, who farm.Identity, in *struct {
			IncidentRef
			Once
			Body fleet.IncidentNote
		}) (*one[fleet.Incident], error) {
			return answerIncident(a.server.Incidents.Note(ctx, who, in.Incident, incidents.Note{Text: in.Body.Text,
				Severity: farm.IncidentSeverity(in.Body.Severity), Once: in.Key}))
		})
	handle(a.API, route{method: "POST", path: "/v1/incidents/{incident}/links", id: "link-incident", tag: "incidents",
		summary: "Add what an incident concerns, or link it to others", about: "What it concerns already is passed over."},
		func(ctx context.Context, who farm.Identity, in *struct {
			IncidentRef
			Body fleet.IncidentLink
		}) (*one[fleet.Incident], error) {
			return answerIncident(a.server.Incidents.Link(ctx, who, in.Incident, incidents.Link{
				Names: incidents.Names(in.Body.Concerns), Links: in.Body.Incidents, Text: in.Body.Text}))
		})
	handle(a.API, route{method: "POST", path: "/v1/incidents/{incident}/close", id: "close-incident", tag: "incidents",
		summary: "Close an incident"},
		func(ctx context.Context, who farm.Identity, in *struct {
			IncidentRef
			Seen
			Body fleet.IncidentEnd
		}) (*one[fleet.Incident], error) {
			return answerIncident(a.server.Incidents.Close(ctx, who, in.Incident, in.seen, in.Body.Text,
				timeOf(in.Body.Ended)))
		})
	handle(a.API, route{method: "POST", path: "/v1/incidents/{incident}/reopen", id: "reopen-incident", tag: "incidents",
		summary: "Open a closed incident again"},
		func(ctx context.Context, who farm.Identity, in *struct {
			IncidentRef
			Seen
			Body struct {
				Text string `json:"text,omitempty" maxLength:"4000"`
			}
		}) (*one[fleet.Incident], error) {
			return answerIncident(a.server.Incidents.Reopen(ctx, who, in.Incident, in.seen, in.Body.Text))
		})
}

func (a incidentRoutes) list(ctx context.Context, who farm.Identity, in *struct {
	Paging
	IncidentChoice
}) (*one[fleet.Page[fleet.Incident]], error) {
	f := incidents.Filter{Open: in.State == "open", Closed: in.State == "closed", Host: in.Host, VM: in.VM,
		Finding: in.Finding, Project: in.Project, Cell: in.Cell, Since: in.Since, Limit: in.Limit}
	if in.After != "" {
		var err error
		if f.Before, err = strconv.ParseInt(in.After, 10, 64); err != nil || f.Before <= 0 {
			return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: "after: no page ends so",
				Hint: "take next of the page before"}
		}
	}
	revision, err := a.server.Revision(ctx)
	if err != nil {
		return nil, err
	}
	found, more, err := a.server.Incidents.List(ctx, who, f)
	if err != nil {
		return nil, err
	}
	page := fleet.Page[fleet.Incident]{Items: []fleet.Incident{}, Revision: revision}
	for _, v := range found {
		page.Items = append(page.Items, incidentView(v))
	}
	if more {
		page.Next = strconv.FormatInt(found[len(found)-1].ID, 10)
	}
	return oneOf(page, 0), nil
}

func answerIncident(v incidents.View, err error) (*one[fleet.Incident], error) {
	if err != nil {
		return nil, err
	}
	return oneOf(incidentView(v), v.Revision), nil
}

func incidentView(v incidents.View) fleet.Incident {
	out := fleet.Incident{ID: v.ID, Title: v.Title, State: incidentState(v.Closed), Severity: string(v.Severity),
		OpenedBy: v.Opener, Opened: v.Opened.UTC(), Began: v.Began.UTC(), Ended: timeOrNil(v.Ended),
		Updated: v.Touched.UTC(), Concerns: concernsView(v.Concerns), Hidden: v.Hidden, Revision: v.Revision}
	for _, e := range v.Said {
		out.Entries = append(out.Entries, fleet.IncidentEntry{Number: e.Number, Time: e.Time.UTC(), Who: e.Who,
			Kind: string(e.Kind), Text: e.Text, Severity: string(e.Severity), Concerns: concernsView(e.Concerns),
			Incidents: e.Links, Ended: timeOrNil(e.Ended)})
	}
	for _, l := range v.Linked {
		linked := fleet.LinkedIncident{ID: l.ID, Title: l.Title}
		if l.Title != "" {
			linked.State = incidentState(l.Closed)
		}
		out.Incidents = append(out.Incidents, linked)
	}
	return out
}

func incidentState(closed bool) string {
	if closed {
		return "closed"
	}
	return "open"
}

func concernsView(all []farm.Concern) (out fleet.Concerns) {
	lists := map[farm.ConcernKind]*[]string{farm.ConcernHost: &out.Hosts, farm.ConcernVM: &out.VMs,
		farm.ConcernFinding: &out.Findings, farm.ConcernProject: &out.Projects, farm.ConcernCell: &out.Cells}
	for _, k := range all {
		if list := lists[k.Kind]; list != nil {
			*list = append(*list, k.Name)
		}
	}
	return out
}
