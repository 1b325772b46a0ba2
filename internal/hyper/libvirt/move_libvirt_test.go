package libvirt_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper/hypertest"
)

// TestMoveCopiesDisks moves a machine with a disk of its own, which is at the target then, byte for byte; and without
// holes filled.
func TestMoveCopiesDisks(t *testing.T) {
	ctx := t.Context()
	p, other := startLibvirtd(t), startLibvirtd(t)
	source, target := p.open(t), other.open(t)
	m := p.machine(t, sleeps)
	m.Purpose = farm.PurposeService
	m.Disks[0].ReadOnly = false
	content, err := os.ReadFile(m.Disks[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	rand.Read(content[4096:])
	if err := errors.Join(os.WriteFile(m.Disks[0].Path, content, 0o666), os.Truncate(m.Disks[0].Path, 64<<20),
		os.Chown(m.Disks[0].Path, vmUser, -1)); err != nil {
		t.Fatal(err)
	}
	there := other.adapt(t)(m)
	from, to := hypertest.Sockets(t, vmUser), hypertest.Sockets(t, vmUser+1)
	hypertest.Carry(t, from, to)
	if _, err := source.Start(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := source.Resume(ctx, m.ID); err != nil {
		t.Fatal(err)
	}
	described, err := source.Describe(ctx, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	fitted, err := target.Fit(ctx, there, described)
	if err != nil {
		t.Fatal(err)
	}
	cookie, err := source.BeginMove(ctx, m.ID, fitted)
	if err != nil {
		t.Fatal(err)
	}
	if _, cookie, err = target.Await(ctx, there, fitted, cookie, to); err != nil {
		t.Fatal(err)
	}
	if cookie, err = source.Send(ctx, m.ID, cookie, from); err != nil {
		t.Fatal(err)
	}
	if err := target.Arrive(ctx, there, cookie); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(source.Stop(ctx, m.ID), target.Resume(ctx, m.ID)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(there.Disks[0].Path)
	if err != nil || len(got) != 64<<20 || !bytes.Equal(got[:len(content)], content) {
		t.Errorf("the disk at the target has %d bytes, %v, and is not as at the source", len(got), err)
	}
	if err := target.Stop(ctx, m.ID); err != nil {
		t.Error(err)
	}
}
