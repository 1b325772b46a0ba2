package hostlink

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/wire"
)

const (
	// otherBoot is how long after an agent was heard of another one, after another boot of what says it is the same
	// host, is refused.
	otherBoot = time.Minute
	// maxSuperseded bounds what is kept of agents that others took over from.
	maxSuperseded = 8
	// ClockWarning is how far a host's clock may be off before people are told.
	ClockWarning = 30 * time.Second
	// ahead is how far an agent's capability may be above the server's: in an upgrade in the wrong order.
	ahead = 2
	// MaxReported bounds the VMs of one report: more than any host can run.
	MaxReported = 4096
	// cpuTimeStep is how much CPU time of a VM is worth writing down when nothing else changed.
	cpuTimeStep = time.Minute
)

// CodeReportLong is of a host that reports more VMs than it can have.
const CodeReportLong farm.Code = "report-too-long"

// CheckCapability refuses an agent that this release does not understand, or that may not understand it. 0 is one that
// does not say.
func CheckCapability(capability int) error {
	switch {
	case capability < fleet.OldestCapability:
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeAgentOld,
			Message: fmt.Sprintf("the agent's capability is %d, and this server works with those from %d to %d",
				capability, fleet.OldestCapability, fleet.Capability+ahead),
			Hint: "update grange on the host; its VMs go on meanwhile"}
	case capability > fleet.Capability+ahead:
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeAgentNew,
			Message: fmt.Sprintf("the agent's capability is %d, and this server works with those from %d to %d",
				capability, fleet.OldestCapability, fleet.Capability+ahead),
			Hint: "update the server first: servers before hosts; the host's VMs go on meanwhile"}
	}
	return nil
}

// Admit is CheckCapability for an agent that speaks for a host. What it refuses people are told with the host, and in
// the log once.
func (s *Links) Admit(host string, capability int) error {
	err := CheckCapability(capability)
	if refused, ok := errors.AsType[*farm.Error](err); ok {
		l := s.link(host)
		l.mu.Lock()
		defer l.mu.Unlock()
		if before := l.pulse.refuse(refused); before == nil || before.Message != refused.Message {
			s.Log.Warn("agent refused", "host", l.name, "code", refused.Code, "reason", refused.Message, "try",
				refused.Hint)
		}
	}
	return err
}

// Report takes over what a host says.
func (s *Links) Report(ctx context.Context, who farm.Identity, r fleet.Report) (fleet.ReportAnswer, error) {
	wire.Bound(&r)
	l := s.link(who.Host)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := s.Now()
	if err := s.speaks(l, r, now); err != nil {
		return fleet.ReportAnswer{}, err
	}
	if r.Facts != nil {
		if err := s.takeFacts(ctx, l, *r.Facts, now); err != nil {
			return fleet.ReportAnswer{}, err
		}
	}
	if r.Whole || len(r.VMs) > 0 {
		if err := s.takeVMs(ctx, l, r); err != nil {
			return fleet.ReportAnswer{}, err
		}
	}
	l.pulse.beat(now, l.clock)
	l.pulse.refuse(nil)
	a := fleet.ReportAnswer{Next: s.pace().Seconds(), Spread: s.spread().Seconds()}
	if l.clock.Abs() >= ClockWarning {
		a.Clock = l.clock.Seconds()
	}
	return a, s.rotates(ctx, l, who.Source, &a)
}

// speaks decides whether this agent is the one that speaks for the host. A newer agent of the same boot takes over at
// once, as after a restart; one of another boot only when the first was not heard of for a while: the host may have
// been cloned with its certificate. The link is locked.
func (s *Links) speaks(l *link, r fleet.Report, now time.Time) error {
	switch {
	case r.Instance == l.instance && l.instance != "":
		return nil
	case slices.Contains(l.superseded, r.Instance):
		return anotherAgent(l, "a newer agent took over from this one")
	case r.Facts == nil:
		return reportFirst()
	case l.instance != "" && r.Facts.Boot != l.boot && now.Sub(l.pulse.last()) < otherBoot:
		return anotherAgent(l, fmt.Sprintf("another agent, of another boot, spoke for it %v ago",
			now.Sub(l.pulse.last()).Round(time.Second)))
	}
	if l.instance != "" {
		s.Log.Info("agent takes over", "host", l.name, "instance", r.Instance, "before", l.instance, "boot",
			r.Facts.Boot)
		l.superseded = append(l.superseded[max(0, len(l.superseded)-maxSuperseded+1):], l.instance)
	}
	l.instance, l.boot, l.sent, l.elsewhere = r.Instance, r.Facts.Boot, 0, nil
	return nil
}

func anotherAgent(l *link, why string) error {
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeOtherAgent,
		Message: "this agent may not speak for host " + l.name + ": " + why,
		Hint: "run one agent on a host; if this machine is a clone of it, remove its identity and let it join under " +
			"its own name"}
}

func reportFirst() error {
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeReportFirst,
		Message: "this server has no report of this agent yet", Hint: "agents report first; this one will"}
}

// takeFacts writes what a host says of itself, where that is new. The link is locked.
func (s *Links) takeFacts(ctx context.Context, l *link, v fleet.Facts, now time.Time) error {
	if err := CheckCapability(v.Capability); err != nil {
		return err
	}
	clock := v.Now.Sub(now)
	if clock.Abs() >= ClockWarning && l.clock.Abs() < ClockWarning {
		s.Log.Warn("a host's clock is off", "host", l.name, "ahead", clock.Round(time.Second))
	}
	l.clock = clock
	l.trusts = trustedBy(v.Trusts)
	v.Now = time.Time{}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if sum == l.facts {
		return nil
	}
	facts, err := wire.ParseFacts(v)
	if err != nil {
		return err
	}
	if !s.sameFacts(ctx, l.id, text) {
		_, err := s.Store.Update(ctx, func(t *store.Tx) error { return writeFacts(t, l.id, facts, now) })
		if err != nil {
			return err
		}
	}
	l.facts = sum
	return nil
}

// sameFacts reports whether the store has these facts already, as after a start of this server.
func (s *Links) sameFacts(ctx context.Context, id string, text []byte) bool {
	var h farm.Host
	err := s.Store.View(ctx, func(t *store.Tx) (err error) {
		h, err = t.Host(id)
		return err
	})
	if err != nil {
		return false
	}
	kept, err := json.Marshal(wire.Facts(h.Facts, time.Time{}))
	return err == nil && bytes.Equal(kept, text)
}

// takeVMs writes what changed of a host's VMs. Most reports say nothing new: the store is only written to when they do.
// The link is locked.
func (s *Links) takeVMs(ctx context.Context, l *link, r fleet.Report) error {
	if len(r.VMs) > MaxReported {
		return &farm.Error{Kind: farm.Invalid, Code: CodeReportLong,
			Message: fmt.Sprintf("a report of %d VMs; a host has %d at most", len(r.VMs), MaxReported),
			Hint:    "look what the host's agent takes for its VMs: `grange vm list` there"}
	}
	seen := make(map[string]farm.Observed, len(r.VMs))
	for _, v := range r.VMs {
		o, err := wire.ParseObserved(v)
		if err != nil {
			return err
		}
		seen[v.ID] = o
	}
	var n news
	err := s.Store.View(ctx, func(t *store.Tx) (err error) {
		n, err = s.newsOf(t, l.id, seen, r)
		return err
	})
	if err != nil {
		return err
	}
	l.elsewhere = merged(l.elsewhere, n.elsewhere, seen, r.Whole)
	if len(n.elsewhere) > 0 {
		l.sent = 0 // the wanted list is another one for them
	}
	if !n.any() {
		return nil
	}
	_, err = s.Store.Update(ctx, func(t *store.Tx) error {
		n, err := s.newsOf(t, l.id, seen, r)
		if err != nil {
			return err
		}
		return s.write(t, l, n)
	})
	return err
}

// merged is what is known after a report: a whole one says all, another one only of those that it names.
func merged(old, now []string, seen map[string]farm.Observed, whole bool) []string {
	if whole {
		return now
	}
	kept := slices.DeleteFunc(slices.Clone(old), func(id string) bool { _, named := seen[id]; return named })
	return append(kept, now...)
}

// news is what a report says that the store does not have.
type news struct {
	changed   map[string]farm.Observed
	gone      []farm.VM // nothing of them is left, as people wanted
	elsewhere []string  // IDs of VMs that have their place on another host
	orphans   []farm.Orphan
	left      []farm.Orphan // that it has no more, or that are none any more
	moves     []farm.Move   // as they are now
	arrived   []arrival     // VMs that have gone to other hosts
}

func (n news) any() bool {
	return len(n.changed)+len(n.gone)+len(n.orphans)+len(n.left)+len(n.moves)+len(n.arrived) > 0
}

func (s *Links) newsOf(t *store.Tx, host string, seen map[string]farm.Observed, r fleet.Report) (news, error) {
	n := news{changed: map[string]farm.Observed{}}
	here, err := t.VMs(store.VMFilter{Host: host})
	if err != nil {
		return n, err
	}
	moves, err := activeMoves(t)
	if err != nil {
		return n, err
	}
	sides := make(map[string]*farm.MoveSide)
	for _, v := range r.VMs {
		if v.Move != nil {
			sides[v.ID] = wire.ParseMoveSide(v.Move)
		}
	}
	known := make(map[string]bool, len(here))
	for _, vm := range here {
		known[vm.ID] = true
		o, named := seen[vm.ID]
		if !named {
			if !r.Whole || vm.Revision > r.Wanted { // the host looked before it was told
				continue
			}
			o = absent(vm, s.Now().UTC())
		}
		side := sides[vm.ID]
		if side != nil && side.Phase == fleet.MoveGone {
			n.arrived = append(n.arrived, arrival{vm, *side})
			continue
		}
		if m := takeMove(moves[vm.ID], host, o, side, s.Now().UTC()); m != nil {
			n.moves = append(n.moves, *m)
		}
		switch {
		case o.State == farm.VMGone && vm.Wanted.Power == farm.PowerDeleted:
			vm.Observed.CPUTime = max(vm.Observed.CPUTime, o.CPUTime)
			n.gone = append(n.gone, vm)
		case vm.Observed.Disowned:
		case o.State != "" && tells(vm.Observed, o, r.Whole):
			n.changed[vm.ID] = o
		}
	}
	var others, strange []string
	for id, o := range seen {
		if m := moves[id]; m.To == host && !known[id] {
			if m := takeMove(m, host, o, sides[id], s.Now().UTC()); m != nil {
				n.moves = append(n.moves, *m)
			}
			continue
		}
		if !known[id] && o.State != farm.VMGone {
			others = append(others, id)
		}
	}
	places, err := t.VMHosts(others)
	if err != nil {
		return n, err
	}
	for _, id := range others {
		switch place, is := places[id]; {
		case !is:
			strange = append(strange, id)
		case sides[id] != nil && sides[id].Phase == fleet.MoveCome && sides[id].Host == place && place != "":
			// It came from where the store has it: the store is older than that move, and its source will say so.
		case place != "":
			n.elsewhere = append(n.elsewhere, id)
		}
	}
	slices.Sort(n.elsewhere)
	return n, n.meet(t, host, strange, seen, r)
}

// arrival is a VM that has gone to another host, as its source reports.
type arrival struct {
	vm   farm.VM
	side farm.MoveSide
}

// activeMoves are the moves under way, by VM.
func activeMoves(t *store.Tx) (map[string]farm.Move, error) {
	all, err := t.ActiveMoves()
	by := make(map[string]farm.Move, len(all))
	for _, m := range all {
		by[m.VM] = m
	}
	return by, err
}

// absent is what it means that a host which has the list with a VM in it says that it has nothing of that VM. One that
// it had reported is lost: the host proves it by its own word, as after it was installed anew. The zero value says
// nothing yet.
func absent(vm farm.VM, now time.Time) farm.Observed {
	o := vm.Observed
	switch {
	case vm.Wanted.Power == farm.PowerDeleted:
		return farm.Observed{State: farm.VMGone, Since: now}
	case o.State == "", o.State == farm.VMGone, o.State == farm.VMFailed, o.State == farm.VMLost:
		return farm.Observed{}
	}
	o.State, o.Reason, o.Since, o.Ready = farm.VMLost, "its host says that it has nothing of it any more", now, false
	return o
}

// reports whether an observation is worth a change of the feed. CPU time alone is, in the regular reports, once in a
// while.
func tells(old, now farm.Observed, whole bool) bool {
	if whole && now.CPUTime-old.CPUTime >= cpuTimeStep {
		return true
	}
	return old.State != now.State || old.Reason != now.Reason || old.Boots != now.Boots || old.Builds != now.Builds ||
		old.Ready != now.Ready || old.Digest != now.Digest || !old.Since.Equal(now.Since) ||
		cmp.Compare(len(old.Plan.VCPUs), len(now.Plan.VCPUs)) != 0 || !samePlan(old.Plan, now.Plan)
}

func samePlan(a, b farm.Plan) bool {
	x, err := json.Marshal(wire.Plan(a))
	y, other := json.Marshal(wire.Plan(b))
	return err == nil && other == nil && bytes.Equal(x, y)
}

func (s *Links) write(t *store.Tx, l *link, n news) error {
	for id, o := range n.changed {
		if err := t.SetVMObserved(id, o); err != nil {
			return err
		}
	}
	for _, m := range n.moves {
		if err := s.putMove(t, m); err != nil {
			return err
		}
	}
	for _, a := range n.arrived {
		if err := s.arrived(t, a.vm, a.side); err != nil {
			return err
		}
	}
	for _, vm := range n.gone {
		if err := s.EndVM(t, vm, "nothing of it is left on host "+l.name); err != nil {
			return err
		}
	}
	for _, v := range n.orphans {
		if err := t.PutOrphan(v); err != nil {
			return err
		}
	}
	for _, v := range n.left {
		if err := t.DeleteOrphan(v.Host, v.VM); err != nil {
			return err
		}
	}
	return nil
}
