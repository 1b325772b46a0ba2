// Package hostfacts reads what an audit needs to know of a host. It takes any file system rooted like "/", so a
// recorded host reads as well as the live one. It never writes and never runs a program.
package hostfacts

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/topology"
)

// Read reads a host. What a kernel does not tell is left empty. A file that says something impossible is a *farm.Error
// with farm.CodeBadTree: a wrong fact would be worse than none. What is there and closed to the caller is named in
// Host.Unread.
func Read(fsys fs.FS) (farm.HostFacts, error) {
	t, err := topology.Read(fsys)
	if err != nil {
		return farm.HostFacts{}, err
	}
	r := &reader{Files: hosttree.NewFiles(fsys)}
	h := farm.HostFacts{Topology: t, Name: r.hostName(), OS: r.os(), Versions: r.versions()}
	h.Kernel = r.kernel()
	h.KVM = r.kvm()
	h.KSM = r.ksm()
	h.THP = r.thp()
	memory{r}.read(&h)
	processors{r}.read(&h)
	h.Partitions = r.partitions()
	h.Services = services{r}.read()
	h.TunedProfile, h.Tuned = r.word("etc/tuned/active_profile"), tuned{r}.settings()
	h.PagesSet = r.pageSettings()
	h.Disks = r.disks()
	h.Devices = r.devices()
	h.VhostNet = r.vhostNet()
	r.readAgent(&h)
	h.Mounts = r.mounts()
	h.CoreLimit = r.coreLimit()
	h.Domains = r.domains()
	h.Unread = r.unread
	return h, r.Err()
}

// ReadLoad reads what changes all the time, and nothing else: CPU time, memory, swap, pressure, KSM. It is cheap enough
// to be asked for every few seconds, and needs no topology.
func ReadLoad(fsys fs.FS) (farm.HostFacts, error) {
	r := &reader{Files: hosttree.NewFiles(fsys)}
	m := memory{r}
	h := farm.HostFacts{KSM: r.ksm(), CPUTime: processors{r}.cpuTime(), Counters: m.counters(), Pressure: m.pressure(),
		Swaps: m.swaps()}
	h.Memory, h.Pages = m.sizes()
	return h, r.Err()
}

// maxUnread bounds the list of what could not be read.
const maxUnread = 100

// reader is a host's files. memory, processors, services and tuned read their own of them.
type reader struct {
	*hosttree.Files
	unread []string
}

// miss notes what is there and could not be used.
func (r *reader) miss(path string, err error) {
	if errors.Is(err, fs.ErrNotExist) || len(r.unread) == maxUnread {
		return
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	r.unread = append(r.unread, fmt.Sprintf("/%s: %v", path, err))
}

// word is a short file's text, "" where there is none.
func (r *reader) word(path string) string {
	s, _ := r.Text(path)
	return s
}

// lines are those of a file, trimmed, without empty ones and comments.
func (r *reader) lines(path string) []string {
	text, _ := r.Large(path)
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

// count reads a number that is not negative; 0 where there is none.
func (r *reader) count(path string, limit int) int {
	n, _ := r.Number(path, limit)
	return max(n, 0)
}

// chosen is the word in brackets: "madvise" of "always [madvise] never".
func (r *reader) chosen(path string) string {
	text := r.word(path)
	_, after, _ := strings.Cut(text, "[")
	word, _, ok := strings.Cut(after, "]")
	if !ok {
		return ""
	}
	return strings.TrimSpace(word)
}
