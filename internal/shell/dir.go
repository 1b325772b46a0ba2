package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
)

// Sessions are those of one user on this host. They are in a directory of the user's own below Base, with a name that
// nobody could have taken before: as those of screen and tmux are in /tmp. /run/user goes when a user logs out.
type Sessions struct {
	Base string // "/tmp"
	User int    // whose they are
}

// Mine are the sessions of whoever runs this process.
func Mine() Sessions { return Sessions{Base: "/tmp", User: os.Getuid()} }

const (
	socketSuffix = ".socket"
	endedSuffix  = ".ended"
)

// dirs are the directories with sessions of this user. One of somebody else, or that others may write to, is none.
func (s Sessions) dirs() []string {
	found, _ := filepath.Glob(filepath.Join(s.Base, fmt.Sprintf("grange-shell-%d-*", s.User)))
	return slices.DeleteFunc(found, func(dir string) bool {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
			return true
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		return !ok || int(stat.Uid) != s.User
	})
}

// dir is where to put a new session.
func (s Sessions) dir() (string, error) {
	if there := s.dirs(); len(there) > 0 {
		return there[0], nil
	}
	return os.MkdirTemp(s.Base, fmt.Sprintf("grange-shell-%d-*", s.User))
}

// files are the paths of all sessions' files with a suffix, by the sessions' IDs.
func (s Sessions) files(suffix string) map[string]string {
	all := map[string]string{}
	for _, dir := range s.dirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if id, ok := strings.CutSuffix(e.Name(), suffix); ok {
				all[id] = filepath.Join(dir, e.Name())
			}
		}
	}
	return all
}

// List returns the sessions that run, and those that have ended while nobody was attached, the oldest first.
func (s Sessions) List() []Session {
	all := []Session{}
	for _, path := range s.files(socketSuffix) {
		if session, err := ask(path, message{}); err == nil {
			all = append(all, session)
		} else if errors.Is(err, syscall.ECONNREFUSED) { // its process was killed
			os.Remove(path)
			os.Remove(filepath.Dir(path)) // unless there are others
		}
	}
	for _, path := range s.files(endedSuffix) {
		if e, err := readEnded(path); err == nil {
			all = append(all, e.Session)
		}
	}
	slices.SortFunc(all, func(a, b Session) int { return a.Started.Compare(b.Started) })
	return all
}

// find returns the socket of a session by the start of its ID, or its end; with "" the only one there is. Where several
// run, and one could be meant, nothing is guessed.
func (s Sessions) find(ref string) (id string, ended bool, err error) {
	var fit []Session
	for _, session := range s.List() {
		if strings.HasPrefix(session.ID, ref) {
			fit = append(fit, session)
		}
	}
	if runs := slices.DeleteFunc(slices.Clone(fit), func(x Session) bool { return x.Ended != nil }); ref == "" &&
		len(runs) > 0 {
		fit = runs
	}
	switch {
	case len(fit) == 1:
		return fit[0].ID, fit[0].Ended != nil, nil
	case len(fit) > 1:
		return "", false, &farm.Error{Kind: farm.Invalid, Code: CodeNoShell,
			Message: fmt.Sprintf("%d of your sessions on this host could be meant", len(fit)),
			Hint:    "name one by its ID: `grange shell list` shows them"}
	case ref != "":
		return "", false, noSession(fmt.Sprintf("you have no session %q on this host", ref))
	}
	return "", false, noSession("you have no session on this host")
}

// CodeNoShell is of a session that its user does not have; see docs/errors.md.
const CodeNoShell farm.Code = "no-shell"

func noSession(what string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoShell, Message: what,
		Hint: "`grange shell list` shows your sessions on this host; `grange shell` starts one"}
}

// ended is what stays of a session that ended while nobody was attached.
type ended struct {
	Session Session `json:"session"`
	Last    []byte  `json:"last"` // of its output
}

// mostEnded is how many ends are kept for whoever has not looked yet.
const mostEnded = 20

func (s Sessions) keepEnd(dir string, e ended) error {
	s.forgetOld()
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, e.Session.ID+endedSuffix), text, 0o600)
}

// forgetOld makes room for one more end.
func (s Sessions) forgetOld() {
	type file struct {
		path string
		at   time.Time
	}
	var all []file
	for _, path := range s.files(endedSuffix) {
		if info, err := os.Stat(path); err == nil {
			all = append(all, file{path, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b file) int { return a.at.Compare(b.at) })
	for len(all) >= mostEnded {
		os.Remove(all[0].path)
		all = all[1:]
	}
}

func readEnded(path string) (e ended, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(text, &e)
}

// takeEnd returns an end, once. The directory goes with the last file.
func (s Sessions) takeEnd(id string) (ended, error) {
	path, ok := s.files(endedSuffix)[id]
	if !ok {
		return ended{}, noSession("session " + id + " is not there any more")
	}
	e, err := readEnded(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	os.Remove(path)
	os.Remove(filepath.Dir(path))
	return e, nil
}
