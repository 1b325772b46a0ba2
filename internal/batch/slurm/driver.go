package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Driver is a cluster as the server and the agent need it, by Slurm's own commands: their formats are ours to choose,
// and live longer than the versions of the REST API.
type Driver struct {
	batch.Placeholders
	o      DriverOptions
	run    program.Run
	window window
}

// DriverOptions are what the configuration says of the cluster.
type DriverOptions struct {
	Env    []string                // for the commands: SLURM_CONF
	Wishes map[string]batch.Demand // by feature that a job constrains itself to: the image and shape it stands for
	Hold   []string                // options of sbatch for placeholders, as --no-vm
}

var (
	_ batch.System    = (*Driver)(nil)
	_ batch.Witness   = (*Driver)(nil)
	_ batch.Commenter = (*Driver)(nil)
)

// NewDriver makes one; run is program.Start outside of tests.
func NewDriver(o DriverOptions, run program.Run) *Driver {
	d := &Driver{o: o, run: run}
	d.Placeholders = batch.NewPlaceholders(d.reservations,
		func(ctx context.Context, job string) error { return d.cancel(ctx, job) })
	return d
}

// Name is slurm.
func (d *Driver) Name() farm.BatchSystem { return farm.Slurm }

// separator stands between fields where none has a text of other users: names can have it.
const separator = "\x1f"

// command runs one of Slurm's commands. Times are in UTC and without relative words; the lists of arrays are not cut.
func (d *Driver) command(ctx context.Context, name string, args ...string) (string, error) {
	env := append([]string{"SLURM_TIME_FORMAT=standard", "SLURM_BITSTR_LEN=0"}, d.o.Env...)
	out, err := d.run(ctx, program.Call{Path: name, Args: args, Env: env})
	failed := new(program.Failed)
	if err != nil && (!errors.As(err, &failed) && ctx.Err() == nil || program.Said(err, notThere...)) {
		return "", batch.Away(farm.Slurm, err)
	}
	return string(out), err
}

// notThere is what the commands say when slurmctld or slurmdbd does not answer. There is no other way to tell: all end
// with 1.
var notThere = []string{"Unable to contact slurm controller", "Socket timed out", "Connection refused",
	"Unable to establish controller", "Protocol authentication error", "slurmdbd"}

// fields of one line; nil where there are not as many as asked for.
func fields(line string, n int) []string {
	f := strings.SplitN(strings.TrimSuffix(line, "\n"), separator, n)
	if len(f) != n {
		return nil
	}
	return f
}

// notForHosts are reasons for which a job waits that no further host mends; the starts of what squeue's %r says.
var notForHosts = []string{"JobHeld", "Dependency", "BeginTime", "JobArrayTaskLimit", "Assoc", "QOS", "Invalid",
	"AccountNotAllowed", "Licenses", "Cleaning", "SystemFailure"}

// waitingFields are asked for by name: only so squeue tells what a job asks for in all. Its %m is of a node or, with
// --mem-per-cpu, of a CPU, and does not say which. A field whose width is none is as wide as it is; the text behind the
// colon ends each. What users asked for by --vm only their comment tells.
var waitingFields = []string{"JobArrayID", "Reason", "NumCPUs", "MinMemory", "tres-alloc", "Account", "Partition",
	"SubmitTime", "Feature", "Name", "Comment"}

// Demand is what waits for hosts.
func (d *Driver) Demand(ctx context.Context) ([]batch.Demand, error) {
	all, err := d.records(ctx, "squeue", len(waitingFields), func(end string) []string {
		return []string{"--noheader", "--states=PENDING",
			"--Format=" + strings.Join(waitingFields, ":"+end+",") + ":" + end}
	})
	if err != nil {
		return nil, err
	}
	var t batch.Tally
	for _, f := range all {
		if batch.ReservationOf(f[9]) != "" ||
			slices.ContainsFunc(notForHosts, func(r string) bool { return strings.HasPrefix(f[1], r) }) {
			continue
		}
		jobs, err := elements(f[0])
		cpus, err2 := strconv.Atoi(f[2])
		memory, err3 := asked(f[3], f[4])
		if err := errors.Join(err, err2, err3); err != nil {
			return nil, batch.Garbled(farm.Slurm, "squeue", err)
		}
		wish := batch.Demand{Jobs: jobs, CPUs: cpus, Memory: memory, Account: none(f[5]), Queue: firstOf(f[6]),
			Oldest: moment(f[7])}
		for feature := range strings.FieldsFuncSeq(f[8],
			func(r rune) bool { return strings.ContainsRune("&|,[]()*", r) }) {
			if w, ok := d.o.Wishes[feature]; ok {
				wish.Image, wish.Shape = w.Image, w.Shape
			}
		}
		if image, shape := wished(f[10]); image != "" {
			wish.Image, wish.Shape = image, shape
		}
		t.Add(wish)
	}
	return t.Demand(), nil
}

// asked is the memory that a job asks for in all, of cpu=4,mem=2000M,node=1. One that asks for none is told to want all
// of a host.
func asked(least, tres string) (farm.Bytes, error) {
	if least == "0" || least == "" {
		return 0, nil
	}
	for resource := range strings.SplitSeq(tres, ",") {
		if text, ok := strings.CutPrefix(resource, "mem="); ok {
			return memory(text)
		}
	}
	return memory(least)
}

// memory reads 500M, 1.50G, 2T.
func memory(text string) (farm.Bytes, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	unit := farm.MiB // a number without a unit
	switch text[len(text)-1] {
	case 'K':
		unit = farm.MiB / 1024
	case 'G':
		unit = farm.MiB * 1024
	case 'T':
		unit = farm.MiB * 1024 * 1024
	}
	n, err := strconv.ParseFloat(strings.TrimRight(text, "KMGT"), 64)
	if err != nil {
		return 0, fmt.Errorf("memory %q", text)
	}
	return farm.Bytes(n * float64(unit)), nil
}

// elements counts the jobs of one pending line: 17, 17_3 or 17_[1-5,8%2].
func elements(id string) (int, error) {
	_, list, ok := strings.Cut(id, "_[")
	if !ok {
		return 1, nil
	}
	list, _, _ = strings.Cut(strings.TrimSuffix(list, "]"), "%")
	total, err := batch.Elements(list)
	if err != nil {
		return 0, fmt.Errorf("elements of job %q", id)
	}
	return total, nil
}

// none cuts Slurm's word for nothing.
func none(text string) string {
	if text == "(null)" || text == "N/A" || text == "None" {
		return ""
	}
	return text
}

func firstOf(list string) string {
	first, _, _ := strings.Cut(list, ",")
	return first
}

// moment is a time in UTC; zero for "Unknown", "N/A" and the like.
func moment(text string) time.Time {
	t, err := time.Parse("2006-01-02T15:04:05", text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// span is a time limit: [DAYS-]HOURS:MINUTES:SECONDS, MINUTES:SECONDS; 0 for UNLIMITED.
func span(text string) time.Duration {
	days, rest, ok := strings.Cut(text, "-")
	if !ok {
		days, rest = "0", text
	}
	n, err := strconv.Atoi(days)
	if err != nil {
		return 0
	}
	total := time.Duration(0)
	for part := range strings.SplitSeq(rest, ":") {
		whole, fraction, _ := strings.Cut(part, ".") // sacct's CPU times have one
		v, err := strconv.Atoi(whole)
		if err != nil {
			return 0
		}
		total = total*60 + time.Duration(v)*time.Second
		if f, err := strconv.ParseFloat("0."+fraction, 64); err == nil && fraction != "" {
			total += time.Duration(f * float64(time.Second))
		}
	}
	return time.Duration(n)*24*time.Hour + total
}

// Nodes are the hosts.
func (d *Driver) Nodes(ctx context.Context) ([]batch.Node, error) {
	out, err := d.command(ctx, "scontrol", "--oneliner", "show", "nodes")
	if err != nil {
		return nil, batch.Away(farm.Slurm, err)
	}
	return parseNodes(out)
}

func (d *Driver) node(ctx context.Context, host string) (batch.Node, error) {
	if host == "" || strings.ContainsAny(host, "=, []") || host[0] == '-' {
		return batch.Node{}, batch.NoNode(farm.Slurm, host)
	}
	out, err := d.command(ctx, "scontrol", "--oneliner", "show", "nodes", host)
	// scontrol prints the first, and ends with 1
	if strings.Contains(out, "not found") || program.Said(err, "Invalid node") {
		return batch.Node{}, batch.NoNode(farm.Slurm, host)
	}
	if err != nil {
		return batch.Node{}, err
	}
	nodes, err := parseNodes(out)
	if err != nil || len(nodes) != 1 {
		return batch.Node{}, batch.Garbled(farm.Slurm, "scontrol show nodes "+host, err)
	}
	return nodes[0], nil
}

// Close drains a host.
func (d *Driver) Close(ctx context.Context, host, reason string) error {
	n, err := d.node(ctx, host)
	if err != nil || n.Closed && !n.Ours {
		return err
	}
	_, err = d.command(ctx, "scontrol", "update", "nodename="+host, "state=drain", "reason="+batch.Reason(reason))
	return err
}

// Open ends the draining of a host. Its state below that stays: a host that is down stays down.
func (d *Driver) Open(ctx context.Context, host string) error {
	n, err := d.node(ctx, host)
	switch {
	case err != nil || !n.Closed:
		return err
	case !n.Ours:
		return batch.NotOurs(host, n.Reason)
	}
	_, err = d.command(ctx, "scontrol", "update", "nodename="+host, "state=undrain")
	return err
}

// Drain closes a host and lists who is there.
func (d *Driver) Drain(ctx context.Context, host, reason string) ([]batch.Running, error) {
	if err := d.Close(ctx, host, reason); err != nil {
		return nil, err
	}
	all, err := d.records(ctx, "squeue", 5, func(end string) []string {
		return []string{"--noheader", "--states=RUNNING,SUSPENDED,CONFIGURING,STOPPED", "--nodelist=" + host,
			"--format=" + strings.Join([]string{"%A", "%u", "%a", "%e", "%j"}, end) + end}
	})
	if err != nil {
		return nil, err
	}
	var jobs []batch.Running
	for _, f := range all {
		jobs = append(jobs, batch.Running{Job: f[0], User: f[1], Account: none(f[2]), Ends: moment(f[3]),
			Reservation: batch.ReservationOf(f[4])})
	}
	return jobs, nil
}

// Lookup asks slurmctld of a job that runs.
func (d *Driver) Lookup(ctx context.Context, a farm.Allotment) (farm.Allotment, error) {
	if _, err := strconv.ParseUint(a.Job, 10, 32); err != nil {
		return a, batch.NoJob(farm.Slurm, a.Job)
	}
	out, err := d.runningJob(ctx, a.Job, "--format="+strings.Join([]string{"%A", "%a", "%P", "%e"}, separator))
	if err != nil {
		return a, err
	}
	for line := range strings.Lines(out) {
		if f := fields(line, 4); f != nil && f[0] == a.Job { // a line of an array may be another element's
			a.Account, a.Queue, a.Ends = none(f[1]), f[2], moment(f[3])
			return d.size(ctx, a)
		}
	}
	return a, batch.NoJob(farm.Slurm, a.Job)
}

func (d *Driver) runningJob(ctx context.Context, job, format string) (string, error) {
	out, err := d.command(ctx, "squeue", "--noheader", "--states=RUNNING,SUSPENDED,CONFIGURING,STOPPED",
		"--jobs="+job, format)
	if program.Said(err, "Invalid job id") {
		err = batch.NoJob(farm.Slurm, job)
	}
	return out, err
}

// size adds what a job was given where a does not say. slurmctld tells that of the whole job: of one on several hosts
// nobody knows how much is here. None of these fields can have a blank, and none is the user's word.
func (d *Driver) size(ctx context.Context, a farm.Allotment) (farm.Allotment, error) {
	cpus := a.CPUs.Empty() && a.Slots == 0
	if !cpus && a.Memory != 0 {
		return a, nil
	}
	out, err := d.runningJob(ctx, a.Job, "--Format=JobID:32,NumNodes:32,tres-alloc:1024")
	if err != nil {
		return a, err
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != a.Job || f[1] != "1" {
			continue
		}
		for resource := range strings.SplitSeq(f[2], ",") {
			switch kind, text, _ := strings.Cut(resource, "="); {
			case kind == "cpu" && cpus:
				a.Slots, err = strconv.Atoi(text)
			case kind == "mem" && a.Memory == 0:
				a.Memory, err = memory(text)
			}
			if err != nil {
				return a, batch.Garbled(farm.Slurm, "squeue", err)
			}
		}
	}
	return a, nil
}
