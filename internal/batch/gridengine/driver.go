package gridengine

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// Driver is a cell as the server and the agent need it, by Grid Engine's own commands and its accounting file.
type Driver struct {
	batch.Placeholders
	cell *Cell
	o    DriverOptions
}

// DriverOptions are what the configuration says of the cell.
type DriverOptions struct {
	// the accounting file; its rotated ones beside it are read as well; "": the cell's own
	Accounting string
	// by image that a job asks for (-l vmimages=*NAME*): the image and shape it stands for; one that is not here stands
	// for itself
	Wishes   map[string]batch.Demand
	Projects bool // accounts of reservations are projects (-P) and no bare words (-A)
	// parallel environment with the allocation rule $pe_slots, for reservations of several CPUs
	Parallel string
	Hold     []string // options of qsub for placeholders: whatever keeps them out of VMs
	User     string   // who reserves; "": whoever we run as
}

var _ batch.System = (*Driver)(nil)

// NewDriver makes one.
func NewDriver(cell *Cell, o DriverOptions) *Driver {
	if o.Accounting == "" {
		o.Accounting = cell.accounting()
	}
	if o.User == "" {
		o.User = names.Host().Mine()
	}
	d := &Driver{cell: cell, o: o}
	d.Placeholders = batch.NewPlaceholders(d.reservations, d.remove)
	return d
}

// Name is gridengine.
func (d *Driver) Name() farm.BatchSystem { return farm.GridEngine }

// command runs one of Grid Engine's commands.
func (d *Driver) command(ctx context.Context, name string, args ...string) (string, error) {
	out, err := d.cell.call(ctx, name, args...)
	failed := new(program.Failed)
	if err != nil && (!errors.As(err, &failed) && ctx.Err() == nil || program.Said(err, notThere...)) {
		return "", batch.Away(farm.GridEngine, err)
	}
	return out, err
}

// notThere is what the commands say when the master does not answer. There is no other way to tell: all end with 1.
var notThere = []string{"unable to send message to qmaster", "unable to contact qmaster", "commlib error",
	"failed receiving gdi request"}

// Demand is what waits for hosts. The account is the job's project: qstat lists no other.
func (d *Driver) Demand(ctx context.Context) ([]batch.Demand, error) {
	projects, err := d.jobs(ctx, "-u", "*", "-s", "p", "-r", "-ext") // has no times
	if err != nil {
		return nil, err
	}
	later, err := d.jobs(ctx, "-u", "*", "-s", "ha") // for their time (-a), which their state does not tell
	if err != nil {
		return nil, err
	}
	all, err := d.jobs(ctx, "-u", "*", "-s", "p", "-r")
	if err != nil {
		return nil, err
	}
	project, wait := map[int]string{}, map[int]bool{}
	for _, j := range projects {
		project[j.Number] = j.Project
	}
	for _, j := range later {
		wait[j.Number] = true
	}
	var t batch.Tally
	for _, j := range all {
		account, listed := project[j.Number] // one that is not is newer: the next call has it
		if !listed || wait[j.Number] || strings.ContainsAny(j.State, "hEd") || batch.ReservationOf(j.name()) != "" {
			continue
		}
		n := 1
		if j.Tasks != "" { // those of an array that wait
			if n, err = batch.Elements(j.Tasks); err != nil {
				return nil, batch.Garbled(farm.GridEngine, "qstat", err)
			}
		}
		memory, err := j.memory()
		if err != nil {
			return nil, batch.Garbled(farm.GridEngine, "qstat", err)
		}
		wish := batch.Demand{Jobs: n, CPUs: max(j.Slots, 1), Memory: memory, Account: account, Queue: j.wantedQueue(),
			Oldest: moment(j.Submitted)}
		if image := strings.Trim(j.request("vmimages"), "*"); image != "" {
			wish.Image = image
			if w, ok := d.o.Wishes[image]; ok {
				wish.Image, wish.Shape = w.Image, w.Shape
			}
		}
		t.Add(wish)
	}
	return t.Demand(), nil
}

// Close has a host take no new jobs, by a resource quota set of its own that grants no slots: it keeps the reason,
// holds for queues that are made later, and cannot be taken for an administrator's `qmod -d`, of which Grid Engine
// keeps neither reason nor author.
func (d *Driver) Close(ctx context.Context, host, reason string) error {
	n, err := d.node(ctx, host)
	if err != nil || n.Closed && !n.Ours {
		return err
	}
	text := quotaText(host, batch.Reason(reason))
	if n.Closed {
		return d.cell.QconfFile(ctx, "quota", text, "-Mrqs", quotaName(host))
	}
	return d.cell.QconfFile(ctx, "quota", text, "-Arqs")
}

// Open takes our closing away. Where an administrator has disabled the host as well, that stays, and is a Conflict.
func (d *Driver) Open(ctx context.Context, host string) error {
	nodes, quotas, err := d.nodes(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(nodes, func(n batch.Node) bool { return n.Name == host })
	if at < 0 {
		return batch.NoNode(farm.GridEngine, host)
	}
	if _, ours := quotas[host]; ours {
		if _, err := d.cell.Qconf(ctx, "-drqs", quotaName(host)); err != nil && !farm.IsCode(err, farm.CodeQconf) {
			return err
		}
		// What is still there after a refusal is not opened.
		if nodes, quotas, err = d.nodes(ctx); err != nil {
			return err
		}
		if at = slices.IndexFunc(nodes, func(n batch.Node) bool { return n.Name == host }); at < 0 {
			return batch.NoNode(farm.GridEngine, host)
		}
		if _, ours := quotas[host]; ours {
			return batch.NotOurs(host, "resource quota set "+quotaName(host)+" cannot be removed")
		}
	}
	if n := nodes[at]; n.Closed {
		return batch.NotOurs(host, n.Reason)
	}
	return nil
}

// Drain closes a host and lists who is there.
func (d *Driver) Drain(ctx context.Context, host, reason string) ([]batch.Running, error) {
	if err := d.Close(ctx, host, reason); err != nil {
		return nil, err
	}
	// -g t: parts of parallel jobs are listed by host
	all, err := d.jobs(ctx, "-u", "*", "-s", "rs", "-r", "-g", "t", "-q", "*@"+host)
	if err != nil {
		return nil, err
	}
	var jobs []batch.Running
	var numbers []int
	seen := map[string]bool{}
	for _, j := range all {
		if _, on := j.where(); on != host || !j.running() || seen[j.id()] {
			continue
		}
		seen[j.id()] = true
		ends, err := d.ends(ctx, j)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, batch.Running{Job: j.id(), User: j.Owner, Ends: ends,
			Reservation: batch.ReservationOf(j.name())})
		numbers = append(numbers, j.Number)
	}
	accounts, err := d.accounts(ctx, numbers)
	if err != nil {
		return nil, err
	}
	for i, number := range numbers {
		jobs[i].Account = accounts[number]
		if jobs[i].Reservation != "" && jobs[i].User != d.o.User {
			jobs[i].Reservation = "" // anybody may give a job any name
		}
	}
	return jobs, nil
}

// ends is when a job's time is over: by what it asked for, or what its queue grants; zero: never.
func (d *Driver) ends(ctx context.Context, j qstatJob) (time.Time, error) {
	started := moment(j.Started)
	queue, host := j.where()
	if started.IsZero() || queue == "" {
		return time.Time{}, nil
	}
	limit := seconds(j.request("h_rt"))
	text, err := d.cell.Qconf(ctx, "-sq", queue+"@"+host)
	if err != nil && !farm.IsCode(err, farm.CodeQconf) { // a queue that was removed under its job limits nothing
		return time.Time{}, err
	}
	if most := seconds(ParseSettings(text).Values["h_rt"]); err == nil && most > 0 && (limit == 0 || most < limit) {
		limit = most
	}
	if limit == 0 {
		return time.Time{}, nil
	}
	return started.Add(limit), nil
}

// seconds reads a time_specifier of sge_types(5): seconds, or H:M:S with parts left out. 0: no limit.
func seconds(text string) time.Duration {
	total := time.Duration(0)
	for part := range strings.SplitSeq(text, ":") {
		n, err := strconv.ParseFloat(part, 64)
		const most = 100 * 365 * 24 * 3600
		if part != "" && (err != nil || n < 0 || n > most) {
			return 0
		}
		total = total*60 + time.Duration(n*float64(time.Second))
	}
	return max(total, 0)
}

// Lookup asks the master of a job that runs.
func (d *Driver) Lookup(ctx context.Context, a farm.Allotment) (farm.Allotment, error) {
	text, _, _ := strings.Cut(a.Job, ".")
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		return a, batch.NoJob(farm.GridEngine, a.Job)
	}
	details, err := d.details(ctx, []int{number})
	if err != nil {
		return a, err
	}
	if len(details) == 0 {
		return a, batch.NoJob(farm.GridEngine, a.Job)
	}
	running, err := d.jobs(ctx, "-u", details[0].Owner, "-s", "rs", "-r")
	if err != nil {
		return a, err
	}
	for _, j := range running {
		if j.id() == a.Job && j.running() {
			a.Account = details[0].account()
			a.Queue, _ = j.where()
			a.Ends, err = d.ends(ctx, j)
			return a, err
		}
	}
	return a, batch.NoJob(farm.GridEngine, a.Job)
}
