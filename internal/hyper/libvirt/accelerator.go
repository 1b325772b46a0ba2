package libvirt

import (
	"context"
	"sync"
)

// verdicts are what new machines run on. The verdict on KVM may come while machines are made, and be replaced by a better one.
type verdicts struct {
	mu      sync.Mutex
	known   chan struct{} // closed when there is a verdict
	verdict Verdict
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

// Use says what new machines run on from now on.
func (l *Libvirt) Use(v Verdict) {
	r := l.accelerator
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict = v
	if !isClosed(r.known) {
		close(r.known)
	}
}

// Accelerator is what new machines run on; its zero value, that nobody knows yet.
func (l *Libvirt) Accelerator() Verdict {
	r := l.accelerator
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verdict.Accelerator == KVM && r.denied != "" {
		return Verdict{TCG, r.denied}
	}
	return r.verdict
}

// awaitAccelerator waits for the first verdict.
func (l *Libvirt) awaitAccelerator(ctx context.Context) (Verdict, error) {
	select {
	case <-l.accelerator.known:
		return l.Accelerator(), nil
	case <-ctx.Done():
		return Verdict{}, context.Cause(ctx)
	}
}

// seesKVM notes whether libvirt's QEMU can use KVM. libvirt itself may say so and be wrong: it probes with more rights than QEMU runs with.
func (l *Libvirt) seesKVM(s *session) {
	denied := ""
	switch err := opens("/dev/kvm", s.owner[0], s.owner[1]); {
	case err != nil:
		denied = "QEMU's own user cannot open /dev/kvm; try: " + openKVM
	case !s.host.kvm:
		denied = "libvirt finds that QEMU does not work under KVM"
	}
	r := l.accelerator
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = denied
}
