package htcondor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// Driver is a pool as the server and the agent need it, by HTCondor's own commands, and the history of one access
// point.
type Driver struct {
	batch.Placeholders
	o   DriverOptions
	run program.Run
}

// DriverOptions are what the configuration says of the pool.
type DriverOptions struct {
	History   string   // the access point's history file; its rotated ones beside it are read as well. Ended needs it
	ReserveAs string   // who owns placeholders where we are root, whose jobs HTCondor does not take; "": ourselves
	Env       []string // of the commands
}

var _ batch.System = (*Driver)(nil)

// NewDriver makes one. It runs as the administrator whom the pool lets set GrangeClosed, and owns what it reserves.
func NewDriver(o DriverOptions, run program.Run) *Driver {
	if o.ReserveAs == "" {
		o.ReserveAs = names.Host().Mine()
	}
	d := &Driver{o: o, run: run}
	d.Placeholders = batch.NewPlaceholders(d.reservations, d.remove)
	return d
}

// Name is htcondor.
func (d *Driver) Name() farm.BatchSystem { return farm.HTCondor }

func (d *Driver) command(ctx context.Context, name string, input string, args ...string) (string, error) {
	out, err := d.run(ctx, program.Call{Path: name, Args: args, Env: d.o.Env, Input: []byte(input)})
	failed := new(program.Failed)
	if err != nil && ctx.Err() == nil && (!errors.As(err, &failed) || program.Said(err, notThere...)) {
		return "", batch.Away(farm.HTCondor, err)
	}
	return string(out), err
}

// notThere is what the commands say when a daemon does not answer. They all end with 1.
var notThere = []string{"Failed to connect", "Can't connect", "Can't find address", "Couldn't contact",
	"Failed to fetch ads", "CEDAR:", "Error communicating"}

// list is what condor_q and condor_status print with -json: nothing at all for an empty list.
func list[T any](text, what string) ([]T, error) {
	var all []T
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, batch.Garbled(farm.HTCondor, what, err)
	}
	return all, nil
}

// number is a value that is a number; an expression is none.
type number struct {
	value float64
	known bool
}

func (n *number) UnmarshalJSON(text []byte) error {
	n.known = json.Unmarshal(text, &n.value) == nil
	return nil
}

func (n number) int() int { return int(n.value) }

func (n number) time() time.Time {
	if !n.known || n.value <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(n.value), 0).UTC()
}

// text is a value that is a string. An expression comes as the string "/Expr(...)/".
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) != nil || strings.HasPrefix(s, "/Expr(") {
		s = ""
	}
	*t = text(s)
	return nil
}

// job is one in the queue.
type job struct {
	GlobalJobId            text
	ClusterId, ProcId      int
	JobStatus              int
	Owner, AcctGroup       text
	RequestCpus            number
	RequestMemory          number // MiB
	QDate                  number
	JobCurrentStartDate    number
	AllowedJobDuration     number
	AllowedExecuteDuration number
	VMImage, VMShape       text
	RemoteHost             text
	GrangeBooking          text
	GrangeHost             text
	GrangeLimit            number // seconds
	HoldReason             text
}

// jobFields are what we ask for: whole ads are ten times as long.
var jobFields = []string{"GlobalJobId", "ClusterId", "ProcId", "JobStatus", "Owner", "AcctGroup", "RequestCpus",
	"RequestMemory", "QDate", "JobCurrentStartDate", "AllowedJobDuration", "AllowedExecuteDuration", "VMImage",
	"VMShape", "RemoteHost", "GrangeBooking", "GrangeHost", "GrangeLimit", "HoldReason"}

// What JobStatus says.
const (
	jobIdle      = 1
	jobRunning   = 2
	jobRemoved   = 3
	jobCompleted = 4
	jobHeld      = 5
	jobSending   = 6 // its output
	jobSuspended = 7
)

func (j job) runs() bool {
	return j.JobStatus == jobRunning || j.JobStatus == jobSending || j.JobStatus == jobSuspended
}

// id is the job among those of all access points, as the agent has it too.
func (j job) id() string { return jobID(string(j.GlobalJobId), j.ClusterId, j.ProcId) }

func jobID(global string, cluster, proc int) string {
	if i := strings.LastIndexByte(global, '#'); i > 0 {
		return global[:i]
	}
	return fmt.Sprintf("%d.%d", cluster, proc)
}

func (j job) host() string {
	return string(j.RemoteHost)[strings.LastIndexByte(string(j.RemoteHost), '@')+1:] // slot1_1@[STARTD@]HOST
}

func (j job) ends() time.Time {
	var ends time.Time
	for _, limit := range []number{j.AllowedJobDuration, j.AllowedExecuteDuration, j.GrangeLimit} {
		if start := j.JobCurrentStartDate.time(); limit.known && limit.value > 0 && !start.IsZero() {
			if t := start.Add(time.Duration(limit.value) * time.Second); ends.IsZero() || t.Before(ends) {
				ends = t
			}
		}
	}
	return ends
}

// queue asks for the jobs that a constraint names.
func (d *Driver) queue(ctx context.Context, constraint string) ([]job, error) {
	out, err := d.command(ctx, "condor_q", "", "-allusers", "-json", "-attributes", strings.Join(jobFields, ","),
		"-constraint", constraint)
	if err != nil {
		return nil, err
	}
	return list[job](out, "condor_q")
}

// Demand is what waits for hosts.
func (d *Driver) Demand(ctx context.Context) ([]batch.Demand, error) {
	all, err := d.queue(ctx, fmt.Sprintf("JobStatus == %d && GrangeBooking =?= undefined", jobIdle))
	if err != nil {
		return nil, err
	}
	var t batch.Tally
	for _, j := range all {
		t.Add(batch.Demand{Jobs: 1, Image: string(j.VMImage), Shape: string(j.VMShape),
			CPUs: max(j.RequestCpus.int(), 1), Memory: farm.Bytes(j.RequestMemory.value) * farm.MiB,
			Account: string(j.AcctGroup), Oldest: j.QDate.time()})
	}
	return t.Demand(), nil
}
