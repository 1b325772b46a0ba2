package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// machines are those that this agent has made, or found: from an ID to a process.
type machines struct {
	journal  *journal
	mu       sync.Mutex
	known    map[string]*knownMachine // by ID
	starting map[string]bool
}

// knownMachine is what we remember of a machine to be fast; all of it can be found again.
type knownMachine struct {
	entry
	proc *process // nil until it was found
}

// claim notes that a machine is being made, and refuses a second one with the same ID.
func (k *machines) claim(m hyper.Machine, s *session, profile bool) (entry, error) {
	if filepath.Base(m.Name) != m.Name {
		return entry{}, &farm.Error{Kind: farm.Invalid, Code: hyper.CodeBadMachine,
			Message: fmt.Sprintf("invalid name %q of a machine", m.Name)}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.known[m.ID]
	if k.starting[m.ID] || was != nil && was.proc.alive() {
		return entry{}, &farm.Error{Kind: farm.Conflict, Code: hyper.CodeExists,
			Message: fmt.Sprintf("machine %s runs already", m.ID)}
	}
	uid := s.owner[0]
	if m.UID != 0 {
		uid = int(m.UID)
	}
	e := entry{ID: m.ID, Name: m.Name, UID: uid, Emulator: s.host.emulator, Sockets: socketsOf(m), Profile: profile}
	if err := k.journal.note(e); err != nil {
		return entry{}, fmt.Errorf("note machine %s: %w", m.ID, err)
	}
	k.starting[m.ID] = true
	k.known[m.ID] = &knownMachine{entry: e}
	return e, nil
}

func (k *machines) release(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.starting, id)
}

// forget drops a machine that is gone, with its sockets.
func (k *machines) forget(id string) {
	k.mu.Lock()
	delete(k.known, id)
	k.mu.Unlock()
	k.journal.strike(id)
}

// made returns the process of a machine that was just made.
func (k *machines) made(id string) (*process, error) {
	p, err := k.find(id)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, &farm.Error{Kind: farm.Internal, Code: hyper.CodeNoMachine,
			Message: "QEMU ended, or was ended, as soon as it was made", Hint: "see libvirt's log of the machine"}
	}
	return p, nil
}

// find returns the process of a machine of ours; nil when there is none.
func (k *machines) find(id string) (*process, error) {
	k.mu.Lock()
	was := k.known[id]
	if was != nil && was.proc.alive() {
		defer k.mu.Unlock()
		return was.proc, nil
	}
	k.mu.Unlock()
	var e entry
	if was != nil {
		e = was.entry
	} else {
		var err error
		if e, err = k.journal.read(id); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	p, err := k.journal.pids.locate(e)
	if err != nil || p == nil {
		return nil, err
	}
	k.remember(e, p)
	return p, nil
}

func (k *machines) remember(e entry, p *process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[e.ID] = &knownMachine{entry: e, proc: p}
}

// kill ends the process that libvirt has made for a machine, as far as it can.
func (k *machines) kill(id string) {
	p, err := k.find(id)
	if err != nil || p == nil {
		return // Sweep comes again
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = p.kill(ctx)
}

func (k *machines) isStarting(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starting[id]
}
