package allotment

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

// tree is a recorded host. Its file holds entries that begin with a line "-- PATH --"; behind the path may follow, in
// this order, "-> TARGET" for a link, "uid=N" for an owner that is not root, "mode=OCTAL", "mtime=SECONDS". A path that
// ends in "/" is a directory. Directories above entries are there by themselves, and root's.
type tree struct {
	fstest.MapFS
	links map[string]string
}

func (t tree) ReadLink(name string) (string, error) {
	if target, ok := t.links[name]; ok {
		return target, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrNotExist}
}

func (t tree) Lstat(name string) (fs.FileInfo, error) { return t.Stat(name) }

// Stat gives directories that nobody entered to root, as the kernel would.
func (t tree) Stat(name string) (fs.FileInfo, error) {
	if _, ok := t.MapFS[name]; !ok {
		for have := range t.MapFS {
			if strings.HasPrefix(have, name+"/") {
				entry := fstest.MapFS{name: {Mode: fs.ModeDir | 0o755, Sys: &syscall.Stat_t{}}}
				return entry.Stat(name)
			}
		}
	}
	return t.MapFS.Stat(name)
}

func readTree(t *testing.T, file string) tree {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parseTree(t, string(text))
}

func parseTree(t *testing.T, text string) tree {
	t.Helper()
	files := tree{fstest.MapFS{}, map[string]string{}}
	var at *fstest.MapFile
	for line := range strings.Lines(text) {
		head, begins := strings.CutPrefix(strings.TrimRight(line, "\n"), "-- ")
		head, ends := strings.CutSuffix(head, " --")
		if !begins || !ends {
			if at == nil {
				t.Fatalf("%q is before the first entry", line)
			}
			at.Data = append(at.Data, strings.ReplaceAll(line, "\\0", "\x00")...)
			continue
		}
		words := strings.Fields(head)
		name := strings.TrimSuffix(words[0], "/")
		owner := &syscall.Stat_t{}
		at = &fstest.MapFile{Mode: 0o644, Sys: owner}
		if name != words[0] {
			at.Mode = fs.ModeDir | 0o755
		}
		for i := 1; i < len(words); i++ {
			key, value, _ := strings.Cut(words[i], "=")
			n, err := strconv.ParseUint(value, map[string]int{"mode": 8}[key], 32)
			switch {
			case words[i] == "->":
				i++
				files.links[name] = words[i]
				continue
			case err != nil:
				t.Fatalf("%s: %q: %v", name, words[i], err)
			case key == "uid":
				owner.Uid = uint32(n)
			case key == "mtime":
				at.ModTime = time.Unix(int64(n), 0)
			case key == "mode":
				at.Mode = at.Mode&fs.ModeDir | fs.FileMode(n&0o777)
				if n&syscall.S_ISUID != 0 {
					at.Mode |= fs.ModeSetuid
				}
			default:
				t.Fatalf("%s: %q is not known", name, words[i])
			}
		}
		files.MapFS[name] = at
	}
	return files
}

// person is one process of a made-up host, for trees that nobody can record.
type person struct {
	pid, parent, uid, start int
	program, title, cgroup  string
	setuid                  bool
}

// people writes processes into a tree.
func (t tree) people(all ...person) tree {
	for _, p := range all {
		dir := fmt.Sprintf("proc/%d/", p.pid)
		put := func(name, text string) { t.MapFS[dir+name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644} }
		put("status", fmt.Sprintf("Name:\t%.15s\nPPid:\t%d\nUid:\t%d\t%[3]d\t%[3]d\t%[3]d\nGroups:\t%[3]d \n",
			p.program, p.parent, p.uid))
		put("stat", fmt.Sprintf("%d (a) b) S %d"+strings.Repeat(" 0", 17)+" %d 0 0\n", p.pid, p.parent, p.start))
		put("cmdline", p.title+"\x00")
		put("cgroup", p.cgroup)
		put("exe", "")
		if p.setuid {
			t.MapFS[dir+"exe"].Mode |= fs.ModeSetuid
		}
		t.links[dir+"exe"] = p.program
	}
	return t
}
