package catalogue

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/transfers"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	chunktransfer "github.com/grange-project/grange/internal/transfer"
	"github.com/grange-project/grange/internal/vmimage"
)

// transfer is an image on its way to this host. All who want it wait for the same one, and it ends with the last of
// them.
type transfer struct {
	cancel   context.CancelFunc
	done     chan struct{}
	err      error            // set before done is closed
	waiters  int              // Fleet.mu holds this
	progress vmimage.Progress // and this
}

// learnWait is how long a VM waits for a catalogue that its server says is another one than the copy.
const learnWait = 30 * time.Second

// Bring is Ensure that says in words how far it is, whenever they change.
func (f *Fleet) Bring(ctx context.Context, ref string, say func(string)) error {
	return f.Ensure(ctx, ref, InWords(ref, say))
}

// InWords says how far the fetch of an image is, whenever the words for it change.
func InWords(ref string, say func(string)) func(vmimage.Progress) {
	said := ""
	return func(p vmimage.Progress) {
		if text := p.String(); text != "" && text != said {
			said = text
			say("image " + ref + " is fetched: " + text)
		}
	}
}

// Ensure has the image that ref means in the catalogue be here, under that name, and fetches it where it is not.
// progress is told once a second while that takes. An image that the catalogue does not have is left alone, unless it
// is nowhere.
func (f *Fleet) Ensure(ctx context.Context, ref string, progress func(vmimage.Progress)) error {
	if f == nil {
		return nil
	}
	image, name, ok := f.find(ref)
	if !ok {
		if err := f.awaitNews(ctx); err != nil {
			return err
		}
		if image, name, ok = f.find(ref); !ok {
			return f.elsewhere(ref)
		}
	}
	if image.State == string(vmimage.Withdrawn) {
		return farm.FleetImage{State: farm.ImageWithdrawn, Successor: image.Successor,
			Reason: image.Reason}.Refused(ref)
	}
	if image.Removed {
		return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoImage,
			Message: fmt.Sprintf("image %.80s was removed from the fleet's catalogue", ref),
			Hint:    "use an image of `grange image list`"}
	}
	if _, err := f.Images.Get(image.Digest); err != nil {
		if !farm.IsCode(err, farm.CodeNoImage) {
			return err
		}
		if err := f.await(ctx, image, name, progress); err != nil {
			return err
		}
	}
	if name == "" {
		return nil
	}
	return f.name(name, image.Digest)
}

// awaitNews waits for the catalogue, where the server has another one than the copy.
func (f *Fleet) awaitNews(ctx context.Context) error {
	limit := time.NewTimer(learnWait)
	defer limit.Stop()
	for {
		f.mu.Lock()
		news, learned := f.server != nil && f.trouble == nil && f.wanted != f.copy.Revision, f.learned
		f.mu.Unlock()
		if !news {
			return nil
		}
		select {
		case <-learned:
		case <-limit.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// elsewhere is nil for an image that is the host's own, or a container's reference; the error of one that is nowhere
// names those of the catalogue, too.
func (f *Fleet) elsewhere(ref string) error {
	f.mu.Lock()
	var names []string
	for name := range f.copy.Names {
		names = append(names, name)
	}
	f.mu.Unlock()
	if vmimage.CheckName(ref) != nil || len(names) == 0 {
		return nil
	}
	if _, err := f.Images.Get(ref); !farm.IsCode(err, farm.CodeNoImage) {
		return nil
	}
	own, err := f.Images.List()
	for _, i := range own {
		if err == nil && !slices.Contains(names, i.Name) {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	return farm.NoImageNamed(ref, names)
}

// await waits for an image's transfer, which the first who wants it begins.
func (f *Fleet) await(ctx context.Context, image fleet.CatalogueImage, name string,
	progress func(vmimage.Progress)) error {
	f.mu.Lock()
	t := f.transfers[image.Digest]
	if t == nil {
		t = f.beginLocked(image, name)
	}
	t.waiters++
	f.mu.Unlock()
	defer f.leave(image.Digest, t)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		f.mu.Lock()
		p := t.progress
		f.mu.Unlock()
		progress(p)
		select {
		case <-t.done:
			return t.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// leave ends a transfer that nobody waits for any more. What has come is kept for the next.
func (f *Fleet) leave(digest string, t *transfer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.waiters--; t.waiters == 0 {
		t.cancel()
		f.forgetLocked(digest, t)
	}
}

// forgetLocked has whoever comes later begin another transfer.
func (f *Fleet) forgetLocked(digest string, t *transfer) {
	if f.transfers[digest] == t {
		delete(f.transfers, digest)
	}
}

func (f *Fleet) beginLocked(image fleet.CatalogueImage, name string) *transfer {
	ctx, cancel := context.WithCancel(context.Background())
	t := &transfer{cancel: cancel, done: make(chan struct{})}
	f.transfers[image.Digest] = t
	server, log := f.server, f.Log.With("image", name, "digest", image.Digest)
	go func() {
		defer close(t.done)
		began := time.Now()
		t.err = f.bring(ctx, server, image, name, t)
		cancel()
		f.mu.Lock()
		f.forgetLocked(image.Digest, t)
		f.mu.Unlock()
		if t.err == nil {
			log.Info("image fetched", "seconds", time.Since(began).Seconds())
		} else {
			log.Warn("image not fetched", "error", t.err)
		}
	}()
	return t
}

func (f *Fleet) bring(ctx context.Context, server Server, image fleet.CatalogueImage, name string, t *transfer) error {
	if server == nil {
		return &farm.Error{Kind: farm.Unavailable, Code: imagesource.CodeSource,
			Message: "image " + image.Digest + " is not on this host, and there is no link to the server",
			Hint:    "see `grange host show`; or import the image on this host"}
	}
	f.makeRoom(image.Manifest)
	_, err := f.Images.Install(ctx, vmimage.Install{Name: name, Manifest: image.Manifest,
		Fetch: inChunks(f.Transfers, fetchFrom(server, image.Servers, f.Pace)), Progress: func(p vmimage.Progress) {
			f.mu.Lock()
			t.progress = p
			f.mu.Unlock()
		}})
	if err != nil || f.Transfers == nil {
		return err
	}
	return f.forget(image.Manifest)
}

// forget removes what a transfer keeps of an image's files, which are in the store now.
func (f *Fleet) forget(manifest []byte) error {
	i, err := vmimage.ParseManifest(manifest)
	if err != nil {
		return err
	}
	var sums []string
	for _, file := range i.Files {
		sums = append(sums, file.SHA256)
	}
	return f.Transfers.Forget(sums...)
}

// inChunks brings files from other hosts and the server that this host is linked to; what that server lacks, whole,
// from those that have it.
func inChunks(t *transfers.Transfers, whole vmimage.Fetch) vmimage.Fetch {
	if t == nil {
		return whole
	}
	return func(ctx context.Context, dir *os.Root, sum string, size int64, report vmimage.Reporter) (*os.File, error) {
		file, err := t.Fetch(ctx, sum, func(done, _ int64, note string) { report(done, note) })
		if farm.IsCode(err, chunktransfer.CodeUnknown) {
			return whole(ctx, dir, sum, size, report)
		}
		return file, err
	}
}

// fetchFrom brings files from servers of the fleet, whole, each into a directory of its own that outlives a transfer
// that breaks off. All that is known of a way of transfer is here.
func fetchFrom(server Server, servers []string, pace vmimage.Pace) vmimage.Fetch {
	return func(ctx context.Context, dir *os.Root, sum string, size int64, report vmimage.Reporter) (*os.File, error) {
		came := pace.Follow(ctx)
		load := imagesource.Download{Source: server.Blob(sum, servers), Dir: dir, Limit: size,
			Report: func(done, _ int64, note string) {
				came(done)
				report(done, note)
			}}
		file, _, err := load.Run(ctx)
		return file, err
	}
}
