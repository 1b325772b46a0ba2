package uplink_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/server/images"
	"github.com/grange-project/grange/internal/sim"
	"github.com/grange-project/grange/internal/uplink"
	"github.com/grange-project/grange/internal/vmimage"
)

// imageHost is a host with a store of images and a copy of the catalogue, linked to a server by TLS.
type imageHost struct {
	*catalogue.Fleet
	t     *testing.T
	store *vmimage.Store
	used  []string // digests
	slow  *slow
}

// slow is a link whose transfers wait for the test, and are counted.
type slow struct {
	catalogue.Server
	opened atomic.Int64
	gate   chan struct{} // nil: they do not wait
}

type slowBlob struct {
	imagesource.Source
	s *slow
}

func (s *slow) Blob(sum string, servers []string) imagesource.Source {
	return slowBlob{s.Server.Blob(sum, servers), s}
}

func (b slowBlob) Open(ctx context.Context, version string, at int64) (io.ReadCloser, error) {
	b.s.opened.Add(1)
	if b.s.gate != nil {
		select {
		case <-b.s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return b.Source.Open(ctx, version, at)
}

// imageHost joins a host, and keeps its link until the test ends.
func (s *site) imageHost(name string, gate chan struct{}) *imageHost {
	s.t.Helper()
	h := &imageHost{t: s.t}
	joined := s.join(name)
	var err error
	if h.store, err = vmimage.Open(s.t.TempDir()); err != nil {
		s.t.Fatal(err)
	}
	h.Fleet = catalogue.NewFleet(catalogue.Options{Images: vmimage.Exchange{Store: h.store},
		File: filepath.Join(s.t.TempDir(), "catalogue.json"), Log: slog.New(slog.DiscardHandler),
		Users: func(digest string) []string {
			return slices.DeleteFunc(slices.Clone(h.used), func(d string) bool { return d != digest })
		}, Cloud: func(string) []string { return nil }})
	joined.stop()
	facts := &factsOf{Host: joined.Host, h: h}
	l, err := uplink.New(uplink.Options{Dir: joined.dir, Host: facts, Images: h.Fleet,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	h.slow = &slow{Server: l, gate: gate}
	h.Via(h.slow)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { l.Run(ctx); ended <- struct{}{} }()
	go func() { h.Run(ctx); ended <- struct{}{} }()
	s.t.Cleanup(func() {
		cancel()
		<-ended
		<-ended
		h.store.Close()
	})
	return h
}

func (h *imageHost) has(digest string) bool {
	_, err := h.store.Get(digest)
	return err == nil
}

// known reports whether the host's copy has a name.
func (h *imageHost) known(name string) bool {
	text, err := os.ReadFile(h.File)
	return err == nil && bytes.Contains(text, []byte(`"`+name+`":"sha256:`))
}

// factsOf is a simulated host that tells of the images of a real store.
type factsOf struct {
	*sim.Host
	h *imageHost
}

func (f *factsOf) Facts(ctx context.Context) (fleet.Facts, error) {
	facts, err := f.Host.Facts(ctx)
	list, _ := f.h.store.List()
	facts.Images, facts.ImageUse = nil, nil
	for _, i := range list {
		facts.Images = append(facts.Images, i.Name, i.Digest)
	}
	for _, u := range f.h.Use() {
		facts.ImageUse = append(facts.ImageUse, fleet.ImageUse{Digest: u.Digest, Jobs: u.Jobs, Done: uint64(u.Done),
			Total: uint64(u.Total), Order: u.Order, Reason: u.Reason})
	}
	return facts, err
}

// Observed says that something may have changed ten times a second.
func (f *factsOf) Observed() ([]fleet.Observed, <-chan struct{}) {
	vms, _ := f.Host.Observed()
	changed := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { close(changed) })
	return vms, changed
}

// disk is a raw disk with a partition table.
func disk(seed byte) []byte {
	b := bytes.Repeat([]byte{seed, 1, 2, 3}, 1<<19)
	copy(b[510:], "\x55\xaa")
	b[446], b[450], b[458] = 0x80, 0x83, 1
	return b
}

// add uploads a disk and puts it into the catalogue.
func (s *site) add(name string, content []byte) images.Details {
	s.t.Helper()
	sum := sha256.Sum256(content)
	hexed := hex.EncodeToString(sum[:])
	size := farm.Bytes(len(content))
	for at := 0; at < len(content); at += 1 << 20 {
		piece := content[at:min(at+1<<20, len(content))]
		if _, err := s.Images.Receive(s.t.Context(), root, hexed, farm.Bytes(at), size, piece); err != nil {
			s.t.Fatal(err)
		}
	}
	d, err := s.Images.Add(s.t.Context(), root,
		images.Request{Name: name, Files: []images.File{{Name: "disk", Sum: hexed}}}, func(string) {})
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// An image that was added to the server comes to a host that needs it, once whoever waits, and under its name.
func TestImageComesToHost(t *testing.T) {
	s := newSite(t)
	gate := make(chan struct{})
	h := s.imageHost("wn-1", gate)
	first := s.add("debian", disk(1))
	s.eventually("the catalogue", func() bool { return h.MayRun("debian", 0, false) == nil && h.known("debian") })
	errs := make(chan error, 3)
	for range 3 {
		go func() { errs <- h.Ensure(t.Context(), "debian", func(vmimage.Progress) {}) }()
	}
	s.eventually("a transfer", func() bool { return h.slow.opened.Load() == 1 })
	close(gate)
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	i, err := h.store.Get("debian")
	if err != nil || i.Digest != first.Digest || i.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(disk(1))) {
		t.Fatal(i, err)
	}
	if n := h.slow.opened.Load(); n != 1 {
		t.Errorf("%d transfers", n)
	}
	if err := h.store.Verify(t.Context(), "debian"); err != nil {
		t.Error(err)
	}

	// The name moves: the next who wants it gets the new one, and the digest stays what it was.
	second := s.add("debian", disk(2))
	s.eventually("the new version", func() bool {
		err := h.Ensure(t.Context(), "debian", func(vmimage.Progress) {})
		i, got := h.store.Get("debian")
		return err == nil && got == nil && i.Digest == second.Digest
	})
	if !h.has(first.Digest) {
		t.Error("the version before was removed")
	}
	if _, err := s.Images.Tag(t.Context(), root, first.Digest, 0, "debian"); err != nil {
		t.Fatal(err)
	}
	s.eventually("the name moves back without anybody who wants it", func() bool {
		i, err := h.store.Get("debian")
		return err == nil && i.Digest == first.Digest
	})
	err = h.Ensure(t.Context(), "debain", func(vmimage.Progress) {})
	if e := new(farm.Error); !farm.IsCode(err, farm.CodeNoImage) || !errors.As(err, &e) ||
		e.Hint != "did you mean debian? see `grange image list`" {
		t.Errorf("a name that is not there: %v", err)
	}
}

// What is withdrawn starts nowhere: neither where it is, nor where it would have to be fetched, nor when the host
// starts anew without its server.
func TestWithdrawnReachesHosts(t *testing.T) {
	s := newSite(t)
	has, late := s.imageHost("wn-1", nil), s.imageHost("wn-2", nil)
	d := s.add("debian", disk(1))
	s.eventually("the catalogue", func() bool { return has.known("debian") && late.known("debian") })
	if err := has.Ensure(t.Context(), "debian", func(vmimage.Progress) {}); err != nil {
		t.Fatal(err)
	}
	withdrawn, why := "withdrawn", "a hole in ssh"
	mark := images.Mark{State: &withdrawn, Reason: &why}
	if _, err := s.Images.Mark(t.Context(), root, "debian", 0, mark); err != nil {
		t.Fatal(err)
	}
	s.eventually("the withdrawal", func() bool {
		_, release, err := has.store.Acquire(d.Digest)
		if err == nil {
			release()
		}
		return farm.IsCode(err, farm.CodeWithdrawn)
	})
	s.eventually("the copies on the disks", func() bool {
		one, err := os.ReadFile(has.File)
		other, failed := os.ReadFile(late.File)
		return err == nil && failed == nil && bytes.Contains(one, []byte(why)) && bytes.Contains(other, []byte(why))
	})
	err := late.Ensure(t.Context(), "debian", func(vmimage.Progress) {})
	if !farm.IsCode(err, farm.CodeWithdrawn) || late.has(d.Digest) {
		t.Errorf("the other host fetches it: %v", err)
	}
	again, err := vmimage.Open(s.t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	alone := catalogue.NewFleet(catalogue.Options{Images: vmimage.Exchange{Store: again}, File: has.File,
		Log: slog.New(slog.DiscardHandler), Users: has.Users, Cloud: has.Cloud})
	if err := alone.Ensure(t.Context(), "debian", func(vmimage.Progress) {}); !farm.IsCode(err, farm.CodeWithdrawn) {
		t.Errorf("without a server: %v", err)
	}
	if _, err := s.Images.Tag(t.Context(), root, d.Digest, 0, "other"); err != nil {
		t.Fatal(err)
	}
	s.eventually("another name helps nobody", func() bool {
		return late.known("other") &&
			farm.IsCode(late.Ensure(t.Context(), "other", func(vmimage.Progress) {}), farm.CodeWithdrawn)
	})
	if err := s.Images.Remove(t.Context(), root, d.Digest, 0); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is removed", func() bool { return !has.known("debian") })
	if _, _, err := has.store.Acquire(d.Digest); !farm.IsCode(err, farm.CodeWithdrawn) {
		t.Errorf("removed from the catalogue, it starts: %v", err)
	}
}

// Orders reach hosts, and what comes of them the server.
func TestPrestageAndInvalidate(t *testing.T) {
	s := newSite(t)
	a, b := s.imageHost("wn-1", nil), s.imageHost("wn-2", nil)
	d := s.add("debian", disk(1))
	over := func(op farm.ImageOp, what string, f images.Choice) images.Rollout {
		t.Helper()
		r, err := s.Images.Order(t.Context(), root, op, what, f)
		if err != nil {
			t.Fatal(err)
		}
		s.eventually(string(op), func() bool {
			if r, err = s.Images.Rollout(t.Context(), root, r.ID); err != nil {
				t.Fatal(err)
			}
			return !r.Ended.IsZero()
		})
		return r
	}
	r := over(farm.ImageFetch, "debian", images.Choice{Hosts: []string{"wn-*"}, AtOnce: 1})
	if len(r.Tasks) != 2 || r.Tasks[0].State != farm.TaskDone || r.Tasks[1].State != farm.TaskDone {
		t.Fatalf("%+v", r.Tasks)
	}
	if i, err := b.store.Get("debian"); err != nil || i.Digest != d.Digest {
		t.Fatal(i, err)
	}
	shown, err := s.Images.Show(t.Context(), root, "debian")
	if err != nil || !slices.Equal(shown.Holders, []string{"wn-1", "wn-2"}) {
		t.Errorf("%v %v", shown.Holders, err)
	}
	b.used = []string{d.Digest}
	r = over(farm.ImageDrop, "deb*", images.Choice{})
	if r.Tasks[0].State != farm.TaskDone || r.Tasks[1].State != farm.TaskFailed || a.has(d.Digest) || !b.has(d.Digest) {
		t.Errorf("%+v", r.Tasks)
	}
	if _, err := s.Images.Order(t.Context(), root, farm.ImageFetch, "debian",
		images.Choice{Hosts: []string{"other"}}); !farm.IsCode(err, images.CodeNoTargets) {
		t.Error(err)
	}
}
