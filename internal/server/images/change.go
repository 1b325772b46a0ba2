package images

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/vmimage"
)

// change runs an action on the image that ref means, and returns the image as it is then.
func (c *Catalogue) change(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	do func(call *action.Call, rows store.Images, i *farm.FleetImage) (again, reason string, err error)) (d Details,
	err error) {
	_, err = c.Actions.Change(ctx, who, policy.WriteImage, func(call *action.Call) error {
		if err := call.May(target(ref)); err != nil {
			return err
		}
		rows := store.ImagesOf(call.Tx)
		i, _, err := find(rows, ref)
		if err != nil {
			return err
		}
		if err := call.Still("image "+ref, call.Target, i.Revision, ifRevision); err != nil {
			return err
		}
		shown, reason, err := do(call, rows, &i)
		if err != nil {
			return err
		}
		if err := call.Did(reason); err != nil {
			return err
		}
		d, err = details(call, shown)
		return err
	})
	return d, err
}

func target(ref string) policy.Target {
	return policy.Target{Name: "image " + farm.Printable(fmt.Sprintf("%.80s", ref))}
}

// Tag gives an image a name, which another one may have had.
func (c *Catalogue) Tag(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	name string) (Details, error) {
	return c.change(ctx, who, ref, ifRevision, func(call *action.Call, rows store.Images,
		i *farm.FleetImage) (again, reason string, err error) {
		if err := vmimage.CheckName(name); err != nil {
			return "", "", err
		}
		if i.Removed {
			return "", "", gone(ref)
		}
		if err := move(call, rows, name, i.Digest); err != nil {
			return "", "", err
		}
		return name, "named " + name, nil
	})
}

func gone(ref string) error {
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoImage,
		Message: fmt.Sprintf("the files of image %.80s were removed", ref),
		Hint:    "add it again: `grange image add`"}
}

// move has a name mean an image.
func move(call *action.Call, rows store.Images, name, digest string) error {
	n, err := rows.Name(name)
	if err != nil && !action.Missing(err) {
		return err
	}
	n.Name = name
	if !n.Move(digest, call.Caller(), call.Now) {
		return nil
	}
	return rows.PutName(n)
}

// Mark is what changes of the state of an image; nil stays.
type Mark struct{ State, Successor, Reason *string }

// Mark changes the state of an image, under all its names. VMs that run are left alone: the answer names them.
func (c *Catalogue) Mark(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	m Mark) (Details, error) {
	return c.change(ctx, who, ref, ifRevision, func(_ *action.Call, rows store.Images,
		i *farm.FleetImage) (again, reason string, err error) {
		if m.State != nil {
			state := farm.ImageState(*m.State)
			states := []farm.ImageState{farm.ImageActive, farm.ImageDeprecated, farm.ImageWithdrawn}
			if !slices.Contains(states, state) {
				return "", "", badImage("invalid state %.40q of an image: active, deprecated or withdrawn", *m.State)
			}
			if i.Removed && state != farm.ImageWithdrawn {
				return "", "", gone(ref)
			}
			i.State, i.Successor, i.Reason = state, "", "" // they were of the state before
		}
		if m.Successor != nil {
			i.Successor = farm.Printable(*m.Successor)
		}
		if m.Reason != nil {
			i.Reason = farm.Printable(*m.Reason)
		}
		return ref, strings.TrimSuffix(string(i.State)+": "+i.Reason, ": "), rows.Put(*i)
	})
}

// Remove takes a name away, or, by its digest, an image with all its names. With the last name the files go, too. The
// image stays known: hosts go on to refuse what is withdrawn, and to keep it to its projects, and remove their copies.
func (c *Catalogue) Remove(ctx context.Context, who farm.Identity, ref string, ifRevision int64) error {
	digest := ""
	_, err := c.Actions.Change(ctx, who, policy.WriteImage, func(call *action.Call) error {
		digest = ""
		if err := call.May(target(ref)); err != nil {
			return err
		}
		rows := store.ImagesOf(call.Tx)
		i, name, err := find(rows, ref)
		if err != nil {
			return err
		}
		if err := call.Still("image "+ref, call.Target, i.Revision, ifRevision); err != nil {
			return err
		}
		left, err := unname(rows, i.Digest, name.Name)
		if err != nil {
			return err
		}
		if left == 0 {
			if err := c.forget(call, rows, i); err != nil {
				return err
			}
			digest = i.Digest
		}
		return call.Did("removed")
	})
	if err == nil && digest != "" {
		c.discard(digest)
	}
	return err
}

// unname takes a name of an image away, or all where it is "". It returns how many are left.
func unname(rows store.Images, digest, name string) (left int, err error) {
	names, err := rows.Names()
	if err != nil {
		return 0, err
	}
	for _, n := range names {
		switch {
		case n.Digest != digest:
		case name == "" || n.Name == name:
			if err := rows.DeleteName(n.Name); err != nil {
				return 0, err
			}
		default:
			left++
		}
	}
	return left, nil
}

// forget drops an image that no VM is to be made of any more.
func (c *Catalogue) forget(call *action.Call, rows store.Images, i farm.FleetImage) error {
	vms, err := call.VMs(store.VMFilter{})
	if err != nil {
		return err
	}
	for _, vm := range vms {
		if uses(vm, i.Digest) {
			return &farm.Error{Kind: farm.Conflict, Code: farm.CodeImageInUse,
				Message: fmt.Sprintf("VM %s is made of image %s", action.Label(vm), i.Digest),
				Hint:    "`grange image show` lists all; delete them, or only withdraw the image"}
		}
	}
	i.Removed, i.Servers, i.Manifest = true, nil, nil
	return rows.Put(i)
}

// discard removes files that no row names any more. What stays costs space alone, and is removed by sweep.
func (c *Catalogue) discard(digest string) {
	files, err := c.Files()
	if err == nil {
		err = files.Discard(digest, nil)
	}
	if err != nil && !farm.IsCode(err, farm.CodeNoImage) && !farm.IsCode(err, CodeNoFiles) {
		c.Log.Warn("files of an image stay", "digest", digest, "error", err)
	}
}

// Sweep removes files of images that were removed by another server, or by one that was killed at it.
func (c *Catalogue) Sweep(ctx context.Context) error {
	files, err := c.Files()
	if farm.IsCode(err, CodeNoFiles) {
		return nil
	}
	if err != nil {
		return err
	}
	c.adding.Lock() // what is being added has files first
	defer c.adding.Unlock()
	there, err := files.Digests()
	if err != nil {
		return err
	}
	_, all, _, err := c.ForHosts(ctx)
	if err != nil {
		return err
	}
	for _, digest := range there {
		if !has(all, digest) {
			err = errors.Join(err, files.Discard(digest, nil))
		}
	}
	return errors.Join(err, c.sweepUploads())
}

// matching are the names that a pattern chooses, and whatever they have meant; or one image by its digest.
func matching(rows store.Images, pattern string) (digests []string, err error) {
	if i, _, err := find(rows, pattern); err == nil && strings.HasPrefix(pattern, "sha256:") {
		return []string{i.Digest}, nil
	}
	names, err := rows.Names()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		ok, err := path.Match(pattern, n.Name)
		if err != nil {
			return nil, badImage("invalid pattern %.80q", pattern)
		}
		if !ok {
			continue
		}
		for _, v := range n.Versions {
			if !slices.Contains(digests, v.Digest) {
				digests = append(digests, v.Digest)
			}
		}
	}
	if digests == nil {
		return nil, missing(rows, pattern)
	}
	return digests, nil
}
