// Package filesystems holds VMs back whose directories are of a network file system that is drained, around its
// maintenance.
package filesystems

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts"
)

// CodeDrained is of a VM that may not start, or was ended, as a file system of its directories is drained.
const CodeDrained farm.Code = "file-system-drained"

// unread is the drain that stands for those of a file that cannot be read: it is not known which file systems are in
// maintenance.
const unread = "unreadable"

// Drains are those of one host: its own and the server's. They are on disk before they hold and until they are ended,
// across restarts and reboots.
type Drains struct {
	mu   sync.Mutex
	file string
	log  *slog.Logger
	all  []api.FileSystemDrain // by name, the host's own first; a name may be there twice
}

// Open goes on with the drains of an earlier agent.
func (d *Drains) Open(file string, log *slog.Logger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file, d.log = file, log
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(text, &d.all)
	}
	if err != nil {
		log.Error("drains of file systems cannot be read: all are taken as drained", "file", file, "error", err)
		d.all = []api.FileSystemDrain{{Name: unread, Match: api.FileSystemMatch{MountPoint: "/*"},
			Reason: file + " cannot be read; `grange mount resume " + unread + "`", Since: time.Now()}}
	}
	for _, o := range d.all {
		log.Warn("file system drained", "name", o.Name, "reason", o.Reason)
	}
}

// Put begins a drain of this host, or changes it: since when it is drained stays.
func (d *Drains) Put(o api.FileSystemDrain) (api.FileSystemDrain, error) {
	o.VMs, o.Fleet = nil, false
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Clone(d.all)
	i := slices.IndexFunc(all, own(o.Name))
	if i >= 0 {
		o.Since = all[i].Since
		all[i] = o
	} else {
		all = append(all, o)
	}
	return o, d.setLocked(all)
}

// End ends a drain of this host.
func (d *Drains) End(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(d.all), own(name))
	if len(all) < len(d.all) {
		return d.setLocked(all)
	}
	err := &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoFileSystem,
		Message: fmt.Sprintf("file system %q is not drained on this host", name),
		Hint:    "`grange mount list` shows what is"}
	if slices.ContainsFunc(all, func(o api.FileSystemDrain) bool { return o.Name == name }) {
		err.Message, err.Hint = "it is the server that drains file system "+name, "end it there"
	}
	return err
}

// FromServer takes over what the server drains, which is all of it.
func (d *Drains) FromServer(list []api.FileSystemDrain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(d.all), func(o api.FileSystemDrain) bool { return o.Fleet })
	for _, o := range list {
		o.VMs, o.Fleet = nil, true
		all = append(all, o)
	}
	if err := d.setLocked(all); err != nil {
		d.log.Error("drains of the server are not kept for the next start", "error", err)
		d.all = all
	}
}

func own(name string) func(api.FileSystemDrain) bool {
	return func(o api.FileSystemDrain) bool { return o.Name == name && !o.Fleet }
}

func (d *Drains) setLocked(all []api.FileSystemDrain) error {
	slices.SortStableFunc(all, func(a, b api.FileSystemDrain) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), map[bool]int{true: 1}[a.Fleet]-map[bool]int{true: 1}[b.Fleet])
	})
	if len(all) == len(d.all) && (len(all) == 0 || reflect.DeepEqual(all, d.all)) {
		return nil
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = atomicfile.Write(d.file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the drains of file systems: %w", err)
	}
	names := []string{}
	for _, o := range all {
		names = append(names, o.Name)
	}
	d.log.Info("drained file systems", "names", names)
	d.all = all
	return nil
}

// List are all drains.
func (d *Drains) List() []api.FileSystemDrain {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]api.FileSystemDrain{}, d.all...)
}

// Refusal is why a VM whose jobs use these may not start now; nil: it may.
func (d *Drains) Refusal(all []Used) error {
	return d.first(all, func(api.FileSystemDrain) bool { return true }, farm.NoCapacity,
		"no VM starts with directories of file system")
}

// Overdue is why a VM whose jobs use these ends now; nil: it does not.
func (d *Drains) Overdue(all []Used, now time.Time) error {
	due := func(o api.FileSystemDrain) bool { return o.Deadline != nil && !now.Before(*o.Deadline) }
	return d.first(all, due, farm.Unavailable, "the VM was ended at the deadline of the drain of file system")
}

// first is the error of the first drain that counts and holds for one of these.
func (d *Drains) first(all []Used, counts func(api.FileSystemDrain) bool, kind farm.Kind, what string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.all {
		if !counts(o) || !Uses(all, o) {
			continue
		}
		text := what + " " + o.Name + ": " + cmp.Or(o.Reason, "it is drained")
		if o.Until != nil {
			text += ", until about " + o.Until.Local().Format("2006-01-02 15:04")
		}
		return &farm.Error{Kind: kind, Code: CodeDrained, Message: text,
			Hint: "run it again when that is over; or bind no directory of the file system"}
	}
	return nil
}

// Uses reports whether one of these is of the file system that is drained.
func Uses(all []Used, o api.FileSystemDrain) bool {
	return slices.ContainsFunc(all, func(u Used) bool { return u.has(mounts.Match(o.Match)) })
}

// Complete is a drain as it is kept, of a request: one by a source or a mount point has no match of its own.
func Complete(d api.FileSystemDrain, now time.Time) (api.FileSystemDrain, error) {
	d.Since, d.VMs, d.Fleet = now, nil, false
	if d.Match == (api.FileSystemMatch{}) {
		d.Match.Source = d.Name
		if strings.HasPrefix(d.Name, "/") && !strings.HasPrefix(d.Name, "//") {
			d.Match = api.FileSystemMatch{MountPoint: d.Name}
		}
	}
	for _, text := range []string{d.Name, d.Reason, d.Match.Source, d.Match.Type, d.Match.MountPoint} {
		if len(text) > mostText || farm.Printable(text) != text {
			return d, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
				Message: fmt.Sprintf("%.40q is not one line of at most %d bytes", text, mostText), Hint: "make it shorter"}
		}
	}
	if d.Name == "" {
		return d, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: "a drain of no file system",
			Hint: "name one of `grange mount list`"}
	}
	return d, nil
}

// mostText bounds a name or a reason, in bytes.
const mostText = 200
