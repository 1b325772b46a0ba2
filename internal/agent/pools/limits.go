package pools

import (
	"context"
	"fmt"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sleep"
)

// Session is a VM of a pool while its command runs, as limits are held against it.
type Session struct {
	Pool   string
	Pools  func() []config.Pool          // of the configuration as it is now
	Began  time.Time                     // the VM, on the clock that nobody sets: see time.Time
	Used   func() (time.Duration, error) // CPU time of its QEMU
	Active func() time.Time              // when its user did something last, as Began; zero: never, as far as is known
	Warn   func(code, text string)       // is told before the end, and at it
	End    func(error)                   // ends it
}

// busy is the part of one CPU that the VM of an idle user takes at most: an idle guest takes a hundredth, more under
// emulation.
const busy = 0.1

// grace is what a command has to end in its own way when a limit is reached.
const grace = 10 * time.Second

// Follow ends the VM when a limit of its pool is reached, with a word before. It ends with ctx. A user who types, or
// uses a published port, is not idle, and neither is one whose VM computes. What was before an agent's start is not
// known: there the time without use begins anew. The time in all does not.
func (s Session) Follow(ctx context.Context) {
	watch := watch{session: s, active: time.Now()}
	watch.used, _ = s.Used()
	watch.looked = watch.active
	for ctx.Err() == nil {
		p, _ := find(s.Pools(), s.Pool) // of one that was taken out there is no limit any more
		if sleep.For(ctx, interval(p)) != nil {
			return
		}
		watch.look()
		d := nearest(p, s.Began, watch.active, time.Now())
		switch {
		case d.limit == 0:
		case d.left <= 0:
			s.Warn(api.CodePoolEnds, d.text()+": it ends now")
			if sleep.For(ctx, grace) == nil {
				s.End(d.err())
			}
			return
		case d.left > warnBefore(d.limit):
			watch.warned = ""
		case watch.warned != d.code:
			watch.warned = d.code
			s.Warn(api.CodePoolWarning, fmt.Sprintf("%s: it ends in %v", d.soon(), d.left.Round(time.Second)))
		}
	}
}

// watch is what is known of a VM's use.
type watch struct {
	session Session
	active  time.Time // last
	looked  time.Time
	used    time.Duration // CPU time, when looked
	warned  farm.Code     // of which limit
}

// look finds out whether the VM was used since the last look.
func (w *watch) look() {
	now := time.Now()
	if at := w.session.Active(); at.After(w.active) {
		w.active = at
	}
	used, err := w.session.Used()
	if err != nil {
		return
	}
	if passed := now.Sub(w.looked); passed > 0 && float64(used-w.used) > busy*float64(passed) {
		w.active = now
	}
	w.used, w.looked = used, now
}

// due is a limit, and how long it lasts yet.
type due struct {
	pool        string
	code        farm.Code
	limit, left time.Duration
}

// nearest is the limit that is reached first; the zero value: there is none.
func nearest(p config.Pool, began, active, now time.Time) due {
	var d due
	if p.Total > 0 {
		d = due{p.Name, CodePoolTime, p.Total, began.Add(p.Total).Sub(now)}
	}
	if left := active.Add(p.Idle).Sub(now); p.Idle > 0 && (d.limit == 0 || left < d.left) {
		d = due{p.Name, CodePoolIdle, p.Idle, left}
	}
	return d
}

func (d due) text() string {
	if d.code == CodePoolIdle {
		return fmt.Sprintf("this VM of pool %q was not used for %v", d.pool, d.limit)
	}
	return fmt.Sprintf("this VM of pool %q has lasted %v, which is all that the pool gives", d.pool, d.limit)
}

// soon is text before its time.
func (d due) soon() string {
	if d.code == CodePoolIdle {
		return fmt.Sprintf("this VM of pool %q is not used; type something to keep it", d.pool)
	}
	return fmt.Sprintf("this VM of pool %q lasts %v", d.pool, d.limit)
}

func (d due) err() error {
	return &farm.Error{Kind: farm.Conflict, Code: d.code, Message: d.text() + "; it was ended",
		Hint: "`grange pool show " + d.pool + "` shows the limits; start anew with `grange shell`"}
}

// warnBefore is how long before a limit its user is warned: five minutes, or a fifth of a short one.
func warnBefore(limit time.Duration) time.Duration { return min(5*time.Minute, limit/5) }

// interval is how often to look: often enough for a warning to come in time.
func interval(p config.Pool) time.Duration {
	d := 30 * time.Second
	for _, limit := range []time.Duration{p.Idle, p.Total} {
		if limit > 0 {
			d = min(d, limit/10)
		}
	}
	return d
}
