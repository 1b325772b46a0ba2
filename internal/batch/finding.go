package batch

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Level is how much a finding about a batch system's configuration matters.
type Level string

// The levels.
const (
	Good    Level = "ok"
	Advice  Level = "advice"  // works, and could be better
	Warning Level = "warning" // something that jobs on the host have, jobs in VMs will not
	Broken  Level = "broken"  // jobs do not start, or could run outside of a VM
)

// Finding is the result of one check.
type Finding struct {
	ID    string `json:"id"`
	Level Level  `json:"level"`
	Found string `json:"found"`
	Where string `json:"where,omitempty"`
	Why   string `json:"why,omitempty"` // it matters; empty when all is well
	Do    string `json:"do,omitempty"`
}

// levels are in the order of what they mean for jobs.
var levels = []Level{Good, Advice, Warning, Broken}

// Worst is the level that decides about the exit status.
func Worst(findings []Finding) Level {
	worst := Good
	for _, f := range findings {
		if slices.Index(levels, f.Level) > slices.Index(levels, worst) {
			worst = f.Level
		}
	}
	return worst
}

// SortFindings puts the worst first, and those of one level in the order of what was found.
func SortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(slices.Index(levels, b.Level)-slices.Index(levels, a.Level), strings.Compare(a.Found, b.Found))
	})
}

// inside is an absolute path as an fs.FS of the root directory has it.
func inside(name string) string {
	if name = strings.TrimPrefix(path.Clean(name), "/"); name == "" {
		return "."
	}
	return name
}

// Safe reports who beside root could change a file that runs with others' rights: itself, or by a directory above it.
func Safe(root fs.FS, name string) error {
	for p := path.Clean(name); ; p = path.Dir(p) {
		info, err := fs.Stat(root, inside(p))
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			e.Path = p // as people know it
		}
		if err != nil {
			return err
		}
		sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0
		if info.Mode().Perm()&0o022 != 0 && !sticky {
			return fmt.Errorf("%s can be written by others than its owner", p)
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
			return fmt.Errorf("%s belongs to user %d", p, owner.Uid)
		}
		if p == "/" || p == "." {
			return nil
		}
	}
}

// CheckScript looks at a program or script that a batch system starts for grange; put is what puts it there.
func CheckScript(root fs.FS, name, put string) Finding {
	f := Finding{Level: Broken, Where: name}
	info, err := fs.Stat(root, inside(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Found, f.Why, f.Do = "missing", "what starts it finds nothing", put
		return f
	case err != nil:
		f.Found, f.Why, f.Do = err.Error(), "what starts it finds nothing", put
		return f
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 != 0o111:
		f.Found, f.Why, f.Do = "no program that everybody may run", "it runs as every user", "chmod 755 "+name
		return f
	}
	if err := Safe(root, name); err != nil {
		f.Found, f.Why, f.Do = err.Error(), "it runs as every user, or as root", "chown root, chmod go-w"
		return f
	}
	return Finding{Level: Good, Found: "root's own", Where: name}
}

// LoadsLibraries reports whether a program is started by way of a loader, which obeys LD_PRELOAD.
func LoadsLibraries(program *elf.File) bool {
	return slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// CheckWrapper looks at the program that stands in the place of every job.
func CheckWrapper(root fs.FS, name string) Finding {
	f := CheckScript(root, name, "install grange there on every host")
	if f.Level != Good {
		return f
	}
	file, err := root.Open(inside(name))
	if err != nil {
		return Finding{Level: Broken, Found: err.Error(), Where: name, Why: "no job starts",
			Do: "install grange there on every host"}
	}
	defer file.Close()
	var program *elf.File
	if at, ok := file.(io.ReaderAt); ok {
		program, err = elf.NewFile(at)
	}
	switch {
	case program == nil:
		return Finding{Level: Broken, Found: fmt.Sprintf("no program: %v", err), Where: name,
			Why: "a script is started by an interpreter, which reads the job's environment on the host",
			Do:  "name the program grange itself"}
	case LoadsLibraries(program):
		return Finding{Level: Broken, Found: "dynamically linked", Where: name,
			Why: "the job's LD_PRELOAD would run its owner's code on the host", Do: "build it with CGO_ENABLED=0"}
	}
	return Finding{Level: Good, Found: "static", Where: name}
}
