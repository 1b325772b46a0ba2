package libvirt

import (
	"context"
	"sync"
	"time"
)

// verdicts are what new machines run on. The verdict on KVM may come while machines are made, and be replaced by a
// better one.
type verdicts struct {
	mu      sync.Mutex
	known   chan struct{} // closed when there is a verdict
	verdict Verdict
	since   time.Time
	denied  string // why libvirt's QEMU cannot use a KVM that works; "": it can, or nobody knows yet
}

func newVerdicts(c Config) *verdicts {
	r := &verdicts{known: make(chan struct{})}
	if c.Accelerator != "" {
		r.verdict = Verdict{c.Accelerator, c.WhyTCG}
		close(r.known)
	}
	return r
}

// Use reports what new machines run on from now on. Where libvirt said before that it has no KVM, it is asked again: it
// may have been asked while the module was out, or before udev had opened the device for it.
func (l *Libvirt) Use(v Verdict) {
	r := l.accelerator
	r.mu.Lock()
	stale := r.denied != ""
	r.mu.Unlock()
	if stale && v.Accelerator == KVM {
		l.daemon.retireCurrent() // before anybody hears the verdict: who does makes a new connection
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict, r.since = v, time.Now()
	if !isClosed(r.known) {
		close(r.known)
	}
}

// Forget has new machines wait for the next verdict: what they would run on may have changed.
func (l *Libvirt) Forget() {
	r := l.accelerator
	r.mu.Lock()
	defer r.mu.Unlock()
	if isClosed(r.known) {
		r.verdict, r.known = Verdict{}, make(chan struct{})
	}
}

// Accelerator is what new machines run on; its zero value, that nobody knows yet.
func (l *Libvirt) Accelerator() Verdict { return l.accelerator.current() }

func (r *verdicts) current() Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verdict.Accelerator == KVM && r.denied != "" {
		return Verdict{TCG, r.denied}
	}
	return r.verdict
}

// retireCurrent has the next call make a connection that reads the host anew.
func (d *daemon) retireCurrent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.retire()
	}
}

// runsOn waits until it is known what a new machine runs on. The verdict comes first: it may ask for another
// connection.
func (l *Libvirt) runsOn(ctx context.Context) (*session, Verdict, error) {
	if _, err := l.accelerator.await(ctx); err != nil {
		return nil, Verdict{}, err
	}
	s, err := l.daemon.ready(ctx)
	if err != nil {
		return nil, Verdict{}, err
	}
	return s, l.Accelerator(), nil
}

// await waits for the first verdict.
func (r *verdicts) await(ctx context.Context) (Verdict, error) {
	r.mu.Lock()
	known := r.known
	r.mu.Unlock()
	select {
	case <-known:
		return r.current(), nil
	case <-ctx.Done():
		return Verdict{}, context.Cause(ctx)
	}
}

// sees notes whether libvirt's QEMU can use KVM. libvirt itself may say so and be wrong: it probes with more rights
// than QEMU runs with.
func (r *verdicts) sees(s *session) {
	denied := ""
	switch err := opens("/dev/kvm", s.owner[0], s.owner[1]); {
	case err != nil:
		denied = "QEMU's own user cannot open /dev/kvm; try: " + openKVM
	case !s.host.kvm:
		denied = "libvirt finds that QEMU does not work under KVM"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = denied
	if denied != "" && r.verdict.Accelerator == KVM && r.since.After(s.asked) {
		s.retire() // the verdict is newer than the answer
	}
}
