// Package subid tells whose a subordinate user or group ID is. An account that has such IDs runs processes under each
// of them, in a user namespace or by a file with the set-user-ID bit, and is one user all the same.
package subid

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Range is one line of /etc/subuid or /etc/subgid: subordinate IDs of an account.
type Range struct {
	Owner        string // the account's name, or its number
	First, Count uint32
}

// Has reports whether an ID is in the range.
func (r Range) Has(id uint32) bool { return id >= r.First && id-r.First < r.Count }

// Number returns the owner's user ID where the line gives it by number.
func (r Range) Number() (uint32, bool) {
	n, err := strconv.ParseUint(r.Owner, 10, 32)
	return uint32(n), err == nil
}

// Parse reads the text of /etc/subuid or /etc/subgid. Like newuidmap, it passes over lines that it cannot read.
func Parse(text []byte) (all []Range) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		const owner, first, count = 0, 1, 2
		if len(fields) != count+1 || fields[owner] == "" || fields[owner][0] == '#' {
			continue
		}
		from, err := strconv.ParseUint(fields[first], 10, 32)
		n, err2 := strconv.ParseUint(fields[count], 10, 32)
		if errors.Join(err, err2) == nil && n > 0 {
			all = append(all, Range{fields[owner], uint32(from), uint32(n)})
		}
	}
	return all
}

// Files are the lists of subordinate IDs of a host, read again when they change. The zero value reads those of this
// host.
type Files struct {
	Root string // of the tree that they are in; "": /

	mu             sync.Mutex
	looked         time.Time
	users, groups  list
	otherSources   bool
	nameSwitchFile list
}

// list is one file as it was read last.
type list struct {
	stamp  stamp
	ranges []Range
}

// stamp changes when a file does.
type stamp struct {
	modified time.Time
	size     int64
}

const (
	lookAgain = time.Second
	mostBytes = 16 << 20
)

// User returns the range that a user ID is in.
func (f *Files) User(uid uint32) (Range, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	return find(f.users.ranges, uid)
}

// Group returns the range that a group ID is in.
func (f *Files) Group(gid uint32) (Range, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	return find(f.groups.ranges, gid)
}

// Elsewhere reports whether the host has subordinate IDs from another source than its files, such as SSSD. Nothing
// tells whose those are.
func (f *Files) Elsewhere() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	return f.otherSources
}

func find(all []Range, id uint32) (Range, bool) {
	for _, r := range all {
		if r.Has(id) {
			return r, true
		}
	}
	return Range{}, false
}

// look reads the files that have changed, once a second at most. A file that cannot be read is as it was read last.
func (f *Files) look() {
	now := time.Now()
	if !f.looked.IsZero() && now.Sub(f.looked) < lookAgain {
		return
	}
	f.looked = now
	f.users.read(f.path("subuid"), func(text []byte) { f.users.ranges = Parse(text) })
	f.groups.read(f.path("subgid"), func(text []byte) { f.groups.ranges = Parse(text) })
	f.nameSwitchFile.read(f.path("nsswitch.conf"), func(text []byte) { f.otherSources = namesOther(text) })
}

func (f *Files) path(name string) string { return filepath.Join("/", f.Root, "etc", name) }

// read passes the text of a file on if the file has changed. A file that does not exist is empty.
func (l *list) read(path string, use func(text []byte)) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		l.stamp = stamp{}
		use(nil)
		return
	}
	if err != nil {
		return
	}
	now := stamp{info.ModTime(), info.Size()}
	if now == l.stamp {
		return
	}
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	if text, err := io.ReadAll(io.LimitReader(file, mostBytes)); err == nil {
		l.stamp = now
		use(text)
	}
}

// namesOther reports whether nsswitch.conf names another source of subordinate IDs than files.
func namesOther(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		sources, ok := strings.CutPrefix(strings.TrimSpace(line), "subid:")
		if !ok {
			continue
		}
		for _, source := range strings.Fields(sources) {
			if source != "files" && source[0] != '[' {
				return true
			}
		}
	}
	return false
}
