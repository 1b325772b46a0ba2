package lsf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// Driver is an LSF cluster as grange's server needs it, by LSF's commands, which print JSON.
type Driver struct {
	batch.Placeholders
	o   DriverOptions
	run program.Run
	now func() time.Time
}

// DriverOptions are what the configuration says of the cluster.
type DriverOptions struct {
	Bin   string   // directory of the commands
	Env   []string // LSF_ENVDIR, LSF_SERVERDIR
	Hold  string   // queue for placeholders: one whose jobs stay on the host; "": the reservation's
	Users []string // whose placeholders are ours; none: root's, lsfadmin's, and of whoever we run as
}

var _ batch.System = (*Driver)(nil)

// NewDriver makes one; run is program.Start outside of tests.
func NewDriver(o DriverOptions, run program.Run) *Driver {
	if len(o.Users) == 0 {
		o.Users = []string{"root", "lsfadmin"}
		if mine := names.Host().Mine(); mine != "" {
			o.Users = append(o.Users, mine)
		}
	}
	d := &Driver{o: o, run: run, now: time.Now}
	d.Placeholders = batch.NewPlaceholders(d.reservations, d.kill)
	return d
}

// Name is lsf.
func (d *Driver) Name() farm.BatchSystem { return farm.LSF }

func (d *Driver) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := d.run(ctx, program.Call{Path: filepath.Join(d.o.Bin, name), Args: args,
		Env: append([]string{"LSB_DISPLAY_YEAR=Y"}, d.o.Env...)})
	failed := new(program.Failed)
	if err != nil && ctx.Err() == nil && (!errors.As(err, &failed) ||
		program.Said(err, "LSF is down", "LIM is down", "batch system daemon not responding", "mbatchd")) {
		return out, batch.Away(farm.LSF, err)
	}
	return out, err
}

// record is one of a command's RECORDS: all values are text, and "-" or nothing stands for none.
type record map[string]string

func (r record) get(key string) string {
	if v := strings.TrimSpace(r[key]); v != "-" {
		return v
	}
	return ""
}

func (r record) number(key string) int {
	n, _ := strconv.Atoi(r.get(key))
	return n
}

func (d *Driver) records(ctx context.Context, name string, args ...string) ([]record, error) {
	out, err := d.command(ctx, name, append([]string{"-json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var answer struct{ Records []record }
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, batch.Garbled(farm.LSF, name+" -json", err)
	}
	return answer.Records, nil
}

// jobFields are asked for by name: the order of columns is no business of ours.
const jobFields = "jobid jobindex stat user queue proj_name job_name nreq_slot slots memlimit runtimelimit " +
	"submit_time start_time finish_time exec_host exit_code exit_reason cpu_used max_mem " +
	"pend_reason effective_resreq"

func (d *Driver) jobs(ctx context.Context, which ...string) ([]record, error) {
	records, err := d.records(ctx, "bjobs", append([]string{"-u", "all", "-o", jobFields}, which...)...)
	if program.Said(err, "No unfinished job found", "No matching job found", "is not found", "No job found") {
		return nil, nil
	}
	slices.SortStableFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.number("JOBID"), b.number("JOBID")),
			cmp.Compare(a.number("JOBINDEX"), b.number("JOBINDEX")))
	})
	return records, err
}

// id is 17, or 17[3] of an array.
func (r record) id() string {
	if n := r.number("JOBINDEX"); n > 0 {
		return fmt.Sprintf("%s[%d]", r.get("JOBID"), n)
	}
	return r.get("JOBID")
}

func (r record) cpus() int { return max(r.number("SLOTS"), r.number("NREQ_SLOT"), 1) }

// account is the project; LSF has "default" where the user named none.
func (r record) account() string {
	if p := r.get("PROJ_NAME"); p != "default" {
		return p
	}
	return ""
}

// runs: suspended jobs hold their slots.
func (r record) runs() bool { return slices.Contains([]string{"RUN", "SSUSP", "USUSP"}, r.get("STAT")) }

// amount reads "400 Mbytes", "2 Gbytes", "400 M", "2.5G".
func amount(text string) farm.Bytes {
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(text)
	}
	n, err := strconv.ParseFloat(text[:end], 64)
	if err != nil {
		return 0
	}
	unit := map[byte]farm.Bytes{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}
	if rest := strings.ToUpper(strings.TrimSpace(text[end:])); rest != "" && unit[rest[0]] > 0 {
		return farm.Bytes(n * float64(unit[rest[0]]))
	}
	return farm.Bytes(n) << 10 // LSF's own unit
}

// limit reads "60.0/host1" and "60.0 min of host1": minutes.
func limit(text string) time.Duration {
	end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(text)
	}
	n, err := strconv.ParseFloat(text[:end], 64)
	if err != nil {
		return 0
	}
	return time.Duration(n * float64(time.Minute))
}

// moment reads "Nov 21 08:00:00 2026" and, where a site's LSF leaves seconds or the year out, what is left; a letter
// behind it (L: by the limit, E: estimated, X: too long ago) is cut. Times are UTC, as the commands are told.
func (d *Driver) moment(text string) time.Time {
	if f := strings.Fields(text); len(f) > 0 && len(f[len(f)-1]) == 1 && strings.Contains("LEX", f[len(f)-1]) {
		text = strings.Join(f[:len(f)-1], " ")
	}
	text = strings.Join(strings.Fields(text), " ")
	for _, layout := range []string{"Jan 2 15:04:05 2006", "Jan 2 15:04 2006"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	for _, layout := range []string{"Jan 2 15:04:05", "Jan 2 15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			now := d.now().UTC()
			t = t.AddDate(now.Year(), 0, 0)
			if halfYear := 183 * 24 * time.Hour; t.Sub(now) > halfYear { // December, seen in January
				t = t.AddDate(-1, 0, 0)
			}
			return t
		}
	}
	return time.Time{}
}

func (d *Driver) ends(r record) time.Time {
	began := d.moment(r.get("START_TIME"))
	if l := limit(r.get("RUNTIMELIMIT")); l > 0 && !began.IsZero() {
		return began.Add(l)
	}
	return time.Time{}
}

// reservation is the one that the job holds, if it is ours: anybody may give a job any name.
func (d *Driver) reservation(r record) string {
	if !slices.Contains(d.o.Users, r.get("USER")) {
		return ""
	}
	return batch.ReservationOf(r.get("JOB_NAME"))
}

// wanted is an image in a resource requirement, as elim publishes it.
var wanted = lazyregexp.New(`\bgrange_(\w+)\s*==\s*1\b`)

// Demand is what waits.
func (d *Driver) Demand(ctx context.Context) ([]batch.Demand, error) {
	jobs, err := d.jobs(ctx, "-p")
	if err != nil {
		return nil, err
	}
	var t batch.Tally
	for _, r := range jobs {
		if r.get("STAT") != "PEND" || d.reservation(r) != "" || strings.Contains(r.get("PEND_REASON"), "dependency") {
			continue // PSUSP: held
		}
		line := batch.Demand{Jobs: 1, CPUs: r.cpus(), Memory: amount(r.get("MEMLIMIT")), Account: r.account(),
			Queue: r.get("QUEUE"), Oldest: d.moment(r.get("SUBMIT_TIME"))}
		if m := wanted.FindStringSubmatch(r.get("EFFECTIVE_RESREQ")); m != nil {
			line.Image = m[1]
		}
		t.Add(line)
	}
	return t.Demand(), nil
}

const hostFields = "host_name status max njobs total_mem comments"

func (d *Driver) hosts(ctx context.Context, which ...string) ([]batch.Node, error) {
	records, err := d.records(ctx, "bhosts", append([]string{"-o", hostFields}, which...)...)
	if err != nil {
		return nil, err
	}
	var nodes []batch.Node
	for _, r := range records {
		status := r.get("STATUS")
		n := batch.Node{Name: r.get("HOST_NAME"), CPUs: r.number("MAX"), Memory: amount(r.get("TOTAL_MEM")),
			State: batch.NodeIdle}
		n.Free = max(n.CPUs-r.number("NJOBS"), 0)
		n.Closed = status == "closed_Adm" || status == "closed_LIM_Adm"
		switch {
		case strings.HasPrefix(status, "unavail"), strings.HasPrefix(status, "unreach"), status == "closed_LIM":
			n.State = batch.NodeDown
		case n.Closed:
			n.State = batch.NodeClosed
		// full, busy, exclusive: it takes none, and nobody closed it
		case r.number("NJOBS") > 0, strings.HasPrefix(status, "closed_"):
			n.State = batch.NodeBusy
		}
		if n.State != batch.NodeIdle && n.State != batch.NodeBusy || strings.HasPrefix(status, "closed_") {
			n.Free = 0
		}
		if n.Closed || n.State == batch.NodeDown {
			n.Reason, n.Ours = batch.OurReason(strings.Trim(r.get("COMMENTS"), `"`))
			n.Ours = n.Ours && n.Closed
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b batch.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// Nodes are the hosts.
func (d *Driver) Nodes(ctx context.Context) ([]batch.Node, error) { return d.hosts(ctx) }

func (d *Driver) host(ctx context.Context, name string) (batch.Node, error) {
	if name == "" || strings.ContainsAny(name, " \t") || name[0] == '-' {
		return batch.Node{}, batch.NoNode(farm.LSF, name)
	}
	nodes, err := d.hosts(ctx, name)
	switch {
	case program.Said(err, "Bad host name", "not found", "Host or host group"):
		return batch.Node{}, batch.NoNode(farm.LSF, name)
	case err != nil:
		return batch.Node{}, err
	case len(nodes) != 1:
		return batch.Node{}, batch.NoNode(farm.LSF, name)
	}
	return nodes[0], nil
}

// Close closes a host, with a comment.
func (d *Driver) Close(ctx context.Context, host, reason string) error {
	n, err := d.host(ctx, host)
	if err != nil || n.Closed && !n.Ours {
		return err
	}
	_, err = d.command(ctx, "badmin", "hclose", "-C", batch.Reason(reason), host)
	return err
}

// Open opens it. The last of several administrators' comments counts; whoever closes it anew gives his own.
func (d *Driver) Open(ctx context.Context, host string) error {
	n, err := d.host(ctx, host)
	switch {
	case err != nil || !n.Closed:
		return err
	case !n.Ours:
		return batch.NotOurs(host, n.Reason)
	}
	_, err = d.command(ctx, "badmin", "hopen", host)
	return err
}

// Drain closes a host and lists who is there.
func (d *Driver) Drain(ctx context.Context, host, reason string) ([]batch.Running, error) {
	if err := d.Close(ctx, host, reason); err != nil {
		return nil, err
	}
	jobs, err := d.jobs(ctx, "-m", host)
	if err != nil {
		return nil, err
	}
	var running []batch.Running
	for _, r := range jobs {
		if r.runs() {
			running = append(running, batch.Running{Job: r.id(), User: r.get("USER"), Account: r.account(),
				Ends: d.ends(r), Reservation: d.reservation(r)})
		}
	}
	return running, nil
}

// Lookup asks mbatchd of a job that runs.
func (d *Driver) Lookup(ctx context.Context, a farm.Allotment) (farm.Allotment, error) {
	if !jobID.MatchString(a.Job) {
		return a, batch.NoJob(farm.LSF, a.Job)
	}
	jobs, err := d.jobs(ctx, a.Job)
	if err != nil {
		return a, err
	}
	for _, r := range jobs {
		if r.id() == a.Job && r.runs() {
			a.Account, a.Queue, a.Ends = r.account(), r.get("QUEUE"), d.ends(r)
			if a.Slots == 0 {
				a.Slots = r.cpus()
			}
			if a.Memory == 0 {
				a.Memory = amount(r.get("MEMLIMIT"))
			}
			return a, nil
		}
	}
	return a, batch.NoJob(farm.LSF, a.Job)
}

var jobID = lazyregexp.New(`^\d+(\[\d+\])?$`)
