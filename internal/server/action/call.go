// Package action runs actions on the fleet, each in a transaction: who asks, whether they may, and what the audit log
// has of it.
package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/throttle"
)

// Actions runs actions, each in a transaction of its own.
type Actions struct {
	Store *store.Store
	Log   *slog.Logger
	Now   func() time.Time

	changes  *throttle.Buckets // of all kinds, by user
	refusals *throttle.Buckets // that leave an entry in the audit log, by caller
}

// changesAtOnce may be made by a user, and then one a second: each is a transaction of the one writer, an entry of the
// audit log, and one of the feed.
const changesAtOnce = 5000

// refusalsAtOnce of a caller leave an entry each, and then one a minute.
const refusalsAtOnce = 20

// New makes actions on a store.
func New(st *store.Store, log *slog.Logger, now func() time.Time) Actions {
	return Actions{Store: st, Log: log, Now: now,
		changes:  &throttle.Buckets{Size: changesAtOnce, Leak: time.Second, Now: now},
		refusals: &throttle.Buckets{Size: refusalsAtOnce, Leak: time.Minute, Now: now}}
}

// Call is one action in its transaction: who asks, and what for. It lives as long as the transaction.
type Call struct {
	*store.Tx
	Who    farm.Identity
	Now    time.Time
	action policy.Action
	Target policy.Target
	Grants []farm.Grant
	unseen error // the refusal as the audit log has it, where the caller is told less; nil: the caller is told all
}

// Outcomes of an entry.
const (
	Done   = "done"
	Denied = "denied"
	Failed = "failed"
)

// Change runs an action that writes. All that do writes is there together, with its entry in the audit log, or not at
// all; what is refused leaves an entry of its own. do may run twice. Error: farm.CodeTooManyChanges, without an entry,
// to a user who changes without end.
func (s Actions) Change(ctx context.Context, who farm.Identity, action policy.Action,
	do func(*Call) error) (revision int64, err error) {
	if err := s.Charge(who, 1); err != nil {
		return 0, err
	}
	var c *Call
	revision, err = s.Store.Update(ctx, func(t *store.Tx) error {
		if c, err = s.begin(t, who, action); err != nil {
			return err
		}
		return do(c)
	})
	if err != nil && c != nil {
		s.refused(ctx, c, cmp.Or(c.unseen, err))
	}
	return revision, err
}

// Charge counts changes of a user, and refuses them where the user has made too many. Root, hosts and the server itself
// make as many as they need.
func (s Actions) Charge(who farm.Identity, changes int) error {
	if changes <= 0 || who.Root || who.Host != "" || who.User == "" {
		return nil
	}
	if room, _ := s.changes.AddMany(who.User, changes); room {
		return nil
	}
	if room, more := s.refusals.Add("changes of " + who.User); room {
		s.Log.Warn("changes refused: the user makes too many", "user", who.User, "more", more)
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeTooManyChanges,
		Message: fmt.Sprintf("user %s has made %d changes, and may make one a second now", who.User, changesAtOnce),
		Hint:    "try again later; make several VMs by one request, with a count"}
}

// Look runs an action that reads, on one snapshot. Users read in turn.
func (s Actions) Look(ctx context.Context, who farm.Identity, action policy.Action, do func(*Call) error) error {
	read := func(t *store.Tx) error {
		c, err := s.begin(t, who, action)
		if err != nil {
			return err
		}
		return do(c)
	}
	if !who.Root && who.Host == "" {
		leave, err := s.Store.People.Enter(ctx, who.User)
		if err != nil {
			return err
		}
		defer leave()
	}
	return s.Store.View(ctx, read)
}

// ByItself runs a transaction of a loop: fenced, as the server's own doing.
func (s Actions) ByItself(ctx context.Context, epoch int64, action policy.Action, do func(*Call) error) error {
	_, err := s.Store.Update(ctx, func(t *store.Tx) error {
		if err := t.Fence(epoch); err != nil {
			return err
		}
		c, err := s.begin(t, Itself, action)
		if err != nil {
			return err
		}
		return do(c)
	})
	return err
}

func (s Actions) begin(t *store.Tx, who farm.Identity, action policy.Action) (*Call, error) {
	c := &Call{Tx: t, Who: who, Now: s.Now().UTC(), action: action}
	if who.User == "" || who.Root {
		return c, nil
	}
	var err error
	if !who.Claimed {
		c.Grants, err = t.Grants(who.User)
	}
	c.Grants = append(c.Grants, who.Grants...)
	return c, err
}

// May is nil where the caller may do the action to the target, which the audit log names from then on.
func (c *Call) May(target policy.Target) error {
	c.Target = target
	return policy.Allow(c.Who, c.Grants, c.action, target).Err()
}

// Allowed reports whether the caller may do an action to a target.
func (c *Call) Allowed(a policy.Action, t policy.Target) bool {
	return policy.Allow(c.Who, c.Grants, a, t).Allowed
}

// Sees reports whether the caller may read a VM.
func (c *Call) Sees(vm farm.VM) bool {
	return c.Allowed(policy.ReadVM, VMTarget(vm))
}

// SeesHost reports whether the caller may read a host.
func (c *Call) SeesHost(h farm.Host) bool { return c.Allowed(policy.ReadHost, HostTarget(h)) }

// Did enters what was done. Of several targets, each has an entry.
func (c *Call) Did(reason string) error {
	return c.Audit(Entry(c.Who, c.Now, c.action, c.Target, Done, reason))
}

// Caller is under which name a caller's idempotency keys are kept.
func (c *Call) Caller() string { return Entry(c.Who, c.Now, "", policy.Target{}, "", "").Who }

// refused records what was not done, and why: of each caller some refusals, and then one a minute, which says how many
// there were. Reads leave no entry, and neither does a caller who went away.
func (s Actions) refused(ctx context.Context, c *Call, err error) {
	e, ok := errors.AsType[*farm.Error](err)
	if !ok || !c.action.Changes() {
		return
	}
	room, more := s.refusals.Add(c.Caller())
	if !room {
		return
	}
	outcome := Failed
	if e.Kind == farm.Denied {
		outcome = Denied
	}
	line := Entry(c.Who, c.Now, c.action, c.Target, outcome, string(e.Code)+": "+e.Message)
	if more > 0 {
		line.Reason += fmt.Sprintf("; and %d refusals before, which are not recorded", more)
	}
	if _, err := s.Store.Update(ctx, func(t *store.Tx) error { return t.Audit(line) }); err != nil {
		s.Log.Error("a refusal could not be recorded", "action", c.action, "target", c.Target.String(), "who",
			line.Who, "error", err)
	}
}

// Bounds of what one entry says, in bytes. Whoever is refused has chosen the target's name.
const (
	maxReason = 1000
	maxTarget = 300
)

// shown is a text of a caller as an entry has it.
func shown(text string, most int) string { return farm.Printable(text[:min(len(text), most)]) }

// Entry is a line of the audit log.
func Entry(who farm.Identity, now time.Time, action policy.Action, target policy.Target, outcome,
	reason string) farm.Entry {
	return farm.Entry{Time: now, Who: cmp.Or(who.User, who.Host, Root), Means: who.Means, Source: who.Source,
		Action: string(action), Target: shown(target.String(), maxTarget), Project: shown(target.Project, maxTarget),
		Outcome: outcome, Reason: shown(reason, maxReason)}
}

// Itself is the server as the one who acts: by a date that came, a drain, an operator's fence.
var Itself = farm.Identity{User: "grange", Means: "server", Root: true}

// VMTarget is a VM as policy sees it.
func VMTarget(vm farm.VM) policy.Target {
	return policy.Target{Project: vm.Project, Cell: vm.Cell, Owner: vm.Owner, Name: Label(vm)}
}

// HostTarget is a host as policy sees it.
func HostTarget(h farm.Host) policy.Target { return policy.Target{Cell: h.Cell, Name: h.Name} }

// CellTarget is a cell as policy sees it.
func CellTarget(name string) policy.Target { return policy.Target{Cell: name} }

// Label is how people call a VM.
func Label(vm farm.VM) string { return vm.Project + "/" + vm.Name }

// When returns a time as people are told it.
func When(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.UTC().Format(time.RFC3339)
}
