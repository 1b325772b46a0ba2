// Package mounts reads what the kernel says of mounted file systems, as text: a server that no longer answers holds up
// who looks at its files, not who reads of it.
package mounts

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Mount is a mounted file system. Source and type are the words of whoever mounted it.
type Mount struct {
	Point  string
	Type   string
	Source string
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
	return id, Mount{Point: Unescape(f[4]), Type: Unescape(f[hyphen+1]), Source: Unescape(f[hyphen+2])}, true
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

// network are the types whose files are on other hosts.
var network = []string{"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3",
	"fuse.ceph", "fuse.ceph-fuse", "fuse.cvmfs2", "fuse.glusterfs", "fuse.sshfs"}

// Network reports whether the files are a server's, as far as the type tells.
func (m Mount) Network() bool {
	return slices.Contains(network, m.Type) || m.Type == "fuse" && m.Source == "cvmfs2"
}
