package libvirt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	rpc "github.com/digitalocean/go-libvirt"

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

// journal is what is noted of machines, in a directory of root's alone.
type journal struct {
	dir  string // Config.RunDir
	pids pidFiles
}

// journalDir is below RunDir, and root's alone.
const journalDir = "machines"

func (j *journal) file(id string) string {
	return filepath.Join(j.dir, journalDir, id+".json")
}

// note writes an entry. The directory is on a file system that is empty after a boot.
func (j *journal) note(e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path := j.file(e.ID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600)
}

// read returns the entry of a machine; fs.ErrNotExist when there is none.
func (j *journal) read(id string) (entry, error) {
	if _, err := parseUUID(id); err != nil {
		return entry{}, fs.ErrNotExist
	}
	text, err := os.ReadFile(j.file(id))
	if err != nil {
		return entry{}, err
	}
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		return entry{}, fmt.Errorf("read %s: %w", j.file(id), err)
	}
	return e, nil
}

// all returns every entry that can be read; the error tells of the others.
func (j *journal) all() ([]entry, error) {
	files, err := os.ReadDir(filepath.Join(j.dir, journalDir))
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
		e, err := j.read(id)
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
func (j *journal) strike(id string) {
	e, err := j.read(id)
	if err != nil {
		return
	}
	if e.Profile {
		if p, err := j.pids.locate(e); err != nil || p != nil || unloadProfile(id) != nil {
			return // Sweep comes again
		}
	}
	j.removeSockets(e.Sockets)
	_ = os.Remove(j.file(id)) // an entry without a process names nothing that lives
}

// removeSockets removes sockets below RunDir. Whatever else is found at such a path stays, and no link leads out of
// RunDir.
func (j *journal) removeSockets(paths []string) {
	root, err := os.OpenRoot(j.dir)
	if err != nil {
		return
	}
	defer root.Close()
	for _, path := range paths {
		name, ok := j.below(path)
		if !ok {
			continue
		}
		if info, err := root.Lstat(name); err == nil && info.Mode().Type() == fs.ModeSocket {
			_ = root.Remove(name) // at worst a dead socket stays, which the next machine replaces
		}
	}
}

// below returns the name of a path relative to RunDir, and reports whether it lies there.
func (j *journal) below(path string) (name string, ok bool) {
	name, err := filepath.Rel(j.dir, path)
	return name, err == nil && filepath.Clean(path) == path && name != "." && filepath.IsLocal(name)
}

func (j *journal) anyBelow(paths []string) bool {
	for _, path := range paths {
		if _, ok := j.below(path); ok {
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

// entryOf reads what we note of a machine from its domain. Without metadata it is not ours.
func (j *journal) entryOf(d rpc.Domain, text string) (entry, []byte, error) {
	about, err := describe(text)
	if err != nil || about.metadata == nil || !j.anyBelow(about.sockets) || filepath.Base(d.Name) != d.Name {
		return entry{}, nil, err
	}
	return entry{ID: formatUUID(d.UUID), Name: d.Name, UID: about.uid, Emulator: about.emulator, Sockets: about.sockets,
		Profile: about.profile}, about.metadata, nil
}
