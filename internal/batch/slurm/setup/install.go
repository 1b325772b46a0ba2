package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/program"
)

// Install is what `grange slurm install` was asked for. Paths are as Slurm sees them; files are written below Root.
type Install struct {
	Root      string // "/" but for packages and images
	ConfDir   string // where slurm.conf lies
	PluginDir string
	Include   string // of Slurm's headers; "": where packages put them
	Submit    bool   // a host where people submit, and no job runs
	Wrapper   string
	Socket    string
	Checked   string // where the prolog notes what it has looked at
	Catalogue string
	Default   string
	MinUID    uint32
	Metal     bool   // --no-vm is allowed
	Write     bool   // change slurm.conf and plugstack.conf too
	OCI       bool   // oci.conf and bundles instead of the plug-in
	Words     string // where the prolog of OCI leaves word
}

// ourFlags is the line of install. Many sites have PrologFlags=Contain for pam_slurm_adopt: uninstall must not take
// theirs.
const ourFlags = "PrologFlags=Contain # written by grange slurm install"

// mark begins each file that install wrote: uninstall removes no others.
const mark = "# grange slurm install wrote this file; grange slurm uninstall removes it.\n"

// File is one that install writes.
type File struct {
	Path string // below Root
	Text []byte // nil: the plug-in, which is compiled
	Mode fs.FileMode
	Has  string // "new", "same" or "changed"
}

// Plan is what install will do.
type Plan struct {
	Files []File
	// Edits are changes of the site's own files: made with Write, else shown.
	Edits   []Edit
	Line    string // the plug-in's, in plugstack.conf.d; or all of oci.conf
	Restart bool   // slurmd has to be started anew
	// NoConf is where slurm.conf was looked for in vain: Slurm's own may lie elsewhere.
	NoConf string
}

// Edit is a change of a file that belongs to the site.
type Edit struct {
	Path     string
	Old, New []byte
}

// Diff shows the lines that go and come.
func (e Edit) Diff() string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", e.Path, e.Path)
	old, next := strings.Split(string(e.Old), "\n"), strings.Split(string(e.New), "\n")
	for _, line := range old {
		if !slices.Contains(next, line) {
			fmt.Fprintf(&b, "-%s\n", line)
		}
	}
	for _, line := range next {
		if !slices.Contains(old, line) {
			fmt.Fprintf(&b, "+%s\n", line)
		}
	}
	return b.String()
}

func (i Install) file(path string) string { return filepath.Join(i.Root, path) }

func (i Install) prologFile() string { return filepath.Join(i.ConfDir, "prolog.d/50-grange") }

func (i Install) plugin() string { return filepath.Join(i.PluginDir, PluginName) }

var defaultText = lazyregexp.New(`^(sha256:)?[A-Za-z0-9._][A-Za-z0-9._-]*(:[A-Za-z0-9._][A-Za-z0-9._-]*)?$`)

// validDefault knows what the plug-in takes for IMAGE[:SHAPE]: it finds out when the first job starts, and ends that.
func validDefault(text string) error {
	const most = 255 // of each word
	if text == "" || text == "@policy" || defaultText.MatchString(text) && len(text) <= most {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
		Message: fmt.Sprintf("--default %q: wanted IMAGE[:SHAPE]", text),
		Hint: "names of letters, digits and . _ -, as grange image list and the agent's [shapes] have them; or " +
			"@policy"}
}

// Plan returns what would be written.
func (i Install) Plan() (Plan, error) {
	var p Plan
	if i.OCI {
		return i.planOCI()
	}
	if err := validDefault(i.Default); err != nil {
		return p, err
	}
	line := "optional " + i.plugin()
	if !i.Submit {
		line = fmt.Sprintf("required %s wrapper=%s socket=%s min_uid=%d", i.plugin(), i.Wrapper, i.Socket, i.MinUID)
		if i.Default != "" {
			line += " default=" + i.Default
		}
		if i.Metal {
			line += " allow_metal=yes"
		}
	}
	if i.Catalogue != "" {
		line += " catalogue=" + i.Catalogue
	}
	p.Line = line
	p.Files = append(p.Files, File{Path: i.file(i.plugin()), Mode: 0o755},
		File{Path: i.file(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf")), Text: []byte(mark + line + "\n"),
			Mode: 0o644})
	if !i.Submit {
		p.Files = append(p.Files, File{Path: i.file(i.prologFile()), Text: []byte(i.Prolog()), Mode: 0o755})
	}
	if i.masksSu() {
		p.Files = append(p.Files, File{Path: i.file(i.dropInFile()), Text: []byte(dropIn), Mode: 0o644})
		p.Restart = true
	}
	for n, f := range p.Files {
		old, err := os.ReadFile(f.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			p.Files[n].Has = "new"
		case err != nil:
			return p, err
		case f.Text == nil || bytes.Equal(old, f.Text):
			p.Files[n].Has = "same"
		default:
			p.Files[n].Has = "changed"
		}
	}
	return p, i.edits(&p)
}

// Prolog is the script that every job on the host waits for, also those on the host. So the usual case takes the shell
// alone: the plug-in is there, the two small files that name it say what install wrote, grange has looked for the
// slurmd that starts us whether Slurm reads these, and nothing has changed since. Otherwise grange looks.
func (i Install) Prolog() string {
	conf := func(name string) string { return filepath.Join(i.ConfDir, name) }
	read := []string{i.ConfDir, conf("slurm.conf"), conf("plugstack.conf"), conf("plugstack.conf.d"),
		conf("plugstack.conf.d/grange.conf"), i.PluginDir, i.plugin()}
	return fmt.Sprintf(`#!/bin/sh
%sPATH=/usr/sbin:/usr/bin:/sbin:/bin
conf=%s note=%s/slurmd-$PPID
says() { while read -r line; do case "$line " in "$2 "*) return 0 ;; esac; done <"$1"; return 1; }
unchanged() { for file; do [ -e "$file" ] && [ "$note" -nt "$file" ] || return 1; done; }
[ -O "$note" ] && [ ! -L "$note" ] && [ "${SLURM_CONF:-$conf}" = "$conf" ] && unchanged %s &&
	says %s %s && says %s %s && exit 0
exec %s slurm prolog --checked %[3]s --min-uid %[10]d --conf "$conf"
`, mark, farm.ShellWords(conf("slurm.conf")), farm.ShellWords(i.Checked), farm.ShellWords(read...),
		farm.ShellWords(conf("plugstack.conf")), farm.ShellWords(i.include()),
		farm.ShellWords(conf("plugstack.conf.d/grange.conf")), farm.ShellWords("required "+i.plugin()),
		farm.ShellWords(i.Wrapper), i.MinUID)
}

// include is the line that plugstack.conf needs.
func (i Install) include() string {
	return "include " + filepath.Join(i.ConfDir, "plugstack.conf.d/*.conf")
}

// edits are what the site's own files lack.
func (i Install) edits(p *Plan) error {
	path := i.file(filepath.Join(i.ConfDir, "plugstack.conf"))
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	include := i.include()
	covered := slices.ContainsFunc(strings.Split(string(old), "\n"), func(line string) bool {
		f := strings.Fields(uncomment(line))
		return len(f) == 2 && f[0] == "include" && strings.Contains(f[1], "plugstack.conf.d")
	})
	if !covered {
		p.Edits = append(p.Edits, Edit{path, old, appendLines(old, include)})
	}
	if i.Submit {
		return nil
	}
	return i.slurmEdits(p)
}

// slurmEdits are what slurm.conf lacks.
func (i Install) slurmEdits(p *Plan) error {
	path := i.file(filepath.Join(i.ConfDir, "slurm.conf"))
	conf, err := ReadConf(path)
	if err != nil {
		return err
	}
	if conf.Missing {
		p.NoConf = path
		return nil
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	flag, flags := "Contain", conf.prologFlags()
	if slices.Contains(flags, "nohold") { // Slurm takes no Contain beside it
		flag = "Alloc"
	}
	var lines []string
	for _, want := range []struct{ key, value string }{
		{"Prolog", filepath.Join(i.ConfDir, "prolog.d/*")}, {"PrologFlags", flag}, {"RequeueExit", "199"},
	} {
		switch have := conf.Get(want.key); {
		case have == "" && want.key == "PrologFlags":
			lines = append(lines, ourFlags)
		case have == "":
			lines = append(lines, want.key+"="+want.value)
		case slices.ContainsFunc(conf.List(want.key),
			func(word string) bool { return strings.EqualFold(word, want.value) }):
		case want.key == "PrologFlags" && slices.Contains(flags, strings.ToLower(flag)): // implied by another
		case want.key == "Prolog":
			lines = append(lines, fmt.Sprintf("# Prolog=%s is set: let it end with: exec %s", have, i.prologFile()))
		default:
			lines = append(lines, fmt.Sprintf("# %s=%s is set: add %s", want.key, have, want.value))
		}
	}
	have := strings.Split(string(old), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(have, line) })
	if len(lines) > 0 {
		p.Edits = append(p.Edits, Edit{path, old, appendLines(old, lines...)})
	}
	return nil
}

func appendLines(old []byte, lines ...string) []byte {
	text := bytes.TrimRight(old, "\n")
	if len(text) > 0 {
		text = append(bytes.Clone(text), '\n')
	}
	return append(text, []byte(strings.Join(lines, "\n")+"\n")...)
}

// Apply does it. Each file is replaced in one step; the plug-in comes first, for a line that names a missing one stops
// all jobs.
func (i Install) Apply(ctx context.Context, run program.Run, p Plan) error {
	for _, f := range p.Files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if f.Text == nil {
			if err := Compile(ctx, run, i.Root, i.Include, f.Path); err != nil {
				return err
			}
			continue
		}
		if f.Has != "same" {
			if err := atomicfile.Write(f.Path, f.Text, f.Mode); err != nil {
				return err
			}
		}
	}
	if !i.Write {
		return nil
	}
	return replaceAll(p.Edits)
}

// Compile makes the plug-in that this host's configuration names, or else PluginDir's, and returns its path.
func (i Install) Compile(ctx context.Context, run program.Run) (string, error) {
	path := i.plugin()
	text, err := os.ReadFile(i.file(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(uncomment(line)); len(f) > 1 && filepath.IsAbs(f[1]) &&
			filepath.Base(f[1]) == PluginName {
			path = f[1]
		}
	}
	if err := os.MkdirAll(filepath.Dir(i.file(path)), 0o755); err != nil {
		return "", err
	}
	return path, Compile(ctx, run, i.Root, i.Include, i.file(path))
}
