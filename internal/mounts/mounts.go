// Package mounts reads what the kernel says of mounted file systems, as text: a server that no longer answers holds up
// who looks at its files, not who reads of it.
package mounts

import (
	"bufio"
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Mount is a mounted file system. Source and type are the words of whoever mounted it.
type Mount struct {
	Point    string
	Type     string
	Source   string
	Device   string `json:",omitempty"` // of the file system, as "0:50"
	ReadOnly bool   `json:",omitempty"` // what is reached by this mount
}

// Same reports whether two mounts of a host are of one file system. A source that names a server and what it exports
// is of one, however often that is mounted; those of BeeGFS and CVMFS are one word for all, so that the device tells.
func (m Mount) Same(o Mount) bool {
	if m.Type != o.Type || m.Source != o.Source {
		return false
	}
	return m.Device == o.Device || strings.Contains(m.Source, ":") || strings.HasPrefix(m.Source, "//")
}

// maxLine is longer than any line of mountinfo: paths and options are of at most a page each, four bytes an escape.
const maxLine = 1 << 18

// Find reads a process's mountinfo, see proc(5), for the mount of an ID.
func Find(mountinfo io.Reader, id int) (m Mount, found bool, err error) {
	err = each(mountinfo, func(of int, is Mount) bool {
		if of == id {
			m, found = is, true
		}
		return !found
	})
	return m, found, err
}

// ByID reads every mount of a mountinfo, by its ID.
func ByID(mountinfo io.Reader) (map[int]Mount, error) {
	all := map[int]Mount{}
	err := each(mountinfo, func(id int, m Mount) bool {
		all[id] = m
		return true
	})
	return all, err
}

// All reads every mount of a mountinfo, in its order: later ones lie over earlier ones.
func All(mountinfo io.Reader) ([]Mount, error) {
	var all []Mount
	err := each(mountinfo, func(_ int, m Mount) bool {
		all = append(all, m)
		return true
	})
	return all, err
}

// Over returns the mount that a path is of, as far as its name tells: the last of the longest mount points above it.
func Over(all []Mount, path string) (over Mount, found bool) {
	for _, m := range all {
		if (m.Point == path || Below(path, m.Point)) && len(m.Point) >= len(over.Point) {
			over, found = m, true
		}
	}
	return over, found
}

// Options returns the mount that a path is of, and the options of its file system itself, by whatever mount it is
// reached.
func Options(mountinfo io.Reader, path string) (over Mount, options []string, err error) {
	s := bufio.NewScanner(mountinfo)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		_, m, ok := parse(s.Text())
		if !ok || m.Point != path && !Below(path, m.Point) || len(m.Point) < len(over.Point) {
			continue
		}
		_, rest, _ := strings.Cut(s.Text(), " - ") // type, source, options of the file system
		over, options = m, nil
		if f := strings.Split(rest, " "); len(f) > 2 {
			options = strings.Split(f[2], ",")
		}
	}
	return over, options, s.Err()
}

// Below reports whether a path is below a directory, and not the directory itself.
func Below(path, dir string) bool {
	return path != dir && strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Compare orders mounts by their points, then by all else that tells them apart.
func (m Mount) Compare(o Mount) int {
	return cmp.Or(cmp.Compare(m.Point, o.Point), cmp.Compare(m.Device, o.Device), cmp.Compare(m.Source, o.Source),
		cmp.Compare(m.Type, o.Type))
}

// Networked reads the network file systems from a mountinfo, in its order.
func Networked(mountinfo io.Reader) ([]Mount, error) {
	var all []Mount
	err := each(mountinfo, func(_ int, m Mount) bool {
		if m.Network() {
			all = append(all, m)
		}
		return true
	})
	return all, err
}

// each hands over one mount after the other, until more says that it is enough.
func each(mountinfo io.Reader, more func(id int, m Mount) bool) error {
	s := bufio.NewScanner(mountinfo)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if id, m, ok := parse(s.Text()); ok && !more(id, m) {
			return nil
		}
	}
	return s.Err()
}

// parse reads a line of mountinfo: ID, parent, device, root, mount point, options, any number of further fields, a
// hyphen, type, source.
func parse(line string) (id int, m Mount, ok bool) {
	f := strings.Split(line, " ")
	if len(f) < 6 {
		return 0, m, false
	}
	hyphen := slices.Index(f[6:], "-") + 6
	id, err := strconv.Atoi(f[0])
	if err != nil || hyphen < 6 || len(f) < hyphen+3 {
		return 0, m, false
	}
	return id, Mount{Point: Unescape(f[4]), Type: Unescape(f[hyphen+1]), Source: Unescape(f[hyphen+2]), Device: f[2],
		ReadOnly: strings.HasPrefix(f[5]+",", "ro,")}, true
}

// Unescape returns a field with the bytes that the kernel writes as three octal digits, as \040 in paths.
func Unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ID reads the mount ID from the fdinfo of an open file, see proc(5).
func ID(fdinfo string) (int, bool) {
	for line := range strings.Lines(fdinfo) {
		if text, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id, err := strconv.Atoi(strings.TrimSpace(text))
			return id, err == nil
		}
	}
	return 0, false
}
