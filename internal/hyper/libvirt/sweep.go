package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rpc "github.com/digitalocean/go-libvirt"
)

// Sweep kills processes of ours that libvirt does not know, and tells libvirt to drop domains of ours that have no
// process. It does nothing while the daemon is away: unknown is not gone.
func (l *Libvirt) Sweep(ctx context.Context) error {
	// Entries first: libvirt knows a domain before it starts the process, so what is noted and then not listed is an
	// orphan, or never was.
	noted, err := l.journal.all()
	errs := []error{err}
	domains, err := call(ctx, l.daemon, func(s *session) ([]rpc.Domain, error) {
		d, _, err := s.ConnectListAllDomains(1, 0)
		return d, err
	})
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	listed := map[string]bool{}
	for _, d := range domains {
		listed[formatUUID(d.UUID)] = true
	}
	for _, e := range noted {
		if listed[e.ID] || l.machines.isStarting(e.ID) {
			continue
		}
		if err := l.sweepOrphan(ctx, e); err != nil {
			errs = append(errs, fmt.Errorf("sweep machine %s: %w", e.ID, err))
		}
	}
	return errors.Join(append(errs, l.dropEmpty(domains))...)
}

// sweepOrphan ends what is left of a machine that libvirt does not know.
func (l *Libvirt) sweepOrphan(ctx context.Context, e entry) error {
	p, err := l.pids.locate(e)
	if err == nil && p == nil {
		p, err = search(e)
	}
	if err == nil && p != nil {
		err = p.kill(ctx)
	}
	if err == nil {
		l.machines.forget(e.ID)
	}
	return err
}

// dropEmpty has domains of ours dropped that have no process: libvirt does so by itself, except when it missed the end.
func (l *Libvirt) dropEmpty(domains []rpc.Domain) error {
	var errs []error
	var empty []rpc.Domain
	for _, d := range domains {
		// Asked before its process is looked for, or a machine that finishes starting in between would look dead.
		id := formatUUID(d.UUID)
		if !strings.HasPrefix(d.Name, namePrefix) || l.machines.isStarting(id) {
			continue
		}
		p, err := l.machines.find(id)
		if err == nil && p == nil {
			empty = append(empty, d)
		}
		errs = append(errs, err)
	}
	l.dropper.drop(empty)
	return errors.Join(errs...)
}

// dropIfEmpty has libvirt end a domain if it is ours and has no process.
func (r *dropper) dropIfEmpty(s *session, d rpc.Domain) error {
	text, err := s.DomainGetXMLDesc(d, 0)
	if err != nil {
		return err
	}
	e, metadata, err := r.machines.journal.entryOf(d, text)
	if err != nil || metadata == nil || r.machines.isStarting(e.ID) {
		return err
	}
	if p, err := r.machines.journal.pids.locate(e); err != nil || p != nil {
		return err
	}
	return s.DomainDestroyFlags(d, rpc.DomainDestroyDefault)
}
