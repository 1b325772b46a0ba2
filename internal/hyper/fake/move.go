package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// Steps of moves, for Host.Moving.
const (
	Describing = "describe"
	Fitting    = "fit"
	Beginning  = "begin"
	Awaiting   = "await"
	Sending    = "send"
	Arriving   = "arrive"
)

// memory is what a move carries; a guest's, as far as there is one here.
const memory = 3 << 20

// described is a machine as its guest sees it.
type described struct {
	ID, Name string
	VCPUs    int
	Ports    []string
	Disks    []string
}

func describe(m hyper.Machine) []byte {
	d := described{ID: m.ID, Name: m.Name, VCPUs: len(m.Plan.VCPUs)}
	for _, p := range m.Ports {
		d.Ports = append(d.Ports, p.Name)
	}
	for _, disk := range m.Disks {
		d.Disks = append(d.Disks, disk.Serial)
	}
	text, err := json.Marshal(d)
	if err != nil { // plain data
		panic(err)
	}
	return text
}

// moving runs a step of a move on a machine that is there.
func (v hypervisor) moving(ctx context.Context, step, id string, f func(h *Host, m *machine) error) error {
	if hook := v.host.Moving; hook != nil {
		if err := hook(ctx, step, id); err != nil {
			return err
		}
	}
	return v.locked(ctx, func(h *Host) error {
		m := h.machines[id]
		if m == nil {
			return hyper.NoMachine(id)
		}
		return f(h, m)
	})
}

func (v hypervisor) Describe(ctx context.Context, id string) (text []byte, err error) {
	err = v.moving(ctx, Describing, id, func(_ *Host, m *machine) error {
		text = describe(m.Machine)
		return nil
	})
	return text, err
}

func (v hypervisor) Fit(ctx context.Context, m hyper.Machine, description []byte) ([]byte, error) {
	if hook := v.host.Moving; hook != nil {
		if err := hook(ctx, Fitting, m.ID); err != nil {
			return nil, err
		}
	}
	if own := describe(m); !slices.Equal(own, description) {
		return nil, &farm.Error{Kind: farm.Conflict, Code: hyper.CodeDevices,
			Message: fmt.Sprintf("the machine would be %s here, and is %.200s", own, description)}
	}
	return description, nil
}

func (v hypervisor) BeginMove(ctx context.Context, id string, _ []byte) (cookie []byte, err error) {
	err = v.moving(ctx, Beginning, id, func(_ *Host, m *machine) error {
		m.begun = true
		return nil
	})
	return []byte("begun"), err
}

func (v hypervisor) Await(ctx context.Context, m hyper.Machine, _, _ []byte, at hyper.MoveSockets) (hyper.Applied,
	[]byte, error) {
	if hook := v.host.Moving; hook != nil {
		if err := hook(ctx, Awaiting, m.ID); err != nil {
			return hyper.Applied{}, nil, err
		}
	}
	l, err := net.Listen("unix", at.Memory)
	if err != nil {
		return hyper.Applied{}, nil, err
	}
	applied, err := v.Start(ctx, m)
	if err != nil {
		l.Close()
		return applied, nil, err
	}
	v.host.mu.Lock()
	defer v.host.mu.Unlock()
	made := v.host.machines[m.ID]
	made.incoming, made.received = func() { l.Close() }, make(chan struct{})
	v.host.guests.Go(func() { receive(l, made.received) })
	return applied, []byte("awaited"), nil
}

// receive takes a memory, and says that it has it.
func receive(l net.Listener, received chan struct{}) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	if n, err := io.CopyN(io.Discard, conn, memory); n != memory || err != nil {
		return
	}
	close(received)
	conn.Write([]byte{1})
}

func (v hypervisor) Send(ctx context.Context, id string, _ []byte, at hyper.MoveSockets) ([]byte, error) {
	err := v.moving(ctx, Sending, id, func(_ *Host, m *machine) error {
		if !m.begun {
			return errors.New("no move was begun")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", at.Memory)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(make([]byte, memory)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return nil, err
	}
	return []byte("sent"), v.set(ctx, id, hyper.Paused)
}

func (v hypervisor) MoveProgress(ctx context.Context, id string) (p hyper.MoveProgress, err error) {
	err = v.locked(ctx, func(h *Host) error {
		m := h.machines[id]
		if m == nil || !m.begun {
			return hyper.NoMachine(id)
		}
		p = hyper.MoveProgress{Total: memory, Done: memory / 2}
		return nil
	})
	return p, err
}

func (v hypervisor) Arrive(ctx context.Context, m hyper.Machine, _ []byte) error {
	return v.moving(ctx, Arriving, m.ID, func(_ *Host, made *machine) error {
		if made.incoming == nil {
			return errors.New("nothing is awaited")
		}
		select {
		case <-made.received:
		default:
			return errors.New("its memory has not come")
		}
		made.incoming()
		made.incoming = nil
		return nil
	})
}

func (v hypervisor) CancelMove(ctx context.Context, id string) error {
	err := v.locked(ctx, func(h *Host) error {
		m := h.machines[id]
		if m == nil {
			return hyper.NoMachine(id)
		}
		m.begun = false
		return nil
	})
	if err != nil {
		return err
	}
	return v.set(ctx, id, hyper.Running)
}
