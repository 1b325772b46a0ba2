package libvirt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/hyper"
)

// entry is what we write down of a machine before libvirt makes it. It is how a machine is known again, daemon or no
// daemon: nothing that a process says of itself, such as its command line, name or open sockets, is ever believed.
type entry struct {
	ID, Name string
	UID      int      // that its QEMU runs as
	Emulator string   // the program
	Sockets  []string // made for it: console and ports
	Profile  bool     `json:",omitempty"` // its AppArmor profile is ours
}

// journalDir is below RunDir, and root's alone.
const journalDir = "machines"

func (l *Libvirt) entryFile(id string) string {
	return filepath.Join(l.cfg.RunDir, journalDir, id+".json")
}

// note writes an entry. The directory is on a file system that is empty after a boot.
func (l *Libvirt) note(e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path := l.entryFile(e.ID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600)
}

// noted returns the entry of a machine; fs.ErrNotExist when there is none.
func (l *Libvirt) noted(id string) (entry, error) {
	if _, err := parseUUID(id); err != nil {
		return entry{}, fs.ErrNotExist
	}
	text, err := os.ReadFile(l.entryFile(id))
	if err != nil {
		return entry{}, err
	}
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		return entry{}, fmt.Errorf("read %s: %w", l.entryFile(id), err)
	}
	return e, nil
}

// allNoted returns every entry that can be read; the error tells of the others.
func (l *Libvirt) allNoted() ([]entry, error) {
	files, err := os.ReadDir(filepath.Join(l.cfg.RunDir, journalDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []entry
	var errs []error
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok {
			continue // half written
		}
		e, err := l.noted(id)
		switch {
		case err == nil:
			all = append(all, e)
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// strike removes the entry of a machine that is gone, its AppArmor profile, and the sockets that it names: libvirt made
// them, and QEMU does not know their paths.
func (l *Libvirt) strike(id string) {
	e, err := l.noted(id)
	if err != nil {
		return
	}
	if e.Profile {
		if p, err := l.locate(e); err != nil || p != nil || unloadProfile(id) != nil {
			return // Sweep comes again
		}
	}
	l.removeSockets(e.Sockets)
	_ = os.Remove(l.entryFile(id)) // an entry without a process names nothing that lives
}

// removeSockets removes sockets below RunDir. Whatever else is found at such a path stays, and no link leads out of
// RunDir.
func (l *Libvirt) removeSockets(paths []string) {
	root, err := os.OpenRoot(l.cfg.RunDir)
	if err != nil {
		return
	}
	defer root.Close()
	for _, path := range paths {
		name, ok := l.below(path)
		if !ok {
			continue
		}
		if info, err := root.Lstat(name); err == nil && info.Mode().Type() == fs.ModeSocket {
			_ = root.Remove(name) // at worst a dead socket stays, which the next machine replaces
		}
	}
}

// below returns the name of a path relative to RunDir, and reports whether it lies there.
func (l *Libvirt) below(path string) (name string, ok bool) {
	name, err := filepath.Rel(l.cfg.RunDir, path)
	return name, err == nil && filepath.Clean(path) == path && name != "." && filepath.IsLocal(name)
}

func (l *Libvirt) anyBelow(paths []string) bool {
	for _, path := range paths {
		if _, ok := l.below(path); ok {
			return true
		}
	}
	return false
}

func socketsOf(m hyper.Machine) []string {
	var paths []string
	if m.Console != "" {
		paths = append(paths, m.Console)
	}
	for _, p := range m.Ports {
		paths = append(paths, p.Path)
	}
	return paths
}
