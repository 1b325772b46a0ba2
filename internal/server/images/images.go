// Package images is the catalogue of the fleet's images: what their names mean, who may use them, their files, which
// hosts have a copy of all that, and what those are to fetch and to remove.
package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/vmimage"
)

// Codes of errors of the catalogue; see docs/errors.md.
const (
	CodeCatalogueFull farm.Code = "catalogue-full"    // the files of images take all that they may
	CodeNoFiles       farm.Code = "no-catalogue"      // this server keeps no files of images
	CodeUpload        farm.Code = "bad-upload"        // a piece of an upload that does not fit
	CodeBadImage      farm.Code = "bad-catalogue"     // what is said of an image makes no sense
	CodeImageSmall    farm.Code = "vm-below-image"    // a VM is smaller than its image needs
	CodeImageProject  farm.Code = "image-of-projects" // the image is for other projects
	CodeNoTargets     farm.Code = "no-such-hosts"     // no host is chosen
)

// Options is what a catalogue is made of.
type Options struct {
	Actions action.Actions
	Store   *store.Store
	Log     *slog.Logger
	Now     func() time.Time
	URL     string       // by which hosts reach this server
	Dir     string       // where the files are; "": this server keeps none
	Limit   farm.Bytes   // the most that they may take; 0: as the file system has
	Pace    vmimage.Pace // of downloads from sources; nil: none
	Silent  func(farm.Host) bool
}

// Catalogue is the catalogue of one server. What it says of images is in the store; the files are in a directory.
type Catalogue struct {
	Options

	mu        sync.Mutex
	files     *vmimage.Store // opened when it is needed first
	uploading sync.Mutex     // held while a piece of an upload is written
	adding    sync.Mutex     // held while it is counted what the files take
}

// New makes a catalogue. Nothing is opened yet.
func New(o Options) *Catalogue { return &Catalogue{Options: o} }

// Files is the store of the files. Error: CodeNoFiles.
func (c *Catalogue) Files() (vmimage.Exchange, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files != nil {
		return vmimage.Exchange{Store: c.files}, nil
	}
	if c.Dir == "" {
		return vmimage.Exchange{}, &farm.Error{Kind: farm.Unavailable, Code: CodeNoFiles,
			Message: "this server keeps no files of images", Hint: "set `image_dir` in its configuration"}
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, uploadsDir), 0o700); err != nil {
		return vmimage.Exchange{}, err
	}
	files, err := vmimage.Open(filepath.Join(c.Dir, "store"))
	if err == nil {
		vmimage.SetPace(files, c.Pace)
		c.files = files
	}
	return vmimage.Exchange{Store: files}, err
}

// Close gives the directory back.
func (c *Catalogue) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		return nil
	}
	err := c.files.Close()
	c.files = nil
	return err
}

// View is an image under one of its names, as people see it.
type View struct {
	farm.FleetImage
	Name  string
	Hosts int // that have it
}

// Details are a View with all else that is known of an image.
type Details struct {
	View
	Names    []string
	Versions []Version
	Holders  []string // hosts that have it
	VMs      []string // as PROJECT/NAME
	Jobs     int
}

// Version is what a name has meant.
type Version struct {
	farm.ImageVersion
	Stored bool // its files are there
}

// List are all images under all their names, and how many hosts have each.
func (c *Catalogue) List(ctx context.Context, who farm.Identity) (views []View, err error) {
	err = c.Actions.Look(ctx, who, policy.ReadCatalogue, func(call *action.Call) error {
		if err := call.May(policy.Target{Name: "images"}); err != nil {
			return err
		}
		rows := store.ImagesOf(call.Tx)
		all, err := rows.All()
		if err != nil {
			return err
		}
		names, err := rows.Names()
		if err != nil {
			return err
		}
		views = nil
		for _, n := range names {
			if i := slices.IndexFunc(all, func(v farm.FleetImage) bool { return v.Digest == n.Digest }); i >= 0 {
				views = append(views, View{FleetImage: all[i], Name: n.Name})
			}
		}
		return nil
	})
	return views, err
}

// Show is one image, by name or digest.
func (c *Catalogue) Show(ctx context.Context, who farm.Identity, ref string) (d Details, err error) {
	err = c.Actions.Look(ctx, who, policy.ReadCatalogue, func(call *action.Call) error {
		if err := call.May(policy.Target{Name: "images"}); err != nil {
			return err
		}
		d, err = details(call, ref)
		return err
	})
	return d, err
}

// details looks an image up, and who has and uses it: what the caller may see of that.
func details(call *action.Call, ref string) (d Details, err error) {
	rows := store.ImagesOf(call.Tx)
	image, name, err := find(rows, ref)
	if err != nil {
		return d, err
	}
	d.FleetImage, d.Name = image, name.Name
	for _, v := range name.Versions {
		i, err := rows.Image(v.Digest)
		if err != nil && !action.Missing(err) {
			return d, err
		}
		d.Versions = append(d.Versions, Version{v, err == nil && !i.Removed})
	}
	names, err := rows.Names()
	if err != nil {
		return d, err
	}
	for _, n := range names {
		if n.Digest == image.Digest {
			d.Names = append(d.Names, n.Name)
		}
	}
	if err := holders(call, &d); err != nil {
		return d, err
	}
	vms, err := call.VMs(store.VMFilter{})
	for _, vm := range vms {
		if uses(vm, image.Digest) && call.Sees(vm) {
			d.VMs = append(d.VMs, action.Label(vm))
		}
	}
	return d, err
}

// holders enters which hosts have an image, and what they run of it beside cloud VMs.
func holders(call *action.Call, d *Details) error {
	hosts, err := call.Hosts("")
	for _, h := range hosts {
		if !slices.Contains(h.Facts.Images, d.Digest) {
			continue
		}
		d.Hosts++
		if !call.SeesHost(h) {
			continue
		}
		d.Holders = append(d.Holders, h.Name)
		for _, u := range h.Facts.ImageUse {
			if u.Digest == d.Digest {
				d.Jobs += u.Jobs
			}
		}
	}
	return err
}

// uses reports whether a VM is made of an image, or is to be.
func uses(vm farm.VM, digest string) bool {
	return vm.Wanted.Power != farm.PowerDeleted && (vm.Observed.Digest == digest || vm.Digest == digest)
}

// find looks an image up by name, digest, or the first digits of its digest. name is what ref is, or the zero value.
func find(rows store.Images, ref string) (image farm.FleetImage, name farm.ImageName, err error) {
	if name, err = rows.Name(ref); err == nil {
		image, err = rows.Image(name.Digest)
		return image, name, err
	}
	if !action.Missing(err) {
		return image, name, err
	}
	all, err := rows.All()
	if err != nil {
		return image, name, err
	}
	var fits []farm.FleetImage
	if hex := strings.TrimPrefix(ref, "sha256:"); len(hex) >= 4 {
		for _, i := range all {
			if strings.HasPrefix(i.Digest, "sha256:"+hex) {
				fits = append(fits, i)
			}
		}
	}
	switch len(fits) {
	case 0:
		return image, name, missing(rows, ref)
	case 1:
		return fits[0], farm.ImageName{}, nil
	}
	return image, name, &farm.Error{Kind: farm.Invalid, Code: vmimage.CodeManyImages,
		Message: fmt.Sprintf("%q fits %d images", ref, len(fits)), Hint: "give more digits of the digest"}
}

// missing is the error of a name that the catalogue does not have.
func missing(rows store.Images, ref string) error {
	names, err := rows.Names()
	if err != nil {
		return err
	}
	var all []string
	for _, n := range names {
		all = append(all, n.Name)
	}
	e := farm.NoImageNamed(ref, all)
	if own, ok := errors.AsType[*farm.Error](e); ok {
		own.Message = fmt.Sprintf("the fleet's catalogue has no image %.80q", ref)
		own.Hint += "; --local is for the images of this host"
	}
	return e
}

// Entry is an image by its digest; empty where the catalogue has none.
func Entry(t *store.Tx, digest string) (farm.FleetImage, error) {
	image, err := store.ImagesOf(t).Image(digest)
	if action.Missing(err) {
		return farm.FleetImage{}, nil
	}
	return image, err
}

// Resolve is what an image is to new VMs of a project, by its name or whole digest. The zero value: the catalogue has
// no such image, and hosts may have one of their own.
func Resolve(t *store.Tx, ref, project string) (image farm.FleetImage, err error) {
	rows, digest := store.ImagesOf(t), ref
	name, err := rows.Name(ref)
	switch {
	case err == nil:
		digest = name.Digest
	case !action.Missing(err):
		return image, err
	}
	image, err = rows.Image(digest)
	if action.Missing(err) {
		return farm.FleetImage{}, nil
	}
	if err != nil {
		return image, err
	}
	if len(image.Projects) > 0 && !slices.Contains(image.Projects, project) {
		return image, &farm.Error{Kind: farm.Denied, Code: CodeImageProject,
			Message: fmt.Sprintf("image %.80s is for VMs of %s, not of project %s", ref,
				strings.Join(image.Projects, ", "), project), Hint: "name another image, or ask an administrator"}
	}
	if err := image.Refused(ref); err != nil || !image.Removed {
		return image, err
	}
	return image, gone(ref)
}

// MayStart refuses to start a VM that was made of an image which is withdrawn by now.
func MayStart(t *store.Tx, vm farm.VM) error {
	digest := vm.Observed.Digest
	if digest == "" {
		digest = vm.Digest
	}
	if digest == "" {
		return nil
	}
	image, err := store.ImagesOf(t).Image(digest)
	if action.Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return image.Refused(vm.Image)
}

// OpenBlob opens a file of an image for a host, by its checksum in hex.
func (c *Catalogue) OpenBlob(sum string) (*os.File, error) {
	files, err := c.Files()
	if err != nil {
		return nil, err
	}
	return files.OpenBlob(sum)
}

// ForHosts is all that hosts know of the catalogue, with the revision at which it is so.
func (c *Catalogue) ForHosts(ctx context.Context) (revision int64, all []farm.FleetImage, names []farm.ImageName,
	err error) {
	err = c.Store.View(ctx, func(t *store.Tx) error {
		rows := store.ImagesOf(t)
		if revision, err = rows.Changed(); err != nil {
			return err
		}
		if all, err = rows.All(); err != nil {
			return err
		}
		names, err = rows.Names()
		return err
	})
	return revision, all, names, err
}
