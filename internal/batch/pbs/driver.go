package pbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// Driver is a PBS server as grange's server needs it, by PBS's commands, which print JSON, and the accounting log, to
// which PBS appends.
type Driver struct {
	batch.Placeholders
	o   DriverOptions
	run program.Run
}

// DriverOptions are what the configuration says of the server.
type DriverOptions struct {
	Bin        string   // directory of the commands; "": /opt/pbs/bin
	Accounting string   // directory of the accounting log; "": /var/spool/pbs/server_priv/accounting
	Conf       string   // PBS's own configuration; "": $PBS_CONF_FILE, or /etc/pbs.conf
	Hold       string   // queue for placeholders: one whose jobs stay on the host; "": the reservation's
	Users      []string // whose placeholders are ours; none: root's, and of whoever we run as
}

var _ batch.System = (*Driver)(nil)

// NewDriver makes one; run is program.Start outside of tests.
func NewDriver(o DriverOptions, run program.Run) *Driver {
	o.Bin = cmp.Or(o.Bin, "/opt/pbs/bin")
	o.Accounting = cmp.Or(o.Accounting, "/var/spool/pbs/server_priv/accounting")
	o.Conf = cmp.Or(o.Conf, os.Getenv("PBS_CONF_FILE"), "/etc/pbs.conf")
	if len(o.Users) == 0 {
		o.Users = []string{"root"}
		if mine := names.Host().Mine(); mine != "" && mine != "root" {
			o.Users = append(o.Users, mine)
		}
	}
	d := &Driver{o: o, run: run}
	d.Placeholders = batch.NewPlaceholders(d.reservations, d.delete)
	return d
}

// Name is pbs.
func (d *Driver) Name() farm.BatchSystem { return farm.PBS }

func (d *Driver) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := d.run(ctx, program.Call{Path: filepath.Join(d.o.Bin, name), Args: args,
		Env: []string{"PBS_CONF_FILE=" + d.o.Conf}})
	failed := new(program.Failed)
	if err != nil && ctx.Err() == nil &&
		(!errors.As(err, &failed) || program.Said(err, "cannot connect to server", "Connection refused")) {
		return out, batch.Away(farm.PBS, err)
	}
	return out, err
}

// job is one of `qstat -f -F json`. PBS prints a number without quotes and everything else with them, whatever the
// resource.
type job struct {
	Name     string         `json:"Job_Name"`
	Owner    string         `json:"Job_Owner"`
	State    string         `json:"job_state"`
	Queue    string         `json:"queue"`
	Account  string         `json:"Account_Name"`
	Project  string         `json:"project"`
	Queued   string         `json:"qtime"`
	Started  string         `json:"stime"`
	Hosts    string         `json:"exec_host"`
	Comment  string         `json:"comment"`
	Wanted   map[string]any `json:"Resource_List"`
	Elements string         `json:"array_state_count"`
	id       string
}

func (d *Driver) jobs(ctx context.Context, args ...string) ([]job, error) {
	out, err := d.command(ctx, "qstat", append([]string{"-f", "-F", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var answer struct{ Jobs map[string]job }
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, batch.Garbled(farm.PBS, "qstat -f -F json", err)
	}
	var all []job
	for id, j := range answer.Jobs {
		j.id = id
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b job) int {
		return cmp.Or(cmp.Compare(number(a.id), number(b.id)),
			cmp.Compare(a.id, b.id))
	})
	return all, nil
}

func number(id string) int {
	n, _ := strconv.Atoi(id[:len(id)-len(strings.TrimLeft(id, "0123456789"))])
	return n
}

func (j job) text(resource string) string {
	switch v := j.Wanted[resource].(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

func (j job) cpus() int {
	n, _ := strconv.Atoi(j.text("ncpus"))
	return max(n, 1)
}

func (j job) limit() time.Duration { return span(j.text("walltime")) }

func (j job) user() string {
	user, _, _ := strings.Cut(j.Owner, "@")
	return user
}

// account is what the job is charged to. Without one PBS has a project of this name.
func (j job) account() string {
	if j.Account == "" && j.Project != "_pbs_project_default" {
		return j.Project
	}
	return j.Account
}

func (j job) ends() time.Time {
	began := moment(j.Started)
	if began.IsZero() || j.limit() == 0 {
		return time.Time{}
	}
	return began.Add(j.limit())
}

// runs: R, S and U have a host; E is on its way out of it.
func (j job) runs() bool { return strings.Contains("RSUE", j.State) && j.Hosts != "" }

// on are the hosts of n1/0*2+n2/1.
func (j job) on() []string {
	var hosts []string
	for part := range strings.SplitSeq(j.Hosts, "+") {
		host, _, _ := strings.Cut(part, "/")
		if host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// reservation is the one that the job holds, if it is ours: anybody may give a job any name.
func (d *Driver) reservation(j job) string {
	if !slices.Contains(d.o.Users, j.user()) {
		return ""
	}
	return batch.ReservationOf(j.Name)
}

// size reads 400mb, 2gb, 1048576kb.
func size(text string) farm.Bytes {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	shift := map[string]uint{"kb": 10, "mb": 20, "gb": 30, "tb": 40, "kw": 13, "mw": 23,
		"gw": 33}[strings.ToLower(text[len(digits):])]
	return farm.Bytes(n) << shift
}

// span reads 01:02:03 and plain seconds.
func span(text string) time.Duration {
	total := 0
	for part := range strings.SplitSeq(text, ":") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return 0
		}
		total = 60*total + n
	}
	return time.Duration(total) * time.Second
}

// moment reads "Sat Nov 21 08:00:00 2026", in UTC, as the commands are told.
func moment(text string) time.Time {
	t, err := time.Parse("Mon Jan _2 15:04:05 2006", text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Demand is what waits and is not held.
func (d *Driver) Demand(ctx context.Context) ([]batch.Demand, error) {
	jobs, err := d.jobs(ctx)
	if err != nil {
		return nil, err
	}
	var t batch.Tally
	for _, j := range jobs {
		if j.State != "Q" && j.State != "B" || d.reservation(j) != "" { // B: an array, part of which may wait
			continue
		}
		n := 1
		if j.Elements != "" { // "Queued:3 Running:1 Exiting:0 Expired:0"
			fmt.Sscanf(j.Elements, "Queued:%d", &n)
		}
		if n > 0 {
			t.Add(batch.Demand{Jobs: n, Image: j.text("grange_image"), CPUs: j.cpus(), Memory: size(j.text("mem")),
				Account: j.account(), Queue: j.Queue, Oldest: moment(j.Queued)})
		}
	}
	return t.Demand(), nil
}

// node is one of `pbsnodes -F json`.
type node struct {
	State     string         `json:"state"`
	Comment   string         `json:"comment"`
	Queue     string         `json:"queue"`
	Available map[string]any `json:"resources_available"`
	Assigned  map[string]any `json:"resources_assigned"`
}

func (d *Driver) nodes(ctx context.Context, args ...string) ([]batch.Node, error) {
	out, err := d.command(ctx, "pbsnodes", append([]string{"-F", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var answer struct{ Nodes map[string]node }
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, batch.Garbled(farm.PBS, "pbsnodes -F json", err)
	}
	var all []batch.Node
	for _, name := range slices.Sorted(maps.Keys(answer.Nodes)) {
		n := answer.Nodes[name]
		have, used := job{Wanted: n.Available}, job{Wanted: n.Assigned}
		cpus, _ := strconv.Atoi(have.text("ncpus"))
		taken, _ := strconv.Atoi(used.text("ncpus"))
		out := batch.Node{Name: name, CPUs: cpus, Free: max(cpus-taken, 0), Memory: size(have.text("mem")),
			State: batch.NodeIdle}
		states := strings.Split(n.State, ",")
		is := func(words ...string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(states, w) })
		}
		out.Closed = is("offline", "offline_by_mom", "maintenance")
		switch {
		case is("down", "state-unknown", "stale", "unresolvable", "initializing"):
			out.State = batch.NodeDown
		case is("sleep"):
			out.State = batch.NodeOff
		case out.Closed:
			out.State = batch.NodeClosed
		case taken > 0, is("job-busy", "job-exclusive", "resv-exclusive", "busy"):
			out.State = batch.NodeBusy
		}
		if out.State != batch.NodeIdle && out.State != batch.NodeBusy {
			out.Free = 0
		}
		if out.Closed || out.State == batch.NodeDown {
			out.Reason, out.Ours = batch.OurReason(n.Comment)
			out.Ours = out.Ours && out.Closed
		}
		for _, key := range slices.Sorted(maps.Keys(n.Available)) {
			if v := have.text(key); v == "True" || v == "true" {
				out.Features = append(out.Features, key)
			}
		}
		if n.Queue != "" {
			out.Queues = []string{n.Queue}
		}
		all = append(all, out)
	}
	return all, nil
}

// Nodes are the vnodes.
func (d *Driver) Nodes(ctx context.Context) ([]batch.Node, error) { return d.nodes(ctx, "-a") }

func (d *Driver) node(ctx context.Context, host string) (batch.Node, error) {
	if host == "" || host[0] == '-' {
		return batch.Node{}, batch.NoNode(farm.PBS, host)
	}
	nodes, err := d.nodes(ctx, "-v", host)
	switch {
	case program.Said(err, "Unknown node"):
		return batch.Node{}, batch.NoNode(farm.PBS, host)
	case err != nil:
		return batch.Node{}, err
	case len(nodes) != 1:
		return batch.Node{}, batch.NoNode(farm.PBS, host)
	}
	return nodes[0], nil
}

// Close takes a vnode offline, with a comment.
func (d *Driver) Close(ctx context.Context, host, reason string) error {
	n, err := d.node(ctx, host)
	if err != nil || n.Closed && !n.Ours {
		return err
	}
	_, err = d.command(ctx, "pbsnodes", "-C", batch.Reason(reason), "-o", host)
	return err
}

// Open puts it online. The comment goes too: a later closing by somebody else, without one, would look like ours.
func (d *Driver) Open(ctx context.Context, host string) error {
	n, err := d.node(ctx, host)
	switch {
	case err != nil || !n.Closed:
		return err
	case !n.Ours:
		return batch.NotOurs(host, n.Reason)
	}
	_, err = d.command(ctx, "pbsnodes", "-C", "", "-r", host)
	return err
}

// Drain closes a host and lists who is there.
func (d *Driver) Drain(ctx context.Context, host, reason string) ([]batch.Running, error) {
	if err := d.Close(ctx, host, reason); err != nil {
		return nil, err
	}
	jobs, err := d.jobs(ctx, "-t")
	if err != nil {
		return nil, err
	}
	var running []batch.Running
	for _, j := range jobs {
		if j.runs() && slices.Contains(j.on(), host) {
			running = append(running, batch.Running{Job: j.id, User: j.user(), Account: j.account(), Ends: j.ends(),
				Reservation: d.reservation(j)})
		}
	}
	return running, nil
}

// Lookup asks the server of a job that runs.
func (d *Driver) Lookup(ctx context.Context, a farm.Allotment) (farm.Allotment, error) {
	if a.Job == "" || a.Job[0] == '-' {
		return a, batch.NoJob(farm.PBS, a.Job)
	}
	jobs, err := d.jobs(ctx, a.Job)
	if program.Said(err, "Unknown Job Id", "Job has finished") {
		return a, batch.NoJob(farm.PBS, a.Job)
	}
	if err != nil {
		return a, err
	}
	if len(jobs) != 1 || !jobs[0].runs() {
		return a, batch.NoJob(farm.PBS, a.Job)
	}
	a.Account, a.Queue, a.Ends = jobs[0].account(), jobs[0].Queue, jobs[0].ends()
	if len(jobs[0].on()) == 1 { // of a job on several hosts this is what all of them gave
		if a.Slots == 0 {
			a.Slots = jobs[0].cpus()
		}
		if a.Memory == 0 {
			a.Memory = size(jobs[0].text("mem"))
		}
	}
	return a, nil
}
