package htcondor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/classad"
	"github.com/grange-project/grange/internal/farm"
)

// slot is one ad of a host.
type slot struct {
	Name, Machine   text
	State, Activity text
	SlotType        text
	Cpus            number
	TotalSlotCpus   number
	TotalSlotMemory number // MiB
	GrangeClosed    text
	GrangeImages    text
	DrainReason     text
}

var slotFields = []string{"Name", "Machine", "State", "Activity", "SlotType", "Cpus", "TotalSlotCpus",
	"TotalSlotMemory", "GrangeClosed", "GrangeImages", "DrainReason"}

// Nodes are the hosts whose ads the collector has: one that went away is in none of HTCondor's lists.
func (d *Driver) Nodes(ctx context.Context) ([]batch.Node, error) {
	out, err := d.command(ctx, "condor_status", "", "-json", "-attributes", strings.Join(slotFields, ","))
	if err != nil {
		return nil, err
	}
	slots, err := list[slot](out, "condor_status")
	if err != nil {
		return nil, err
	}
	jobs, err := d.queue(ctx, "RemoteHost =!= undefined")
	if err != nil {
		return nil, err
	}
	return nodesOf(slots, jobs)
}

// nodesOf counts slots. The collector hears of a change some seconds late: what our own queue knows of jobs that run is
// taken away already.
func nodesOf(slots []slot, jobs []job) ([]batch.Node, error) {
	taken := map[string]int{}
	for _, j := range jobs {
		if j.runs() {
			taken[j.host()] += max(j.RequestCpus.int(), 1)
		}
	}
	byName := map[text]*batch.Node{}
	for _, s := range slots {
		if s.Machine == "" {
			return nil, batch.Garbled(farm.HTCondor, "condor_status", errors.New("an ad names no machine"))
		}
		n := byName[s.Machine]
		if n == nil {
			n = &batch.Node{Name: string(s.Machine), State: batch.NodeIdle, Ours: true}
			byName[s.Machine] = n
		}
		s.addTo(n)
	}
	var all []batch.Node
	for _, n := range byName {
		if free := max(n.CPUs-taken[n.Name], 0); free < n.Free {
			n.Free = free
		}
		if taken[n.Name] > 0 {
			n.State = batch.NodeBusy
		}
		if n.Ours = n.Ours && n.Closed; n.Closed {
			n.State, n.Free = batch.NodeClosed, 0
		}
		all = append(all, *n)
	}
	slices.SortFunc(all, func(a, b batch.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// addTo counts one slot. A dynamic slot is part of a partitionable one, which has counted all and has what is left; and
// its ad may stay with the collector for a quarter of an hour when its startd was told something just as it ended.
func (s slot) addTo(n *batch.Node) {
	switch s.SlotType {
	case "Dynamic":
		return
	case "Partitionable":
		n.CPUs += s.TotalSlotCpus.int()
		n.Free += s.Cpus.int()
		if s.Cpus.int() < s.TotalSlotCpus.int() {
			n.State = batch.NodeBusy
		}
	default:
		n.CPUs += s.Cpus.int()
		if s.State == "Unclaimed" {
			n.Free += s.Cpus.int()
		} else {
			n.State = batch.NodeBusy
		}
	}
	n.Memory += farm.Bytes(s.TotalSlotMemory.value) * farm.MiB
	if images := strings.FieldsFunc(string(s.GrangeImages), func(r rune) bool { return r == ',' }); len(images) > 0 &&
		n.Features == nil {
		slices.Sort(images)
		n.Features = images
	}
	reason, ours := batch.OurReason(string(s.GrangeClosed))
	switch {
	case s.State == "Drained" || s.Activity == "Retiring" || s.DrainReason != "": // condor_drain, whoever gave it
		n.Closed, n.Ours, n.Reason = true, false, cmp.Or(string(s.DrainReason), "condor_drain")
	case s.State == "Owner":
		n.Closed, n.Ours = true, false
		n.Reason = cmp.Or(n.Reason, "its START takes no job")
	case s.GrangeClosed != "" && !ours:
		n.Closed, n.Ours, n.Reason = true, false, string(s.GrangeClosed)
	case s.GrangeClosed != "":
		n.Closed = true
		n.Reason = cmp.Or(n.Reason, reason)
	}
}

func (d *Driver) node(ctx context.Context, host string) (batch.Node, error) {
	nodes, err := d.Nodes(ctx)
	if err != nil {
		return batch.Node{}, err
	}
	at := slices.IndexFunc(nodes, func(n batch.Node) bool { return n.Name == host })
	if at < 0 {
		return batch.Node{}, batch.NoNode(farm.HTCondor, host)
	}
	return nodes[at], nil
}

// Close sets GrangeClosed in the configuration of the host's startd, as the administrator that we are to it; its START,
// and everybody who looks at its ad, sees that. condor_drain would end the jobs that run there.
func (d *Driver) Close(ctx context.Context, host, reason string) error {
	n, err := d.node(ctx, host)
	if err != nil || n.Closed && !n.Ours {
		return err
	}
	return d.mark(ctx, host, batch.Reason(reason))
}

// Open takes our closing away. Where an administrator drains the host as well, that stays, and is a Conflict.
func (d *Driver) Open(ctx context.Context, host string) error {
	n, err := d.node(ctx, host)
	if err != nil {
		return err
	}
	if n.Closed {
		if err := d.mark(ctx, host, ""); err != nil {
			return err
		}
		if n, err = d.node(ctx, host); err != nil {
			return err
		}
	}
	if n.Closed {
		return batch.NotOurs(host, n.Reason)
	}
	return nil
}

// mark sets it in the startd, and waits until the collector knows: Nodes would not show it before.
func (d *Driver) mark(ctx context.Context, host, mark string) error {
	this := "Machine == " + classad.Quote(host)
	address, err := d.command(ctx, "condor_status", "", "-af", "MyAddress", "-constraint", this)
	if err != nil {
		return err
	}
	// By its address: names of hosts need not be known to the resolver here.
	address, _, _ = strings.Cut(strings.TrimSpace(address), "\n")
	if !strings.HasPrefix(address, "<") {
		return batch.NoNode(farm.HTCondor, host)
	}
	if _, err := d.command(ctx, "condor_config_val", "", "-startd", "-address", address, "-set",
		"GrangeClosed = "+classad.Quote(mark)); err != nil {
		return notSet(host, err)
	}
	if _, err := d.command(ctx, "condor_reconfig", "", "-addr", address); err != nil {
		return notSet(host, err)
	}
	const timeout = 20 * time.Second
	for deadline := time.Now().Add(timeout); ; {
		out, err := d.command(ctx, "condor_status", "", "-json", "-attributes", "Machine,SlotType,GrangeClosed",
			"-constraint", this)
		if err != nil {
			return err
		}
		slots, err := list[slot](out, "condor_status")
		if err != nil {
			return err
		}
		if len(slots) > 0 && !slices.ContainsFunc(slots, func(s slot) bool {
			return s.SlotType != "Dynamic" &&
				string(s.GrangeClosed) != mark
		}) {
			return nil
		}
		if time.Now().After(deadline) {
			return batch.Away(farm.HTCondor,
				errors.New("the startd of "+host+" took the change, and its ad does not show it"))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func notSet(host string, err error) error {
	if farm.IsKind(err, farm.Unavailable) {
		return err
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeCondorConfig,
		Message: "the startd of " + host + " does not let us set GrangeClosed", Err: err,
		Hint: "grange htcondor install --execute on that host; and be one whom its ALLOW_ADMINISTRATOR names"}
}

// Drain closes a host and lists who is there.
func (d *Driver) Drain(ctx context.Context, host, reason string) ([]batch.Running, error) {
	if err := d.Close(ctx, host, reason); err != nil {
		return nil, err
	}
	all, err := d.queue(ctx, "RemoteHost =!= undefined")
	if err != nil {
		return nil, err
	}
	var jobs []batch.Running
	for _, j := range all {
		if j.runs() && j.host() == host {
			jobs = append(jobs, batch.Running{Job: j.id(), User: string(j.Owner), Account: string(j.AcctGroup),
				Ends: j.ends(), Reservation: d.reservation(j)})
		}
	}
	return jobs, nil
}

// reservation is what the job holds; anybody may write such an attribute.
func (d *Driver) reservation(j job) string {
	if string(j.Owner) != d.o.ReserveAs {
		return ""
	}
	return string(j.GrangeBooking)
}
