package topology

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
	maxCPUs = 8192     // Linux's own limit (CONFIG_NR_CPUS)
	maxText = 64 << 10 // bytes read of any one file
	maxKiB  = 1 << 46  // 64 PiB: more than the 52 bits of an x86 physical address
	maxDir  = 64 << 10 // entries of any one directory
)

// reader remembers its first error; after it every answer is empty.
type reader struct {
	fsys fs.FS
	err  error
}

func (r *reader) fail(path, format string, args ...any) {
	if r.err == nil {
		r.err = &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadTree, Message: "/" + path + ": " + fmt.Sprintf(format, args...),
			Hint: "compare with lscpu -e and numactl --hardware on that host; a recorded tree may be damaged"}
	}
}

func cpuPath(cpu int, name string) string {
	path := cpuDir + "/cpu" + digits(cpu)
	if name != "" {
		path += "/" + name
	}
	return path
}

func digits(n int) string { return strconv.Itoa(n) }

func (r *reader) exists(path string) bool {
	_, err := fs.Stat(r.fsys, path)
	return err == nil
}

// head reads the first maxText bytes of a file. It tells false for a file that is not there or that the kernel refuses to read,
// as it does for parts of /sys of an offline CPU.
func (r *reader) head(path string) (string, bool) {
	if r.err != nil {
		return "", false
	}
	f, err := r.fsys.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText))
	return string(b), err == nil
}

// text is head, trimmed, for a file that must not be longer.
func (r *reader) text(path string) (string, bool) {
	s, ok := r.head(path)
	if len(s) == maxText {
		r.fail(path, "is longer than %d bytes", maxText)
		return "", false
	}
	return strings.Trim(s, " \n\x00"), ok // before 3.0 the kernel ended node/online with a zero byte
}

// number reads a whole number from -1 to limit. An empty file is no number: some recorded trees have them.
func (r *reader) number(path string, limit int) (int, bool) {
	s, ok := r.text(path)
	if !ok || s == "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < -1 || n > limit {
		r.fail(path, "%q is not a number up to %d", cut(s), limit)
		return 0, false
	}
	return n, true
}

func cut(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// cpus reads path_list or path: the kernel has most sets in both forms.
func (r *reader) cpus(path string) (farm.CPUSet, bool) { return r.cpus2(path+"_list", path) }

func (r *reader) cpus2(list, mask string) (farm.CPUSet, bool) {
	if s, ok := r.list(list); ok {
		return s, true
	}
	return r.mask(mask)
}

// list reads "0-3,8". A list longer than all CPUs, by repeating them, is an error.
func (r *reader) list(path string) (farm.CPUSet, bool) {
	s, ok := r.text(path)
	if !ok {
		return farm.CPUSet{}, false
	}
	var ids []int
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		lo, hi, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(lo)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(hi)
		}
		if err != nil || first < 0 || last < first || last >= maxCPUs || len(ids)+last-first >= maxCPUs {
			r.fail(path, "%q is not a CPU list", cut(s))
			return farm.CPUSet{}, false
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	}
	return farm.NewCPUSet(ids...), true
}

// mask reads "00000000,0000ff0f": groups of 32 bits in hexadecimal, the highest first.
func (r *reader) mask(path string) (farm.CPUSet, bool) {
	s, ok := r.text(path)
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
		if err != nil || width == 32 && bits>>32 != 0 || bits != 0 && i*32+width > maxCPUs {
			r.fail(path, "%q is not a CPU mask", cut(s))
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

// names lists a directory; one that is not there is empty.
func (r *reader) names(path string) []string {
	if r.err != nil {
		return nil
	}
	f, err := r.fsys.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	dir, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil
	}
	entries, err := dir.ReadDir(maxDir)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}

// numbered lists the numbers of a directory's entries "cpu0", "cpu1" and so on, in rising order.
func (r *reader) numbered(path, prefix string, limit int) []int {
	var out []int
	for _, name := range r.names(path) {
		text, ok := strings.CutPrefix(name, prefix)
		n, err := strconv.Atoi(text)
		if !ok || err != nil || digits(n) != text {
			continue // "cpufreq", "node01"
		}
		if n >= limit {
			r.fail(path+"/"+name, "is beyond number %d", limit-1)
			return nil
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
