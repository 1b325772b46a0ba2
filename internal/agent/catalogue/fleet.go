package catalogue

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/transfers"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/vmimage"
)

// Code of an error of the copy; see docs/errors.md.
const CodeOfProjects farm.Code = "image-for-vms" // the catalogue keeps the image for cloud VMs of some projects

// Server is where the catalogue comes from.
type Server interface {
	Catalogue(ctx context.Context) (fleet.Catalogue, error)
	// Blob is a file of an image, by its SHA-256 in hex, on servers that have it.
	Blob(sum string, servers []string) imagesource.Source
}

// Options are what a copy of the fleet's catalogue needs of its agent.
type Options struct {
	Images    vmimage.Exchange
	File      string // where the copy is kept, for a host that starts while the server is away
	Log       *slog.Logger
	Transfers *transfers.Transfers // from other hosts, too; nil: files come whole, from servers
	// Users are the VMs that read from the image with this digest, and Cloud those of them that the server placed.
	Users, Cloud func(digest string) []string
	Pace         vmimage.Pace         // of files that come whole; nil: none
	Unused       func() time.Duration // after which copies are removed; 0: never. nil is never, too
}

// Fleet is a host's copy of the fleet's catalogue of images: its names go before the host's own, and what it has
// withdrawn does not start here either. It fetches images when they are needed, or when it is told to. A nil *Fleet is
// that of a host without a server.
type Fleet struct {
	Options
	poke chan struct{} // room for one: there is something to do

	mu        sync.Mutex
	server    Server
	copy      fleet.Catalogue
	images    map[string]fleet.CatalogueImage // by digest
	wanted    int64                           // revision that the server has
	learned   chan struct{}                   // closed, and made anew, when the copy is another one, or cannot be
	trouble   error                           // why the catalogue is not read; nil: it is
	transfers map[string]*transfer            // by digest
	orders    []fleet.ImageOrder
	begun     map[string]bool   // orders, by ID
	failed    map[string]string // orders that came to nothing: why
}

// NewFleet makes a copy, and reads what was kept of it. A broken file is none: the server says it again.
func NewFleet(o Options) *Fleet {
	f := &Fleet{Options: o, poke: make(chan struct{}, 1), learned: make(chan struct{}),
		transfers: map[string]*transfer{}, begun: map[string]bool{}, failed: map[string]string{}}
	text, err := os.ReadFile(o.File)
	if errors.Is(err, fs.ErrNotExist) {
		return f
	}
	var c fleet.Catalogue
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		o.Log.Error("the copy of the catalogue of images cannot be read", "error", err)
		return f
	}
	f.wanted = c.Revision
	f.take(c)
	return f
}

// Via has the copy come from a server from now on.
func (f *Fleet) Via(s Server) {
	f.mu.Lock()
	f.server = s
	f.mu.Unlock()
	f.wake()
}

// Want takes over what the server says of images: the revision of the catalogue, and what to do.
func (f *Fleet) Want(revision int64, orders []fleet.ImageOrder) {
	f.mu.Lock()
	f.wanted, f.orders = revision, orders
	listed := func(id string) bool {
		return slices.ContainsFunc(orders, func(o fleet.ImageOrder) bool { return o.ID == id })
	}
	maps.DeleteFunc(f.begun, func(id string, _ bool) bool { return !listed(id) })
	maps.DeleteFunc(f.failed, func(id, _ string) bool { return !listed(id) })
	f.mu.Unlock()
	f.wake()
}

func (f *Fleet) wake() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// again is when a catalogue that could not be read is asked for again.
const again = 5 * time.Second

// Run learns the catalogue, and carries out orders, until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	retry := time.NewTimer(again)
	defer retry.Stop()
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	said := ""
	for {
		err := f.learn(ctx)
		f.mu.Lock()
		if f.trouble = err; err != nil {
			f.newsLocked()
		}
		f.mu.Unlock()
		switch now := errorText(err); {
		case ctx.Err() != nil:
			return
		case now != said && err != nil:
			f.Log.Warn("the catalogue of images is not read; the copy stays", "error", err)
			fallthrough
		default:
			said = now
		}
		for _, o := range f.due() {
			all.Go(func() { f.carryOut(ctx, o) })
		}
		if retry.Stop(); err != nil {
			retry.Reset(again)
		}
		select {
		case <-f.poke:
		case <-retry.C:
		case <-tidy.C:
			f.tidy()
		case <-ctx.Done():
			return
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// learn reads the catalogue when the server has another one.
func (f *Fleet) learn(ctx context.Context) error {
	f.mu.Lock()
	server, news := f.server, f.wanted != f.copy.Revision
	f.mu.Unlock()
	if server == nil || !news {
		return nil
	}
	c, err := server.Catalogue(ctx)
	if err != nil {
		return err
	}
	f.take(c)
	text, err := json.Marshal(c)
	if err == nil {
		err = atomicfile.Write(f.File, text, 0o600)
	}
	if err != nil {
		f.Log.Error("the catalogue of images is not kept for the next start", "error", err)
	}
	return nil
}

// take takes a catalogue over: what may start, and what names mean whose images are here.
func (f *Fleet) take(c fleet.Catalogue) {
	marks, images := map[string]vmimage.Mark{}, map[string]fleet.CatalogueImage{}
	for _, i := range c.Images {
		marks[i.Digest] = vmimage.Mark{State: vmimage.State(i.State), Successor: i.Successor, Reason: i.Reason}
		images[i.Digest] = i
	}
	f.Images.Overrule(marks)
	f.mu.Lock()
	if c.Revision != f.wanted && f.wanted != 0 { // it changed on its way: what is newer is right
		f.wanted = max(f.wanted, c.Revision)
	}
	before := f.copy.Names
	f.copy, f.images = c, images
	f.newsLocked()
	f.mu.Unlock()
	f.unname(before)
	for name, digest := range c.Names {
		if err := f.name(name, digest); err != nil && !farm.IsCode(err, farm.CodeNoImage) {
			f.Log.Error("an image does not get its name", "image", name, "digest", digest, "error", err)
		}
	}
}

// unname takes names from images that they do not mean in the catalogue any more, whether what they mean now is here or
// not: nothing starts by them, and tidy removes the files. before are the names of the copy before this one.
func (f *Fleet) unname(before map[string]string) {
	f.mu.Lock()
	names, images := f.copy.Names, f.images
	f.mu.Unlock()
	all, _ := f.Images.List()
	for _, i := range all {
		now, is := names[i.Name]
		_, known := images[i.Digest]
		was, had := before[i.Name]
		if now == i.Digest || !(was == i.Digest || known && (is || had)) {
			continue
		}
		if err := f.Images.Untag(i.Name, i.Digest); err != nil {
			f.Log.Error("an image keeps a name that the catalogue has no more", "image", i.Name, "error", err)
		}
	}
}

// newsLocked wakes those who wait for another copy.
func (f *Fleet) newsLocked() {
	close(f.learned)
	f.learned = make(chan struct{})
}

// name has a name mean an image on this host, which must be here.
func (f *Fleet) name(name, digest string) error {
	if i, err := f.Images.Get(name); err == nil && i.Digest == digest {
		return nil
	}
	_, err := f.Images.Tag(digest, name)
	return err
}

// due are orders that were not begun.
func (f *Fleet) due() (due []fleet.ImageOrder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.orders {
		if !f.begun[o.ID] {
			f.begun[o.ID] = true
			due = append(due, o)
		}
	}
	return due
}

// carryOut does what an order says. That it is done the server sees by the images that are here.
func (f *Fleet) carryOut(ctx context.Context, o fleet.ImageOrder) {
	var errs []error
	used := func(digest string) bool { return len(f.Users(digest)) > 0 }
	for _, digest := range o.Digests {
		switch farm.ImageOp(o.Op) {
		case farm.ImageFetch:
			errs = append(errs, f.Ensure(ctx, digest, func(vmimage.Progress) {}))
		case farm.ImageDrop:
			if err := f.Images.Discard(digest, used); !farm.IsCode(err, farm.CodeNoImage) {
				errs = append(errs, err)
			}
		default:
			errs = append(errs, invalid("invalid order %.40q of images", o.Op))
		}
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		f.Log.Warn("order of images not carried out", "order", o.ID, "what", o.Op, "error", err)
		f.mu.Lock()
		f.failed[o.ID] = err.Error()
		f.mu.Unlock()
	}
}

// find is what the catalogue has under a name or a whole digest, and a name that it has; "": none.
func (f *Fleet) find(ref string) (image fleet.CatalogueImage, name string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if digest := f.copy.Names[ref]; digest != "" {
		image, ok = f.images[digest]
		return image, ref, ok
	}
	if image, ok = f.images[ref]; !ok {
		return image, "", false
	}
	for n, digest := range f.copy.Names {
		if digest == ref && (name == "" || n < name) {
			name = n
		}
	}
	return image, name, true
}

// MayRun refuses VMs of jobs from images that the catalogue keeps for others, or that need more memory.
func (f *Fleet) MayRun(ref string, memory farm.Bytes, admin bool) error {
	if f == nil {
		return nil
	}
	i, _, ok := f.find(ref)
	// By digits of its digest, the reference that it was fetched from, or a name of this host it is the same image.
	if here, err := f.Images.Get(ref); !ok && err == nil {
		i, _, ok = f.find(here.Digest)
	}
	switch {
	case !ok:
		return nil
	case len(i.Projects) > 0 && !admin:
		return &farm.Error{Kind: farm.Denied, Code: CodeOfProjects,
			Message: "the fleet keeps image " + ref + " for cloud VMs of some projects",
			Hint:    "use an image of `grange image list`"}
	case memory < farm.Bytes(i.MinMemory):
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadShape,
			Message: "image " + ref + " needs " + farm.Bytes(i.MinMemory).String() + " of memory",
			Hint:    "ask for more: --memory"}
	}
	return nil
}

// Use is what the server is told of images on this host.
func (f *Fleet) Use() (use []farm.ImageUse) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	images := f.images
	f.mu.Unlock()
	for digest := range images {
		if n := len(f.Users(digest)) - len(f.Cloud(digest)); n > 0 {
			use = append(use, farm.ImageUse{Digest: digest, Jobs: n})
		}
	}
	f.mu.Lock()
	for digest, t := range f.transfers {
		if p := t.progress; p.Total > 0 { // in tenths: each is written down
			tenth := p.Total / 10
			use = append(use, farm.ImageUse{Digest: digest, Done: p.Done / max(tenth, 1) * tenth, Total: p.Total})
		}
	}
	for id, why := range f.failed {
		use = append(use, farm.ImageUse{Order: id, Reason: why})
	}
	f.mu.Unlock()
	slices.SortFunc(use, func(a, b farm.ImageUse) int {
		return slices.Compare([]string{a.Digest, a.Order}, []string{b.Digest, b.Order})
	})
	return use
}
