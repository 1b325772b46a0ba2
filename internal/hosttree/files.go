package hosttree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Bounds on what a file may say, so that a hostile or broken tree is an error and not an allocation.
const (
	MaxCPUs  = 8192     // Linux's own limit (CONFIG_NR_CPUS)
	MaxText  = 64 << 10 // bytes that Text and Head read of a file
	MaxLarge = 4 << 20  // bytes that Large reads of a file
	maxDir   = 64 << 10 // entries of any one directory
)

// Files reads the small files of /proc and /sys. It remembers its first error, and after it every answer is empty: a
// caller reads all it wants and asks Err once. What is not there, or what the kernel does not let us read, is no error.
type Files struct {
	fsys fs.FS
	err  error
}

// NewFiles reads from a file system rooted like "/".
func NewFiles(fsys fs.FS) *Files { return &Files{fsys: fsys} }

// Err is the first thing that was wrong: a *farm.Error with farm.CodeBadTree that names the file.
func (r *Files) Err() error { return r.err }

// Fail reports that a file is damaged.
func (r *Files) Fail(path, format string, args ...any) {
	if r.err == nil {
		r.err = &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadTree,
			Message: "/" + path + ": " + fmt.Sprintf(format, args...),
			Hint:    "compare with that file on the host itself; a recorded tree may be damaged"}
	}
}

// Exists reports whether a file or directory is there.
func (r *Files) Exists(path string) bool {
	_, err := fs.Stat(r.fsys, path)
	return err == nil
}

// Head reads the first MaxText bytes of a file. It tells false for a file that is not there or that the kernel refuses
// to read, as it does for parts of /sys of an offline CPU.
func (r *Files) Head(path string) (string, bool) {
	b, err := r.First(path, MaxText)
	return string(b), err == nil
}

// First reads the first n bytes of a regular file, or fewer where it is shorter. Reading from a pipe could wait for
// ever, and from a device could do anything.
func (r *Files) First(path string, n int64) ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	info, err := fs.Stat(r.fsys, path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	f, err := r.fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

// Text is Head, trimmed, for a file that must not be longer.
func (r *Files) Text(path string) (string, bool) { return r.whole(path, MaxText) }

// Large is Text for files that grow with the host.
func (r *Files) Large(path string) (string, bool) { return r.whole(path, MaxLarge) }

func (r *Files) whole(path string, limit int64) (string, bool) {
	b, err := r.First(path, limit)
	if int64(len(b)) == limit {
		r.Fail(path, "is longer than %d bytes", limit)
		return "", false
	}
	return strings.Trim(string(b), " \n\x00"), err == nil // before 3.0 the kernel ended node/online with a zero byte
}

// Number reads a whole number from -1 to limit. An empty file is not a number: some recorded trees have them.
func (r *Files) Number(path string, limit int) (int, bool) {
	s, ok := r.Text(path)
	if !ok || s == "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < -1 || n > limit {
		r.Fail(path, "%q is not a number up to %d", Cut(s), limit)
		return 0, false
	}
	return n, true
}

// Cut shortens what a message quotes.
func Cut(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// CPUs reads path_list or path: the kernel has most sets in both forms.
func (r *Files) CPUs(path string) (farm.CPUSet, bool) { return r.ListOrMask(path+"_list", path) }

// ListOrMask reads one file in the list format, or where that is not there another one in the mask format.
func (r *Files) ListOrMask(list, mask string) (farm.CPUSet, bool) {
	if s, ok := r.List(list); ok {
		return s, true
	}
	return r.mask(mask)
}

// List reads "0-3,8". A list longer than all CPUs, by repeating them, is an error.
func (r *Files) List(path string) (farm.CPUSet, bool) {
	s, ok := r.Text(path)
	if !ok {
		return farm.CPUSet{}, false
	}
	set, ok := ParseList(s)
	if !ok {
		r.Fail(path, "%q is not a CPU list", Cut(s))
	}
	return set, ok
}

// ParseList reads "0-3,8", and reports whether it is one, of at most MaxCPUs numbers below MaxCPUs.
func ParseList(s string) (farm.CPUSet, bool) {
	var ids []int
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		if part == "" {
			continue
		}
		lo, hi, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(lo)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(hi)
		}
		if err != nil || first < 0 || last < first || last >= MaxCPUs || len(ids)+last-first >= MaxCPUs {
			return farm.CPUSet{}, false
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	}
	return farm.NewCPUSet(ids...), true
}

// mask reads "00000000,0000ff0f": groups of 32 bits in hexadecimal, the highest first.
func (r *Files) mask(path string) (farm.CPUSet, bool) {
	s, ok := r.Text(path)
	if !ok || s == "" {
		return farm.CPUSet{}, false
	}
	groups := strings.Split(s, ",")
	slices.Reverse(groups)
	var ids []int
	for i, g := range groups {
		bits, err := strconv.ParseUint(g, 16, 64)
		width := 32
		if len(groups) == 1 {
			width = 64 // a lone group may be as long as the machine's word
		}
		if err != nil || width == 32 && bits>>32 != 0 || bits != 0 && i*32+width > MaxCPUs {
			r.Fail(path, "%q is not a CPU mask", Cut(s))
			return farm.CPUSet{}, false
		}
		for b := range width {
			if bits>>b&1 == 1 {
				ids = append(ids, i*32+b)
			}
		}
	}
	return farm.NewCPUSet(ids...), true
}

// Names lists a directory in order of names; one that is not there, or is closed to us, is empty.
func (r *Files) Names(path string) []string {
	names, _ := r.Dir(path)
	return names
}

// Dir is Names that tells why there are none.
func (r *Files) Dir(path string) ([]string, error) {
	if r.err != nil {
		return nil, r.err
	}
	info, err := fs.Stat(r.fsys, path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "list", Path: path, Err: errors.New("not a directory")}
	}
	f, err := r.fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dir, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "list", Path: path, Err: errors.ErrUnsupported}
	}
	entries, err := dir.ReadDir(maxDir)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out, nil
}

// Link is what a symbolic link says.
func (r *Files) Link(path string) (string, error) {
	if r.err != nil {
		return "", r.err
	}
	return fs.ReadLink(r.fsys, path)
}

// Numbered lists the numbers of a directory's entries "cpu0", "cpu1" and so on, in rising order.
func (r *Files) Numbered(path, prefix string, limit int) []int {
	var out []int
	for _, name := range r.Names(path) {
		text, ok := strings.CutPrefix(name, prefix)
		n, err := strconv.Atoi(text)
		if !ok || err != nil || strconv.Itoa(n) != text {
			continue // "cpufreq", "node01"
		}
		if n >= limit {
			r.Fail(path+"/"+name, "is beyond number %d", limit-1)
			return nil
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
