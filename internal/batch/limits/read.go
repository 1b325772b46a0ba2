package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Master is what a batch system's master has.
type Master struct {
	system   System
	Process  string            // the daemon that was looked at; "": none runs
	Limits   map[string]int64  // of the process, soft, by their names in /proc/PID/limits
	Kernel   map[string]int64  // by path below /proc/sys; of ip_local_port_range, how many
	Settings map[string]string // of the configuration, keys in lower case
	Cloud    bool              // Slurm: there are CLOUD nodes
}

// Unlimited is a limit that is none.
const Unlimited = math.MaxInt64

var kernelFiles = []string{"fs/file-max", "net/core/somaxconn", "net/ipv4/tcp_max_syn_backlog",
	"net/ipv4/ip_local_port_range", "net/netfilter/nf_conntrack_max", "kernel/pid_max", "kernel/threads-max"}

// Runs reports whether the system's master runs in the tree.
func (s System) Runs(files fs.FS) bool {
	_, err := s.find(files)
	return err == nil
}

// Read reads a master. files is the root of its host, live or recorded; conf are texts of its configuration, or nil for
// where they usually are.
func Read(files fs.FS, system System, conf []string) (Master, error) {
	m := Master{system: system, Limits: map[string]int64{}, Kernel: map[string]int64{}, Settings: map[string]string{}}
	for _, name := range kernelFiles {
		text, err := fs.ReadFile(files, path.Join("proc/sys", name))
		if err != nil {
			continue
		}
		f := strings.Fields(string(text))
		if v, ok := numbers(f); ok {
			m.Kernel[name] = v
		}
	}
	if dir, err := system.find(files); err == nil {
		if err := m.readProcess(files, dir); err != nil {
			return m, err
		}
	}
	if conf == nil {
		for _, name := range system.Conf {
			if text, err := fs.ReadFile(files, name); err == nil {
				conf = []string{string(text)}
				break
			}
		}
	}
	for _, text := range conf {
		m.settings(text)
	}
	if m.Process == "" && len(m.Settings) == 0 && len(m.Kernel) == 0 {
		return m, fail("the tree has neither the master's process nor its configuration nor the kernel's settings")
	}
	return m, nil
}

func fail(format string, args ...any) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeBatchLimits, Message: fmt.Sprintf(format, args...),
		Hint: "run it on the master's host, or name a recorded tree with --root and files with --conf"}
}

// numbers is one number, or of two how many they span.
func numbers(f []string) (int64, bool) {
	switch len(f) {
	case 1:
		v, err := strconv.ParseInt(f[0], 10, 64)
		if errors.Is(err, strconv.ErrRange) {
			return Unlimited, true
		}
		return v, err == nil
	case 2:
		a, err := strconv.ParseInt(f[0], 10, 64)
		b, err2 := strconv.ParseInt(f[1], 10, 64)
		return b - a + 1, err == nil && err2 == nil && b >= a
	}
	return 0, false
}

// find is the directory of the daemon's process.
func (s System) find(files fs.FS) (string, error) {
	entries, err := fs.ReadDir(files, "proc")
	if err != nil {
		return "", err
	}
	for _, want := range s.Daemons {
		for _, e := range entries {
			if _, err := strconv.Atoi(e.Name()); err != nil {
				continue
			}
			text, err := fs.ReadFile(files, path.Join("proc", e.Name(), "comm"))
			if err == nil && strings.TrimSpace(string(text)) == want {
				return path.Join("proc", e.Name()), nil
			}
		}
	}
	return "", fs.ErrNotExist
}

func (m *Master) readProcess(files fs.FS, dir string) error {
	comm, err := fs.ReadFile(files, path.Join(dir, "comm"))
	if err != nil {
		return err
	}
	m.Process = fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(comm)), path.Base(dir))
	text, err := fs.ReadFile(files, path.Join(dir, "limits"))
	if err != nil {
		return fail("the limits of %s are not to be seen: %v", m.Process, err)
	}
	for line := range strings.Lines(string(text)) {
		const name = 26 // columns; then the soft and the hard limit
		if len(line) < name {
			continue
		}
		f := strings.Fields(line[name:])
		if len(f) == 0 {
			continue
		}
		if f[0] == "unlimited" {
			m.Limits[strings.TrimSpace(line[:name])] = Unlimited
		} else if v, err := strconv.ParseInt(f[0], 10, 64); err == nil {
			m.Limits[strings.TrimSpace(line[:name])] = v
		}
	}
	return nil
}

// settings reads KEY=VALUE, KEY VALUE and `set server KEY = VALUE`, which are slurm.conf, lsb.params and lsf.conf,
// condor_config_val -dump, qconf -sconf and -ssconf, and qmgr's print server. A later line wins, as in most of them.
func (m *Master) settings(text string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimPrefix(strings.TrimSpace(line), "set server ")
		key, value, ok := strings.Cut(line, "=")
		if first := strings.Fields(line); len(first) > 1 && (!ok || len(strings.Fields(key)) > 1) {
			key, value, ok = first[0], strings.Join(first[1:], " "), true
		}
		if !ok {
			continue
		}
		m.Settings[strings.ToLower(strings.TrimSpace(key))] = strings.Trim(strings.TrimSpace(value), `"`)
		if m.system.Line != nil {
			m.system.Line(m, line)
		}
	}
}
