package images

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/reach"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/vmimage"
)

// Request adds an image under a name, from a source or from files that were uploaded.
type Request struct {
	Name   string
	Source string // as vmimage.Fetch takes it; "": Files
	Files  []File

	Sum, Sums, Signature string
	Keyring              []byte

	Note, OS           string
	MinDisk, MinMemory farm.Bytes
	Properties         map[string]string
	Projects           []string
}

// File is one that was uploaded, and what it is called in the image.
type File struct{ Name, Sum string }

// partNames are what files of an image may be called when they are uploaded.
var partNames = []string{"disk", "vmlinux", "vmlinuz", "initrd", "cmdline"}

func (r Request) check(who farm.Identity) error {
	if err := vmimage.CheckName(r.Name); err != nil {
		return err
	}
	if err := checkProperties(r.Properties); err != nil {
		return err
	}
	for _, text := range []string{r.Note, r.OS} {
		if len(text) > 200 || text != farm.Printable(text) {
			return badImage("invalid text %.40q", text)
		}
	}
	switch {
	case (r.Source == "") == (len(r.Files) == 0):
		return badImage("an image has a source or files, and not both")
	case !who.Root && slices.ContainsFunc([]string{r.Source, r.Sums, r.Signature}, isFile):
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours,
			Message: "only root of the server may name its files as sources, lists of checksums or signatures",
			Hint:    "upload the file, or give a URL"}
	case len(r.Files) > len(partNames):
		return badImage("%d files", len(r.Files))
	}
	for _, f := range r.Files {
		if !slices.Contains(partNames, f.Name) || !isSum(f.Sum) {
			return badImage("invalid file %.40q: there are %s", f.Name, strings.Join(partNames, ", "))
		}
	}
	if len(r.Files) > 1 && r.Files[0].Name == "disk" {
		return badImage("a disk is one file")
	}
	return nil
}

// isFile reports whether a source is a file of the server.
func isFile(source string) bool {
	return strings.HasPrefix(source, "/") || strings.HasPrefix(source, "file:") ||
		strings.Contains(source, ":/") && !strings.Contains(source, "://")
}

// outside bounds which servers are reached for a caller.
func outside(who farm.Identity) *reach.Outside {
	if who.Root {
		return nil
	}
	return &reach.Outside{}
}

// Add brings an image into the catalogue. What was downloaded or uploaded stays when it breaks off, and the same
// request goes on from there. progress is told words for people.
func (c *Catalogue) Add(ctx context.Context, who farm.Identity, r Request, progress func(string)) (Details, error) {
	if err := c.allowed(ctx, who, r.Name); err != nil {
		return Details{}, err
	}
	if err := r.check(who); err != nil {
		return Details{}, err
	}
	files, err := c.Files()
	if err != nil {
		return Details{}, err
	}
	if !c.adding.TryLock() {
		progress("another image is being added; waiting for that")
		c.adding.Lock()
	}
	defer c.adding.Unlock()
	room, err := c.room()
	if err != nil {
		return Details{}, err
	}
	image, err := c.bring(ctx, who, files, r, room, progress)
	if err != nil {
		return Details{}, err
	}
	if used, err := files.Used(); err == nil && c.Limit > 0 && used > c.Limit {
		c.drop(ctx, image.Digest)
		return Details{}, c.full(used)
	}
	d, err := c.enter(ctx, who, r, image)
	if err != nil {
		c.drop(ctx, image.Digest)
		return Details{}, err
	}
	for _, f := range r.Files {
		os.RemoveAll(c.upload(f.Sum))
	}
	return d, nil
}

// allowed refuses what the caller may not do before anything is downloaded.
func (c *Catalogue) allowed(ctx context.Context, who farm.Identity, name string) error {
	return c.Actions.Look(ctx, who, policy.WriteImage, func(call *action.Call) error { return call.May(target(name)) })
}

// room is how much may come yet. Error: CodeCatalogueFull.
func (c *Catalogue) room() (farm.Bytes, error) {
	files, err := c.Files()
	if err != nil || c.Limit == 0 {
		return 0, err
	}
	used, err := files.Used()
	if err != nil {
		return 0, err
	}
	if used += c.uploaded(); used >= c.Limit {
		return 0, c.full(used)
	}
	return c.Limit - used, nil
}

func (c *Catalogue) full(used farm.Bytes) error {
	return &farm.Error{Kind: farm.NoCapacity, Code: CodeCatalogueFull,
		Message: fmt.Sprintf("the files of images would take %v of %v on this server", used, c.Limit),
		Hint:    "remove images that nobody needs, or raise `image_space` in the server's configuration"}
}

// bring makes an image of what the source or the uploads have.
func (c *Catalogue) bring(ctx context.Context, who farm.Identity, files vmimage.Exchange, r Request,
	room farm.Bytes, progress func(string)) (vmimage.Image, error) {
	if r.Source != "" {
		said := ""
		return files.Fetch(ctx, vmimage.FetchOptions{Name: r.Name, Source: r.Source, Sum: r.Sum, Sums: r.Sums,
			Signature: r.Signature, Keyring: r.Keyring, Most: room, Outside: outside(who),
			Progress: func(p vmimage.Progress) {
				if text := p.String(); text != said {
					said = text
					progress(text)
				}
			}})
	}
	dir, err := os.MkdirTemp(c.Dir, "parts-")
	if err != nil {
		return vmimage.Image{}, err
	}
	defer os.RemoveAll(dir)
	for _, f := range r.Files {
		if err := c.whole(ctx, f.Sum); err != nil {
			return vmimage.Image{}, err
		}
		if err := os.Link(filepath.Join(c.upload(f.Sum), uploadData), filepath.Join(dir, f.Name)); err != nil {
			return vmimage.Image{}, err
		}
	}
	from := dir
	if r.Files[0].Name == "disk" {
		from = filepath.Join(dir, "disk")
	}
	progress("checking the files")
	return files.Import(ctx, r.Name, from, nil)
}

// drop removes the files of an image that did not get into the catalogue, unless it is there already.
func (c *Catalogue) drop(ctx context.Context, digest string) {
	_, all, _, err := c.ForHosts(context.WithoutCancel(ctx))
	if err == nil && !has(all, digest) {
		c.discard(digest)
	}
}

// has reports whether the files of an image are to be kept.
func has(all []farm.FleetImage, digest string) bool {
	return slices.ContainsFunc(all, func(i farm.FleetImage) bool { return i.Digest == digest && !i.Removed })
}

// enter writes an image whose files are there into the catalogue. One that is known keeps its state.
func (c *Catalogue) enter(ctx context.Context, who farm.Identity, r Request, made vmimage.Image) (d Details,
	err error) {
	files, err := c.Files()
	if err != nil {
		return d, err
	}
	manifest, err := files.Manifest(made.Digest)
	if err != nil {
		return d, err
	}
	_, err = c.Actions.Change(context.WithoutCancel(ctx), who, policy.WriteImage, func(call *action.Call) error {
		if err := call.May(target(r.Name)); err != nil {
			return err
		}
		rows := store.ImagesOf(call.Tx)
		i, err := rows.Image(made.Digest)
		switch {
		case action.Missing(err):
			i = farm.FleetImage{Digest: made.Digest, State: farm.ImageActive, Created: call.Now, By: call.Caller()}
		case err != nil:
			return err
		}
		if i.State == farm.ImageWithdrawn {
			return i.Refused(r.Name) // it does not come back by another way
		}
		i.Kind, i.Format, i.Size, i.VirtualSize = string(made.Kind), made.Format, made.Size, made.VirtualSize
		i.Manifest, i.Removed = manifest, false
		if !slices.Contains(i.Servers, c.URL) {
			i.Servers = append(i.Servers, c.URL)
		}
		i.Source, i.Verdict = cmp.Or(r.Source, i.Source), verdict(r, made)
		i.Note, i.OS, i.MinDisk, i.MinMemory = r.Note, r.OS, r.MinDisk, r.MinMemory
		i.Properties, i.Projects = r.Properties, r.Projects
		for _, p := range i.Projects {
			if _, err := call.FindProject(p); err != nil {
				return err
			}
		}
		if err := rows.Put(i); err != nil {
			return err
		}
		if err := move(call, rows, r.Name, i.Digest); err != nil {
			return err
		}
		if err := call.Did("added " + i.Digest + ", " + i.Verdict); err != nil {
			return err
		}
		d, err = details(call, r.Name)
		return err
	})
	return d, err
}

// verdict is what vouches for the content of an image.
func verdict(r Request, made vmimage.Image) string {
	switch {
	case len(r.Files) > 0:
		return "uploaded"
	case made.SignedBy != "":
		return "signed by " + made.SignedBy
	case r.Sum+r.Sums != "":
		return "checksum " + made.SourceSum
	case made.SourceSum != "":
		return "the source's own checksum " + made.SourceSum
	}
	return "nothing: no checksum was given"
}
