package fleet

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Incident is the shared record of one problem.
type Incident struct {
	ID       int64      `json:"id"`
	Title    string     `json:"title"`
	State    string     `json:"state" enum:"open,closed"`
	Severity string     `json:"severity" enum:"minor,major,critical"`
	OpenedBy string     `json:"opened_by"`
	Opened   time.Time  `json:"opened"`
	Began    time.Time  `json:"began"`           // the problem
	Ended    *time.Time `json:"ended,omitempty"` // the problem, of a closed one
	Updated  time.Time  `json:"updated"`         // when its last entry was written
	Concerns Concerns   `json:"concerns"`        // that the caller may see
	Hidden   int        `json:"hidden,omitempty" doc:"things that it concerns and the caller may not see"`
	// Entries and Incidents are of one that was asked for by its ID.
	Entries   []IncidentEntry  `json:"entries,omitempty"`   // the oldest first
	Incidents []LinkedIncident `json:"incidents,omitempty"` // to which it is linked
	Revision  int64            `json:"revision"`
}

// Concerns are the things that an incident concerns.
type Concerns struct {
	Hosts    []string `json:"hosts,omitempty" maxItems:"100" doc:"names or IDs"`
	VMs      []string `json:"vms,omitempty" maxItems:"100" doc:"as project/name, or IDs"`
	Findings []string `json:"findings,omitempty" maxItems:"100" doc:"rules of the audit"`
	Projects []string `json:"projects,omitempty" maxItems:"100"`
	Cells    []string `json:"cells,omitempty" maxItems:"100"`
}

// IncidentEntry is what somebody said or did. It never changes.
type IncidentEntry struct {
	Number    int        `json:"number"` // from 1
	Time      time.Time  `json:"time"`
	Who       string     `json:"who"`
	Kind      string     `json:"kind" enum:"opened,note,linked,closed,reopened"`
	Text      string     `json:"text,omitempty"`
	Severity  string     `json:"severity,omitempty"`  // that it gave
	Concerns  Concerns   `json:"concerns"`            // that it added
	Incidents []int64    `json:"incidents,omitempty"` // to which it linked
	Ended     *time.Time `json:"ended,omitempty"`     // of the problem, where it closed
}

// LinkedIncident is one to which another is linked.
type LinkedIncident struct {
	ID    int64  `json:"id"`
	Title string `json:"title,omitempty"` // empty, as the state: the caller may not read it
	State string `json:"state,omitempty"`
}

// IncidentRequest opens an incident.
type IncidentRequest struct {
	Title     string     `json:"title" minLength:"1" maxLength:"200" doc:"one line"`
	Severity  string     `json:"severity,omitempty" enum:"minor,major,critical" doc:"none: minor"`
	Text      string     `json:"text,omitempty" maxLength:"4000"`
	Began     *time.Time `json:"began,omitempty" doc:"when the problem began; none: now"`
	Concerns  Concerns   `json:"concerns,omitempty"`
	Incidents []int64    `json:"incidents,omitempty" maxItems:"50" doc:"to link it to"`
}

// IncidentNote is what somebody says of an incident.
type IncidentNote struct {
	Text     string `json:"text" minLength:"1" maxLength:"4000"`
	Severity string `json:"severity,omitempty" enum:"minor,major,critical" doc:"none: as it is"`
}

// IncidentLink is what an incident concerns, too.
type IncidentLink struct {
	Concerns  Concerns `json:"concerns,omitempty"`
	Incidents []int64  `json:"incidents,omitempty" maxItems:"50"`
	Text      string   `json:"text,omitempty" maxLength:"4000"`
}

// IncidentEnd closes an incident, or opens it again.
type IncidentEnd struct {
	Text  string     `json:"text,omitempty" maxLength:"4000"`
	Ended *time.Time `json:"ended,omitempty" doc:"when the problem was over; none: now"`
}

// IncidentQuery chooses incidents. What is empty chooses nothing.
type IncidentQuery struct {
	State                            string // open, closed
	Host, VM, Finding, Project, Cell string
	Since                            time.Time // something was written then or later
}

// IncidentClient has the requests about incidents.
type IncidentClient struct{ client *Client }

// List returns those that a query chooses, the newest first, without their entries: at most limit, when that is not 0.
func (c IncidentClient) List(ctx context.Context, q IncidentQuery, limit int) (all []Incident, err error) {
	query := url.Values{"limit": {"1000"}}
	for key, value := range map[string]string{"state": q.State, "host": q.Host, "vm": q.VM, "finding": q.Finding,
		"project": q.Project, "cell": q.Cell} {
		if value != "" {
			query.Set(key, value)
		}
	}
	if !q.Since.IsZero() {
		query.Set("since", q.Since.UTC().Format(time.RFC3339))
	}
	for {
		if left := limit - len(all); limit > 0 && left < 1000 {
			query.Set("limit", strconv.Itoa(left))
		}
		page, err := call[Page[Incident]](ctx, c.client, request{method: "GET", path: "/v1/incidents", query: query})
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Items...); page.Next == "" || limit > 0 && len(all) >= limit {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// Get returns one with all its entries.
func (c IncidentClient) Get(ctx context.Context, id int64) (Incident, error) {
	return call[Incident](ctx, c.client, request{method: "GET", path: incidentPath(id, "")})
}

// Open opens one. With a key it is opened once, however often that is asked for.
func (c IncidentClient) Open(ctx context.Context, r IncidentRequest, key string) (Incident, error) {
	return call[Incident](ctx, c.client, request{method: "POST", path: "/v1/incidents", body: r, key: key})
}

// Note adds a note. With a key it is added once, however often that is asked for.
func (c IncidentClient) Note(ctx context.Context, id int64, n IncidentNote, key string) (Incident, error) {
	return call[Incident](ctx, c.client, request{method: "POST", path: incidentPath(id, "/notes"), body: n, key: key})
}

// Link adds what an incident concerns.
func (c IncidentClient) Link(ctx context.Context, id int64, l IncidentLink) (Incident, error) {
	return call[Incident](ctx, c.client, request{method: "POST", path: incidentPath(id, "/links"), body: l})
}

// Close closes one; with a revision, only if nothing was added since. 0: whatever was.
func (c IncidentClient) Close(ctx context.Context, id int64, e IncidentEnd, revision int64) (Incident, error) {
	return call[Incident](ctx, c.client, request{method: "POST", path: incidentPath(id, "/close"), body: e,
		revision: revision})
}

// Reopen opens a closed one again.
func (c IncidentClient) Reopen(ctx context.Context, id int64, text string) (Incident, error) {
	return call[Incident](ctx, c.client, request{method: "POST", path: incidentPath(id, "/reopen"),
		body: IncidentEnd{Text: text}})
}

func incidentPath(id int64, rest string) string { return fmt.Sprintf("/v1/incidents/%d%s", id, rest) }
