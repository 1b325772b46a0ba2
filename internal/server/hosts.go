package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// Hosts are actions on hosts.
type Hosts struct{ server *Server }

// List returns those that the filter chooses and the caller may see, by name.
func (hs Hosts) List(ctx context.Context, who farm.Identity, f HostFilter) (views []HostView, err error) {
	err = hs.server.look(ctx, who, policy.ReadHost, func(c *call) error {
		if err := checkPatterns(f.Patterns); err != nil {
			return err
		}
		hosts, err := c.listed(f)
		if err != nil {
			return err
		}
		views, err = c.showHosts(hosts, f.State)
		return err
	})
	return views, err
}

// listed are the hosts of a list, without their facts: no filter asks for those, and so a page costs what is on it.
// Where few of those that are read are chosen, ever more are read at a time.
func (c *call) listed(f HostFilter) (hosts []farm.Host, err error) {
	size := mostPage
	if f.Limit > 0 {
		size = min(f.Limit, mostPage)
	}
	for after := f.After; ; size = min(2*size, mostPage) {
		some, err := c.HostsBriefAfter(f.Cell, after, size)
		if err != nil {
			return nil, err
		}
		for _, h := range some {
			listed, err := c.lists(f, h)
			if err != nil {
				return nil, err
			}
			if !listed {
				continue
			}
			if hosts = append(hosts, h); len(hosts) == f.Limit {
				return hosts, nil
			}
		}
		if len(some) < size {
			return hosts, nil
		}
		after = some[size-1].Name
	}
}

// lists reports whether a host is in a list.
func (c *call) lists(f HostFilter, h farm.Host) (bool, error) {
	if len(f.Patterns) > 0 && !matches(f.Patterns, h) || c.May(action.HostTarget(h)) != nil {
		return false, nil
	}
	if f.State == "" {
		return true, nil
	}
	cell, err := c.in(h.Cell)
	return c.s.stateOf(h, cell) == f.State, err
}

// showHosts are hosts that were read without their facts as people see them. They are in the state by which they were
// chosen, unless that is "": it might be another by now.
func (c *views) showHosts(hosts []farm.Host, state HostState) (views []HostView, err error) {
	if err := c.seeHosts(hosts); err != nil {
		return nil, err
	}
	used, err := c.UsedHosts(hosts)
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		v, err := c.showHost(h, used[h.ID])
		if err != nil {
			return nil, err
		}
		v.State = cmp.Or(state, v.State)
		views = append(views, v)
	}
	return views, nil
}

// seeHosts reads what showHost needs of many hosts: their facts, and their orphans.
func (c *views) seeHosts(hosts []farm.Host) error {
	if err := c.AddFacts(hosts); err != nil {
		return err
	}
	return c.seeOrphans(hosts)
}

// Get returns one host.
func (hs Hosts) Get(ctx context.Context, who farm.Identity, ref string) (view HostView, err error) {
	err = hs.server.look(ctx, who, policy.ReadHost, func(c *call) error {
		h, err := c.FindHost(ref)
		if err != nil {
			return err
		}
		view, err = c.showOne(h)
		return err
	})
	return view, err
}

// showOne is showHost for a host that was looked up by itself.
func (c *views) showOne(h farm.Host) (HostView, error) {
	vms, err := c.Tx.VMs(store.VMFilter{Host: h.ID})
	if err != nil {
		return HostView{}, err
	}
	var used farm.Quota
	for _, vm := range vms {
		used.VMs++
		used.CPUs += vm.Shape.CPUs
		used.Memory += vm.Shape.Memory
		used.Scratch += vm.Shape.DiskSpace()
	}
	return c.showHost(h, used)
}

// showHost is a host as people see it; used is what cloud VMs hold there.
func (c *views) showHost(h farm.Host, used farm.Quota) (HostView, error) {
	cell, err := c.in(h.Cell)
	if err != nil {
		return HostView{}, err
	}
	v := HostView{Host: h, State: c.s.stateOf(h, cell), VMs: used.VMs}
	v.Seen = c.s.Links.Seen(h)
	v.CPUs = h.Facts.Topology.Online.Len()
	for _, n := range h.Facts.Topology.Nodes {
		v.Memory += n.Memory
	}
	cpus, memory := used.CPUs+h.Facts.Reserve.CPUs.Len(), used.Memory+h.Facts.Reserve.Memory
	for _, p := range h.Facts.Taken {
		cpus += p.Held().Len()
		memory += p.Memory()
	}
	v.FreeCPUs = max(v.CPUs-cpus, 0)
	if v.Memory > memory {
		v.FreeMemory = v.Memory - memory
	}
	if v.Orphans, err = c.orphansOf(h.ID); err != nil {
		return v, err
	}
	v.Warnings = c.warnings(v)
	if drain, _ := h.DrainIn(cell); drain.Active() || h.Closed || cell.Closed {
		return v, c.brokerOf(&v, cell)
	}
	return v, nil
}

// stateOf is what a host is to new VMs.
func (s *Server) stateOf(h farm.Host, cell farm.Cell) HostState {
	drain, _ := h.DrainIn(cell)
	switch {
	case !h.Fenced.IsZero():
		return HostFenced
	case s.Links.Silent(h):
		return HostSilent
	case drain.Active():
		return HostDraining
	case h.Closed, cell.Closed:
		return HostClosed
	}
	return HostOpen
}

// closed is why no new VM goes to a host, in a word; "": it is open.
func (s *Server) closed(h farm.Host, cell farm.Cell) string {
	if state := s.stateOf(h, cell); state != HostOpen {
		return string(state)
	}
	return ""
}

func (c *views) warnings(h HostView) []string {
	var w []string
	if refused := c.s.Links.Unheard(h.ID); refused != nil {
		w = append(w, fmt.Sprintf("its agent is refused: %s; %s [%s]", refused.Message, refused.Hint, refused.Code))
	}
	if h.Clock.Abs() >= hostlink.ClockWarning {
		w = append(w, "its clock is "+hostlink.Ahead(h.Clock)+" the server's")
	}
	if n := len(h.Orphans); n > 0 {
		w = append(w, fmt.Sprintf("it has %s that the server does not know, as %s", farm.Count(n, "VM"),
			cmp.Or(h.Orphans[0].Name, h.Orphans[0].VM)))
	}
	for _, short := range h.Facts.Short {
		w = append(w, "no more VMs: "+short)
	}
	if c.s.Links.Silent(h.Host) && !h.Seen.IsZero() {
		w = append(w, "silent since "+action.When(h.Seen))
	}
	return w
}

func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
				Message: fmt.Sprintf("invalid host pattern %.80q", p),
				Hint:    "write a name, an ID, a pattern as node-*, or cell:NAME"}
		}
	}
	return nil
}

// matches reports whether a host is one of those that the patterns name: by name, by ID, or by "cell:NAME".
func matches(patterns []string, h farm.Host) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if cell, ok := strings.CutPrefix(p, "cell:"); ok {
			named, err := path.Match(cell, h.Cell)
			return named && err == nil
		}
		named, err := path.Match(p, h.Name)
		return named && err == nil || p == h.ID
	})
}

// Close keeps new VMs off hosts.
func (hs Hosts) Close(ctx context.Context, who farm.Identity, patterns []string,
	reason string) ([]HostView, error) {
	return hs.alter(ctx, who, policy.CloseHost, patterns, func(_ *call, h *farm.Host) (string, error) {
		h.Closed, h.Reason = true, reason
		return reason, checkReason(reason)
	})
}

// Open ends drains, closings and fences.
func (hs Hosts) Open(ctx context.Context, who farm.Identity, patterns []string) ([]HostView, error) {
	return hs.alter(ctx, who, policy.OpenHost, patterns, func(_ *call, h *farm.Host) (string, error) {
		h.Closed, h.Reason, h.Drain, h.Fenced = false, "", farm.Drain{}, time.Time{}
		return "", nil
	})
}

// Drain keeps new VMs off hosts and, at the deadline, stops those that are left. Draining again changes deadline
// and reason.
func (hs Hosts) Drain(ctx context.Context, who farm.Identity, patterns []string,
	d DrainOrder) ([]HostView, error) {
	return hs.alter(ctx, who, policy.DrainHost, patterns, func(c *call, h *farm.Host) (string, error) {
		var err error
		h.Drain, err = c.drain(h.Drain, d)
		return d.said(), err
	})
}

// drain is the drain that an order makes of the one there is.
func (c *call) drain(was farm.Drain, d DrainOrder) (farm.Drain, error) {
	if !was.Active() {
		was = farm.Drain{Since: c.Now}
	}
	was.Deadline, was.Reason, was.By = d.Deadline, d.Reason, c.Caller()
	return was, checkReason(d.Reason)
}

func (d DrainOrder) said() string {
	return strings.TrimSuffix("deadline "+action.When(d.Deadline)+", "+d.Reason, ", ")
}

// mostReason bounds what people say of a closing or a drain, in bytes: hosts and batch systems show it.
const mostReason = 200

func checkReason(reason string) error {
	if len(reason) > mostReason || reason != farm.Printable(reason) {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage, Message: "the reason is not a line of text",
			Hint: fmt.Sprintf("write up to %d printable bytes", mostReason)}
	}
	return nil
}

// Label changes labels.
func (hs Hosts) Label(ctx context.Context, who farm.Identity, patterns []string,
	l LabelOrder) ([]HostView, error) {
	return hs.alter(ctx, who, policy.LabelHost, patterns, l.apply)
}

// LabelOne changes labels of the host of a name or ID: a pattern is neither.
func (hs Hosts) LabelOne(ctx context.Context, who farm.Identity, ref string, l LabelOrder) (HostView, error) {
	one := func(c *call) ([]farm.Host, error) {
		h, err := c.FindHost(ref)
		return []farm.Host{h}, err
	}
	views, err := hs.alterChosen(ctx, who, policy.LabelHost, one, l.apply)
	if err != nil {
		return HostView{}, err
	}
	return views[0], nil
}

func (l LabelOrder) apply(c *call, h *farm.Host) (string, error) {
	if err := errors.Join(checkTags(l.Set), c.StillHost(*h, l.IfRevision)); err != nil {
		return "", err
	}
	labels := map[string]string{}
	maps.Copy(labels, h.Labels)
	for _, k := range l.Remove {
		delete(labels, k)
	}
	maps.Copy(labels, l.Set)
	said := fmt.Sprintf("%v → %v", h.Labels, labels)
	h.Labels = labels
	return said, checkTags(labels)
}

// alter runs an action that changes hosts, all that the patterns name or none. do changes the row and says what
// changed.
func (hs Hosts) alter(ctx context.Context, who farm.Identity, a policy.Action, patterns []string,
	do func(*call, *farm.Host) (string, error)) (views []HostView, err error) {
	return hs.alterChosen(ctx, who, a, func(c *call) ([]farm.Host, error) { return c.hostsOf(patterns) }, do)
}

// alterChosen is alterHosts for hosts that are chosen otherwise.
func (hs Hosts) alterChosen(ctx context.Context, who farm.Identity, a policy.Action,
	choose func(*call) ([]farm.Host, error), do func(*call, *farm.Host) (string, error)) ([]HostView, error) {
	var hosts []farm.Host
	revision, err := hs.server.change(ctx, who, a, func(c *call) (err error) {
		if hosts, err = choose(c); err != nil {
			return err
		}
		for i := range hosts {
			if err := c.alter(&hosts[i], do); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return hs.altered(ctx, who, a, hosts, revision)
}

// alter is alterHosts for one.
func (c *call) alter(h *farm.Host, do func(*call, *farm.Host) (string, error)) error {
	if err := c.May(action.HostTarget(*h)); err != nil {
		return err
	}
	said, err := do(c, h)
	if err != nil {
		return err
	}
	if err := c.Did(said); err != nil {
		return err
	}
	return c.SetHost(*h)
}

// altered are hosts as a write left them, for its answer. All else of them is looked up after it: others may write
// meanwhile.
func (hs Hosts) altered(ctx context.Context, who farm.Identity, a policy.Action, hosts []farm.Host,
	revision int64) (views []HostView, err error) {
	err = hs.server.look(ctx, who, a, func(c *call) error {
		views = nil
		if err := c.seeHosts(hosts); err != nil {
			return err
		}
		for _, h := range hosts {
			v, err := c.showOne(h)
			if err != nil {
				return err
			}
			v.Revision = revision
			views = append(views, v)
		}
		return nil
	})
	if e, ok := errors.AsType[*farm.Error](err); ok {
		done := *e
		done.Message = "the hosts were changed, but not looked up again: " + e.Message
		return nil, &done
	}
	return views, err
}

// hostsOf are the hosts that patterns name, at least one, without their facts. Hosts that the caller may not see are
// left out, as if they were not there.
func (c *call) hostsOf(patterns []string) ([]farm.Host, error) {
	c.Target = policy.Target{Name: farm.Printable(fmt.Sprintf("%.200s", strings.Join(patterns, " ")))}
	if err := checkPatterns(patterns); err != nil {
		return nil, err
	}
	hosts, err := c.chosen(patterns)
	if err != nil {
		return nil, err
	}
	hosts = slices.DeleteFunc(hosts, func(h farm.Host) bool { return !c.SeesHost(h) })
	if len(hosts) == 0 {
		if err := c.May(c.Target); err != nil {
			return nil, err
		}
		return nil, action.NoHost(strings.Join(patterns, " "))
	}
	return hosts, nil
}

// chosen are the hosts that patterns name, if any. All are looked through only for what is no plain name or ID.
func (c *call) chosen(patterns []string) ([]farm.Host, error) {
	if !slices.ContainsFunc(patterns, isPattern) {
		return c.HostsCalled(patterns)
	}
	all, err := c.HostsBrief("")
	return slices.DeleteFunc(all, func(h farm.Host) bool { return !matches(patterns, h) }), err
}

// isPattern reports whether matches takes a text for more than a name or an ID.
func isPattern(text string) bool {
	return strings.HasPrefix(text, "cell:") || strings.ContainsAny(text, `*?[\`)
}

// Forget removes a host that has no VMs; its certificate counts no more.
func (hs Hosts) Forget(ctx context.Context, who farm.Identity, ref string, ifRevision int64) error {
	_, err := hs.server.change(ctx, who, policy.ForgetHost, func(c *call) error {
		h, err := c.FindHost(ref)
		if err != nil {
			return err
		}
		if err := c.StillHost(h, ifRevision); err != nil {
			return err
		}
		vms, err := c.Tx.VMs(store.VMFilter{Host: h.ID, Limit: 1})
		if err != nil {
			return err
		}
		if len(vms) > 0 {
			return &farm.Error{Kind: farm.Conflict, Code: CodeHostHasVMs,
				Message: fmt.Sprintf("host %s has VMs, as %s", h.Name, action.Label(vms[0])),
				Hint:    "drain it and delete them, or fence it when it is gone for good"}
		}
		moves, err := c.ActiveMoves()
		if err != nil {
			return err
		}
		for _, m := range moves {
			if m.To == h.ID {
				return &farm.Error{Kind: farm.Conflict, Code: CodeHostHasVMs,
					Message: fmt.Sprintf("a VM is on its way to host %s", h.Name),
					Hint:    "cancel that: `grange vm move --cancel`"}
			}
		}
		orphans, err := c.Orphans(h.ID)
		if err != nil {
			return err
		}
		for _, v := range orphans {
			if err := c.DeleteOrphan(v.Host, v.VM); err != nil {
				return err
			}
		}
		if err := c.DeleteHost(h.ID); err != nil {
			return err
		}
		return c.Did("ID " + h.ID)
	})
	return err
}
