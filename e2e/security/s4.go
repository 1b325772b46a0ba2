package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
)

// charger is a host whose root is lost: it joined a moment ago, has four threads, and no VM.
type charger struct {
	*standalone
	id tls.Certificate
}

// chargerThreads is what it reports. In the hours since it joined, with an hour in which its clock may be wrong, it
// charges a few times that.
const (
	chargerThreads = 4
	mostCharged    = 3 * 4 * chargerThreads // core hours
)

// charger starts a farm with a VM on one host, and has another host join it, and report.
func (s *site) charger(ctx context.Context) (*charger, string, error) {
	a, vm, err := s.withSecret(ctx)
	if err != nil {
		return nil, "", err
	}
	c := &charger{standalone: a}
	token, err := a.grange(ctx, "host", "token", "create", "--cell", "general")
	if err == nil {
		var refused string
		if c.id, refused, err = a.enrol(ctx, token, "hostile", "hostile", false); refused != "" {
			err = fmt.Errorf("the hostile host does not join: %s", refused)
		}
	}
	if err == nil {
		_, err = a.learns(ctx, c.id, vm) // it reports
	}
	if err != nil {
		a.close()
	}
	return c, vm, err
}

// brings sends records.
func (c *charger) brings(ctx context.Context, records ...api.Usage) error {
	for len(records) > 0 {
		n := min(len(records), fleet.MaxUsageBatch)
		status, text, err := c.ask(ctx, c.client(c.id), http.MethodPost, fleet.RouteUsage,
			fleet.UsageBatch{Records: records[:n]})
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("bring records: %d %s %w", status, text, err)
		}
		records = records[n:]
	}
	return nil
}

// charged is how many core and CPU hours anybody is charged.
func (c *charger) charged(ctx context.Context) (hours float64, err error) {
	text, err := c.grange(ctx, "usage", "--json", "--by", "project", "--from", "2000-01", "--to", "9000-12")
	var sum fleet.UsageSummary
	if err == nil {
		err = json.Unmarshal([]byte(text), &sum)
	}
	for _, l := range sum.Lines {
		hours += max(l.CoreHours, l.CPUHours, l.JobHours)
	}
	return hours, err
}

// lies are records that a host of four threads which joined a moment ago cannot have, of a kind, 20 of each.
func lies(of api.Usage) (all []api.Usage) {
	now := time.Now()
	for _, lie := range []func(u *api.Usage){
		func(u *api.Usage) { u.Cores, u.Start, u.Wall = 4096, u.End, 50*365*86400 },
		func(u *api.Usage) { u.Cores, u.Wall = 4096, 600 },
		func(u *api.Usage) { u.Start, u.Wall = now.AddDate(-2, 0, 0), 2*365*86400 },
		func(u *api.Usage) { u.Start, u.End, u.Wall = now, now.AddDate(10, 0, 0), 10*365*86400 },
		func(u *api.Usage) { u.CPU = new(4.0 * 600 * 4 * 100); u.Cores, u.Wall = 400, 600 },
		func(u *api.Usage) { u.Wall, u.CPU = 0, new(3600.0) },
		func(u *api.Usage) { busy := 3600.0; u.Wall, u.JobCPU = 0, &busy },
		func(u *api.Usage) { u.Wall = 3600 },
		func(u *api.Usage) { u.Start, u.Wall = u.End, 3500 },
	} {
		for n := range 20 {
			u := of
			u.ID, u.Cores, u.End = api.NewID(), chargerThreads, now.Add(-time.Duration(n)*time.Second)
			u.Start = u.End.Add(-time.Hour)
			lie(&u)
			all = append(all, u)
		}
	}
	return all
}

// jobsOfALostHost has a host charge a project for jobs that it cannot have run, by the name of its account, and then
// again what was taken back.
func jobsOfALostHost(ctx context.Context, s *site) error {
	c, _, err := s.charger(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	records := lies(api.Usage{Kind: api.UsageJob, User: "ann", Account: "people"})
	if err := c.brings(ctx, records...); err != nil {
		return err
	}
	hours, err := c.charged(ctx)
	if err != nil {
		return err
	}
	if hours > mostCharged {
		return breach("a host of %d threads that has just joined charges %.0f hours", chargerThreads, hours)
	}
	if err := c.shows(ctx, "hostile", len(records)/2); err != nil {
		return err
	}
	for range 2 {
		if _, err := c.grange(ctx, "usage", "withdraw", "hostile", "--came", "--from", "1h"); err != nil {
			return err
		}
		if err := c.brings(ctx, records...); err != nil {
			return err
		}
	}
	if hours, err = c.charged(ctx); err == nil && hours > 0 {
		return breach("records that were taken back and brought again charge %.0f hours", hours)
	}
	return err
}

// shows makes sure that people see what a host brought and nobody is charged for.
func (c *charger) shows(ctx context.Context, host string, least int) error {
	text, err := c.grange(ctx, "usage", "check", "--json", "--host", host)
	if err != nil {
		return err
	}
	var found struct {
		Hosts []struct {
			Why     string `json:"why"`
			Records int    `json:"records"`
		} `json:"hosts"`
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return err
	}
	n := 0
	for _, h := range found.Hosts {
		n += h.Records
	}
	if n < least {
		return breach("%d records count for nobody, and `grange usage check` shows %s", least, text)
	}
	return nil
}

// vmsOfALostHost has a host charge a project for a VM that nobody has, and a tenant for a VM of another host.
func vmsOfALostHost(ctx context.Context, s *site) error {
	c, vm, err := s.charger(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	now := time.Now()
	of := api.Usage{Kind: api.UsageVM, User: "ann", Project: "people", Cores: 1, Start: now.Add(-time.Minute), End: now,
		Wall: 60}
	records := append(lies(of), of, of, of)
	for i, id := range []string{api.NewID(), "a-vm-that-nobody-has", vm} {
		u := &records[len(records)-1-i]
		u.ID, u.VM = api.NewID(), id
	}
	if err := c.brings(ctx, records...); err != nil {
		return err
	}
	hours, err := c.charged(ctx)
	if err != nil {
		return err
	}
	if hours > 0 {
		return breach("a host charges %.4g hours for VMs that it never had", hours)
	}
	return c.shows(ctx, "hostile", len(records))
}
