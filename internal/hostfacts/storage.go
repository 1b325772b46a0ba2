package hostfacts

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/mounts"
)

const (
	maxDisks  = 4096
	maxMounts = 16384
)

// disks lists the block devices that hold data: neither loop nor RAM devices.
func (r *reader) disks() []farm.BlockDevice {
	var out []farm.BlockDevice
	for _, name := range r.Names("sys/block") {
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || len(out) == maxDisks {
			continue
		}
		queue := "sys/block/" + name + "/queue"
		d := farm.BlockDevice{Name: name, Rotational: r.word(queue+"/rotational") == "1",
			Scheduler:  r.chosen(queue + "/scheduler"),
			Schedulers: strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(r.word(queue + "/scheduler")))}
		if d.Scheduler == "" {
			d.Scheduler = r.word(queue + "/scheduler") // "none" stands without brackets where nothing else is offered
		}
		out = append(out, d)
	}
	return out
}

// mounts lists the mounted file systems as the first process sees them, or where that is closed to us, as we do.
func (r *reader) mounts() []farm.Mount {
	path := "proc/1/mounts"
	lines := r.lines(path)
	if len(lines) == 0 {
		path = "proc/self/mounts"
		lines = r.lines(path)
	}
	sizes := r.sizes()
	var out []farm.Mount
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		if len(out) == maxMounts {
			r.Fail(path, "has more than %d mounts", maxMounts)
			return nil
		}
		m := farm.Mount{Source: mounts.Unescape(fields[0]), Path: mounts.Unescape(fields[1]), Type: fields[2],
			Options: strings.Split(fields[3], ",")}
		size := sizes[m.Path]
		m.Size, m.Free = farm.Bytes(size.Size), farm.Bytes(min(size.Free, size.Size))
		out = append(out, m)
	}
	return out
}

// sizes reads what hosttree measured of the mounted file systems, by path.
func (r *reader) sizes() map[string]hosttree.FileSystem {
	var list []hosttree.FileSystem
	r.json(hosttree.FileSystemsPath, &list)
	out := map[string]hosttree.FileSystem{}
	for _, f := range list {
		out[f.Path] = f
	}
	return out
}

func (r *reader) json(path string, into any) {
	text, ok := r.Large(path)
	if !ok {
		return
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		r.Fail(path, "is not what a recording has there: %v", err)
	}
}

// coreLimit is the soft limit on core files of new sessions: that of PAM, else that of systemd, else that of the first
// process.
func (r *reader) coreLimit() string {
	limit := ""
	for _, file := range append([]string{"limits.conf"}, r.confFiles("etc/security/limits.d")...) {
		for _, line := range r.lines("etc/security/" + file) {
			line, _, _ = strings.Cut(line, "#")
			f := strings.Fields(line)
			if len(f) == 4 && f[0] == "*" && (f[1] == "soft" || f[1] == "-") && f[2] == "core" {
				limit = kibLimit(f[3])
			}
		}
	}
	if limit != "" {
		return limit
	}
	for _, file := range append([]string{"system.conf"}, r.confFiles("etc/systemd/system.conf.d")...) {
		for _, line := range r.lines("etc/systemd/" + file) {
			if value, ok := strings.CutPrefix(line, "DefaultLimitCORE="); ok {
				value, _, _ = strings.Cut(value, ":")
				limit = strings.Replace(strings.TrimSpace(value), "infinity", "unlimited", 1)
			}
		}
	}
	if limit != "" {
		return limit
	}
	for _, line := range r.lines("proc/1/limits") {
		if rest, ok := strings.CutPrefix(line, "Max core file size"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return fields[0]
			}
		}
	}
	return ""
}

// confFiles lists the .conf files of a directory, from its parent.
func (r *reader) confFiles(dir string) []string {
	var out []string
	base := dir[strings.LastIndex(dir, "/")+1:]
	for _, name := range r.Names(dir) {
		if strings.HasSuffix(name, ".conf") {
			out = append(out, base+"/"+name)
		}
	}
	return out
}

// kibLimit brings a limit of limits.conf, in KiB, to bytes.
func kibLimit(s string) string {
	if s == "-1" || s == "infinity" {
		return "unlimited"
	}
	if n, err := strconv.ParseUint(s, 10, 50); err == nil {
		return strconv.FormatUint(n*1024, 10)
	}
	return s
}
