// Package catalogue is a host's images as its administrators and users see them: in the words of the API.
package catalogue

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/transfers"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

// Catalogue shows and changes the images of a store.
type Catalogue struct {
	Images    *vmimage.Store
	GuestFile string               // grange-guest, for images that are built
	Transfers *transfers.Transfers // of images within the fleet; nil: there is none
	// Users are the VMs that read from the image with this digest.
	Users func(digest string) []string
}

// List returns all images that have a name.
func (c *Catalogue) List() ([]api.Image, error) {
	list, err := c.Images.List()
	if err != nil {
		return nil, err
	}
	out := []api.Image{}
	for _, i := range list {
		out = append(out, view(i))
	}
	return out, nil
}

func view(i vmimage.Image) api.Image {
	v := api.Image{Name: i.Name, Kind: string(i.Kind), Digest: i.Digest, Size: uint64(i.Size), Created: i.Created,
		Note: i.Description, Site: i.Site, Source: i.Source, SignedBy: i.SignedBy, Successor: i.Mark.Successor,
		Reason: i.Mark.Reason, Pinned: i.Mark.Pinned}
	if i.Mark.State != vmimage.Active {
		v.State = string(i.Mark.State)
	}
	return v
}

// Show returns an image, what its name has meant, and who uses it.
func (c *Catalogue) Show(ref string) (api.ImageDetails, error) {
	i, err := c.Images.Get(ref)
	if err != nil {
		return api.ImageDetails{}, err
	}
	return c.details(i)
}

func (c *Catalogue) details(i vmimage.Image) (api.ImageDetails, error) {
	d := api.ImageDetails{Image: view(i), VMs: c.Users(i.Digest)}
	if i.Name == "" {
		return d, nil
	}
	history, err := c.Images.History(i.Name)
	for _, v := range history {
		_, gone := c.Images.Get(v.Digest)
		d.Versions = append(d.Versions, api.ImageVersion{Digest: v.Digest, Since: v.Since, Stored: gone == nil})
	}
	return d, err
}

// Make builds the micro image, imports a file or directory, or fetches an image from its source.
func (c *Catalogue) Make(ctx context.Context, r api.ImageRequest, progress func(string)) (api.Image, error) {
	i, err := c.make(ctx, r, progress)
	if err == nil && r.Site {
		i, err = c.Images.Vouch(r.Name)
	}
	return view(i), err
}

// Check refuses what Make would refuse before it begins.
func Check(r api.ImageRequest) error {
	switch {
	case r.Path != "" && !filepath.IsAbs(r.Path):
		return invalid("path %q is not absolute", r.Path)
	case r.Path != "" && r.Source != "":
		return invalid("an image has a path or a source, not both")
	}
	return vmimage.CheckName(r.Name)
}

func (c *Catalogue) make(ctx context.Context, r api.ImageRequest, progress func(string)) (vmimage.Image, error) {
	switch {
	case r.Path != "":
		return c.Images.Import(ctx, r.Name, r.Path, percent("copied", progress))
	case strings.HasPrefix(r.Source, fleetPrefix):
		return c.fromFleet(ctx, r.Name, r.Source, steps(progress))
	case r.Source != "":
		return c.Images.Fetch(ctx, vmimage.FetchOptions{Name: r.Name, Source: r.Source, Sum: r.Sum, Sums: r.Sums,
			Signature: r.Signature, Keyring: r.Keyring, Progress: steps(progress)})
	}
	return c.Images.BuildMicro(ctx, vmimage.BuildOptions{Name: r.Name, GuestBinary: c.GuestFile,
		Packages: r.Packages, Progress: progress})
}

// Mark changes the state of an image. A withdrawn image ends no VM: the answer names those that use it.
func (c *Catalogue) Mark(ref string, m api.ImageMark) (api.ImageDetails, error) {
	if s := m.State; s != nil {
		switch vmimage.State(*s) {
		case vmimage.Active, vmimage.Deprecated, vmimage.Withdrawn:
		default:
			return api.ImageDetails{}, invalid("invalid state %q of an image: active, deprecated or withdrawn", *s)
		}
	}
	i, err := c.Images.SetMark(ref, func(mark *vmimage.Mark) { change(mark, m) })
	if err != nil {
		return api.ImageDetails{}, err
	}
	return c.details(i)
}

func change(mark *vmimage.Mark, m api.ImageMark) {
	if m.State != nil {
		mark.State = vmimage.State(*m.State)
		mark.Successor, mark.Reason = "", "" // they were of the state before
	}
	if m.Successor != nil {
		mark.Successor = *m.Successor
	}
	if m.Reason != nil {
		mark.Reason = *m.Reason
	}
	if m.Pinned != nil {
		mark.Pinned = *m.Pinned
	}
}

// Tag gives an image one more name, or the name of another.
func (c *Catalogue) Tag(ref, name string) (api.ImageDetails, error) {
	i, err := c.Images.Tag(ref, name)
	if err != nil {
		return api.ImageDetails{}, err
	}
	return c.details(i)
}

// mostAge bounds the time without use of a purge.
const mostAge = 100 * 365 * 24 * time.Hour

// Purge removes images that nobody needs. What was removed before an error is returned with it.
func (c *Catalogue) Purge(p api.ImagePurge) ([]api.ImagePurged, error) {
	if p.UnusedSeconds < 0 || p.UnusedSeconds > int64(mostAge/time.Second) {
		return nil, invalid("invalid time without use: %d s", p.UnusedSeconds)
	}
	purged, err := c.Images.Purge(vmimage.PurgeOptions{InUse: c.InUse, DryRun: p.DryRun,
		Unused: time.Duration(p.UnusedSeconds) * time.Second, Free: farm.Bytes(p.Free)})
	out := []api.ImagePurged{}
	for _, i := range purged {
		out = append(out, api.ImagePurged{Names: i.Names, Digest: i.Digest, Size: uint64(i.Size),
			LastUsed: i.LastUsed, Reason: i.Reason})
	}
	return out, err
}

// InUse reports whether a VM reads from the image with this digest.
func (c *Catalogue) InUse(digest string) bool { return len(c.Users(digest)) > 0 }

// percent reports a copy at every tenth.
func percent(done string, progress func(string)) func(done, total farm.Bytes) {
	reported := -1
	return func(n, total farm.Bytes) {
		if total == 0 {
			return
		}
		if tenth := int(10 * float64(n) / float64(total)); tenth > reported {
			reported = tenth
			progress(fmt.Sprintf("%s %d %% of %s", done, 10*tenth, total))
		}
	}
}

// steps reports a fetch: each step, its tenths, and why nothing comes.
func steps(progress func(string)) func(vmimage.Progress) {
	texts := map[string]string{"download": "downloading", "verify": "verifying the checksum", "import": "importing"}
	step, tenths := "", func(n, total farm.Bytes) {}
	return func(p vmimage.Progress) {
		if p.Step != step {
			step, tenths = p.Step, percent(p.Step+":", progress)
			progress(texts[step])
		}
		if p.Note != "" {
			progress(p.Note)
		}
		tenths(p.Done, p.Total)
	}
}

func invalid(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: fmt.Sprintf(format, args...),
		Hint: "see `grange image --help`"}
}
